from batonflow.server import *

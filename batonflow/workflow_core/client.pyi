from batonflow.server.client import *

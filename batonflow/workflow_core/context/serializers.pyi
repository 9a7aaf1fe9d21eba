from batonflow.values import *

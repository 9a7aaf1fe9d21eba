from batonflow.runtimes import *

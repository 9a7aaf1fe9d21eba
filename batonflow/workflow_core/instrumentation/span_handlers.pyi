from batonflow.instrumentation.handlers import *

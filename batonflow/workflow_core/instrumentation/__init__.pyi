from batonflow.instrumentation import *

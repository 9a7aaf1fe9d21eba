from batonflow.instrumentation.span import *

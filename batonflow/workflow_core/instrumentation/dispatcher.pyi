from batonflow.instrumentation.dispatcher import *

from batonflow.instrumentation.events.run import *

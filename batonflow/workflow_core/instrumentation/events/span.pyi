from batonflow.instrumentation.events.span import *

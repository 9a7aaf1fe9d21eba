from batonflow.instrumentation.span_handlers import *

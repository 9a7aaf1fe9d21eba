from batonflow.instrumentation.event_handlers import *

from batonflow.instrumentation.events.exception import *

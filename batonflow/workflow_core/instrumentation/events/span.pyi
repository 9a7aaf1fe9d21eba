from batonflow.instrumentation.events.base import *

from batonflow.instrumentation.events import *

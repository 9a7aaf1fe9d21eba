from batonflow.instrumentation.events.tool import *

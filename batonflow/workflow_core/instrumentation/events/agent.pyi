from batonflow.instrumentation.events.agent import *

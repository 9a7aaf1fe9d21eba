from batonflow.instrumentation.events.llm import *

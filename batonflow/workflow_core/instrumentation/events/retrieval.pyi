from batonflow.instrumentation.events.retrieval import *

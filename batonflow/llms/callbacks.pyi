from batonflow.llms.call_tracing import *

from batonflow.instrumentation.redaction import *

from batonflow.tracing.otel import *

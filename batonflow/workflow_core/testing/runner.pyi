from batonflow.testing.runner import *

from batonflow.values.types import *

from batonflow.runtime import *

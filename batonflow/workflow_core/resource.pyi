from batonflow.resources import *

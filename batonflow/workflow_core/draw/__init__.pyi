from batonflow.draw import *

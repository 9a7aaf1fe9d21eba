from batonflow.llms import *

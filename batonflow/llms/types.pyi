from batonflow.llms.messages import *

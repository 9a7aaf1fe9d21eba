from batonflow.llms.settings import *

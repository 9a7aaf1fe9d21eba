from batonflow.workflow_core.step import *

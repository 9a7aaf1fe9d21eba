from batonflow.llms.prompts.base import *

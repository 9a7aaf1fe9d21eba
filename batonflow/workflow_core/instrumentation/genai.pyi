from batonflow.llms.genai import *

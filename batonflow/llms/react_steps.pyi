from batonflow.llms.react_text import *

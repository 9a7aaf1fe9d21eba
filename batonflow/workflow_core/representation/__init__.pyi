from batonflow.draw.representation import *

from batonflow.testing import *

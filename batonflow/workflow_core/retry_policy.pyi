from batonflow.retry_policies import *

from batonflow.server.endpoints import *

from batonflow.values.serializers import *

"""Workers: processes that drive the runs of a store together."""

from batonflow.fleet.worker import Worker

__all__ = ["Worker"]

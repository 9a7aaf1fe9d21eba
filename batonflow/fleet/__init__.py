"""Workers: processes that drive the runs of a store together, also at the times of schedules."""

from batonflow.fleet.schedules import Schedule, add_schedule, list_schedules, remove_schedule
from batonflow.fleet.worker import Worker

__all__ = ["Schedule", "Worker", "add_schedule", "list_schedules", "remove_schedule"]

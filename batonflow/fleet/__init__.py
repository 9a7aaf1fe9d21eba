"""Workers: processes that drive the runs of a store together, also at the times of schedules."""

from batonflow.fleet.dispatcher_dbos import DBOSDispatcher
from batonflow.fleet.dispatcher_procrastinate import ProcrastinateDispatcher
from batonflow.fleet.dispatcher_protocol import Dispatcher
from batonflow.fleet.dispatchers import open_dispatcher
from batonflow.fleet.schedules import Schedule, add_schedule, list_schedules, remove_schedule
from batonflow.fleet.worker import Worker

__all__ = [
    "DBOSDispatcher", "Dispatcher", "ProcrastinateDispatcher", "Schedule", "Worker", "add_schedule", "list_schedules",
    "open_dispatcher", "remove_schedule",
]  # fmt: skip

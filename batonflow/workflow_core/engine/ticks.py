"""Ticks: the inputs of the broker, and the only way to change the state of a run."""

from dataclasses import dataclass
from typing import Any

from batonflow.workflow_core.engine.state import Causes, Recoveries, Waiter, WorkItem
from batonflow.workflow_core.events import Event, StopEvent


@dataclass(slots=True)
class EventArrived:
    """An event was sent: by a step (``causes`` holds its open segment), by the caller, or by another workflow."""

    event: Event
    target: str | None = None
    recoveries: Recoveries | None = None
    causes: Causes = ()

    def __str__(self) -> str:
        return f"event {type(self.event).__name__} -> {self.target or '*'}"


@dataclass(slots=True)
class StepReturned:
    """An attempt of a step came to its end with a result."""

    item: WorkItem
    result: Any
    now: float

    def __str__(self) -> str:
        return f"returned {self.item!r} {type(self.result).__name__}"


@dataclass(slots=True)
class StepFailed:
    """An attempt of a step raised."""

    item: WorkItem
    error: BaseException
    now: float

    def __str__(self) -> str:
        return f"failed {self.item!r} {type(self.error).__name__}"


@dataclass(slots=True)
class RetryDue:
    """The delay before the next attempt is over."""

    item: WorkItem

    def __str__(self) -> str:
        return f"retry {self.item!r}"


@dataclass(slots=True)
class WaitOpened:
    """A step began to wait for an event and gives its worker back."""

    waiter: Waiter

    def __str__(self) -> str:
        return f"wait {self.waiter.item!r} {self.waiter.event_type.__name__}"


@dataclass(slots=True)
class WaitAnswered:
    """A wait ended from inside: its time was up (``answer`` is None)."""

    waiter: Waiter
    answer: Event | None

    def __str__(self) -> str:
        return f"answered {self.waiter.item!r} {type(self.answer).__name__}"


@dataclass(slots=True)
class WaitClosed:
    """The step gave a wait up, for example by a timeout of its own around it."""

    waiter: Waiter

    def __str__(self) -> str:
        return f"gave up {self.waiter.item!r} {self.waiter.event_type.__name__}"


@dataclass(slots=True)
class RunIdle:
    """Nothing is queued, executing or on its way; ``expecting`` says whether something outside may still come."""

    expecting: bool

    def __str__(self) -> str:
        return "idle"


@dataclass(slots=True)
class RunEnded:
    """The run ends from outside: cancelled, timed out, or failed by something other than a step."""

    event: StopEvent
    error: BaseException
    resumable: bool = False

    def __str__(self) -> str:
        return f"ended {type(self.event).__name__}"


Tick = EventArrived | StepReturned | StepFailed | RetryDue | WaitOpened | WaitAnswered | WaitClosed | RunIdle | RunEnded
"""Any input of the broker."""

"""Ticks and commands: the inputs of the broker, which alone change the state of a run, and its outputs."""

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


@dataclass(slots=True)
class StartStep:
    """Run the next attempt of a delivery; it holds a worker from now on."""

    item: WorkItem


@dataclass(slots=True)
class Enqueued:
    """A delivery waits for a free worker; for readers of internal events."""

    item: WorkItem


@dataclass(slots=True)
class ResumeWait:
    """Let a waiting step go on; the answer is kept with its delivery."""

    waiter: Waiter


@dataclass(slots=True)
class Answered:
    """A wait has its answer, None when its time was up; for the recorder."""

    waiter: Waiter
    answer: Event | None
    causes: Causes


@dataclass(slots=True)
class GaveUp:
    """A step waits no longer; for the recorder."""

    waiter: Waiter


@dataclass(slots=True)
class Recovered:
    """A ``@catch_error`` handler takes over a failed delivery; for the recorder."""

    item: WorkItem
    handling: WorkItem


@dataclass(slots=True)
class Publish:
    """Put an event on the public stream."""

    event: Event
    item: WorkItem


@dataclass(slots=True)
class SetRetryTimer:
    """Come back with ``RetryDue`` when ``item.due`` is reached."""

    item: WorkItem


@dataclass(slots=True)
class Unrouted:
    """No step here takes the event: offer it to the tree of workflows, else report it as unhandled."""

    event: Event
    target: str | None
    causes: Causes


@dataclass(slots=True)
class PersonAnswered:
    """A step takes a person's answer that no wait wanted."""

    event: Event


@dataclass(slots=True)
class Warn:
    """Log a warning."""

    text: str


@dataclass(slots=True)
class Idle:
    """Nothing is queued or executing."""


@dataclass(slots=True)
class Stalled:
    """The run cannot move by itself; the texts describe the waiting joins."""

    waiting_on: list[str]


@dataclass(slots=True)
class Finish:
    """The run is over: cancel its deliveries, publish ``event`` last, and raise ``error`` if there is one.

    ``resumable`` says that the state is kept as it is.
    """

    event: StopEvent
    error: BaseException | None
    resumable: bool
    items: list[WorkItem]
    waiters: list[Waiter]


Command = (
    StartStep
    | Enqueued
    | ResumeWait
    | Answered
    | GaveUp
    | Recovered
    | Publish
    | SetRetryTimer
    | Unrouted
    | PersonAnswered
    | Warn
    | Idle
    | Stalled
    | Finish
)
"""Any output of the broker."""

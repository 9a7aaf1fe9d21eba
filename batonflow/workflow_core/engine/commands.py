"""Commands: the outputs of the broker, which the runner carries out in order."""

from dataclasses import dataclass

from batonflow.workflow_core.engine.state import Causes, Waiter, WorkItem
from batonflow.workflow_core.events import Event, StopEvent


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

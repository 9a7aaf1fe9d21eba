"""Ticks, the inputs of the broker, and commands, its outputs. Only ticks change a run's state."""

from dataclasses import dataclass
from typing import Any

from batonflow.workflow_core.engine.state import Causes, Recoveries, Waiter, WorkItem
from batonflow.workflow_core.events import Event, StopEvent


@dataclass(slots=True)
class EventArrived:
    """An event was sent by a step, the caller or another workflow. ``causes`` holds the open record of a step."""

    event: Event
    target: str | None = None
    recoveries: Recoveries | None = None
    causes: Causes = ()


@dataclass(slots=True)
class StepReturned:
    """An attempt of a step returned a result."""

    item: WorkItem
    result: Any
    now: float


@dataclass(slots=True)
class StepFailed:
    """An attempt of a step raised an exception."""

    item: WorkItem
    error: BaseException
    now: float


@dataclass(slots=True)
class RetryDue:
    """The delay before the next attempt is over."""

    item: WorkItem


@dataclass(slots=True)
class WaitOpened:
    """A step waits for an event and frees its worker."""

    waiter: Waiter


@dataclass(slots=True)
class WaitTimedOut:
    """A wait ended by its timeout. Answers arrive as ``EventArrived``."""

    waiter: Waiter


@dataclass(slots=True)
class WaitClosed:
    """The step gave up a wait, for example by its own timeout around it."""

    waiter: Waiter


@dataclass(slots=True)
class WorkerLent:
    """A step runs calls of its own, as ``ctx.map`` does, and frees its worker."""

    item: WorkItem


@dataclass(slots=True)
class WorkerWanted:
    """The calls of a step are over. It goes on with a worker, or at once if the waiter has no future."""

    waiter: Waiter


@dataclass(slots=True)
class RunIdle:
    """No work is queued, executing or undelivered; ``expecting`` tells whether input may still arrive."""

    expecting: bool


@dataclass(slots=True)
class RunEnded:
    """The run ends for another reason than a step: a cancellation, a timeout or a fault."""

    event: StopEvent
    error: BaseException
    resumable: bool = False


Tick = (
    EventArrived | StepReturned | StepFailed | RetryDue | WaitOpened | WaitTimedOut | WaitClosed | WorkerLent
    | WorkerWanted | RunIdle | RunEnded
)  # fmt: skip
"""Any input of the broker."""


def line_of(tick: Tick) -> str:
    """Return the line of a tick in a log; equal runs have equal lines."""
    match tick:
        case EventArrived(event, target):
            return f"event {type(event).__name__} -> {target or '*'}"
        case StepReturned(item, result):
            return f"returned {item!r} {type(result).__name__}"
        case StepFailed(item, error):
            return f"failed {item!r} {type(error).__name__}"
        case WaitOpened(waiter) | WaitTimedOut(waiter) | WaitClosed(waiter) | WorkerWanted(waiter):
            return f"{type(tick).__name__} {waiter.item!r} {waiter.event_type.__name__}"
        case RetryDue(item) | WorkerLent(item):
            return f"{type(tick).__name__} {item!r}"
        case RunEnded(event):
            return f"ended {type(event).__name__}"
        case RunIdle():
            return "idle"


@dataclass(slots=True)
class StartStep:
    """Start the next attempt of a delivery, which now holds a worker."""

    item: WorkItem


@dataclass(slots=True)
class Enqueued:
    """Report that a delivery waits for a worker, for readers of internal events."""

    item: WorkItem


@dataclass(slots=True)
class ResumeWait:
    """Let a waiting step go on; its delivery keeps the answer."""

    waiter: Waiter


@dataclass(slots=True)
class Answered:
    """Record the answer of a wait; None after its timeout."""

    waiter: Waiter
    answer: Event | None
    causes: Causes


@dataclass(slots=True)
class GaveUp:
    """Record that a step gave up a wait."""

    waiter: Waiter


@dataclass(slots=True)
class Recovered:
    """Record that a ``@catch_error`` handler takes over a failed delivery."""

    item: WorkItem
    handling: WorkItem


@dataclass(slots=True)
class Publish:
    """Append an event to the stream."""

    event: Event
    item: WorkItem


@dataclass(slots=True)
class SetRetryTimer:
    """Set a timer that feeds ``RetryDue`` to the broker at the time ``item.due``."""

    item: WorkItem


@dataclass(slots=True)
class Unrouted:
    """Offer an event without an accepting step to the tree of workflows, or report it as unhandled."""

    event: Event
    target: str | None
    causes: Causes


@dataclass(slots=True)
class PersonAnswered:
    """Note that a step accepted the answer of a person."""

    event: Event


@dataclass(slots=True)
class Warn:
    """Log a warning."""

    text: str


@dataclass(slots=True)
class Idle:
    """Report that no work is queued or executing."""


@dataclass(slots=True)
class Stalled:
    """Report that the run has stalled; the texts describe the waiting joins."""

    waiting_on: list[str]


@dataclass(slots=True)
class Finish:
    """End the run: cancel its deliveries, publish ``event`` last, and raise ``error`` if there is one.

    ``resumable`` keeps the state for a later resume.
    """

    event: StopEvent
    error: BaseException | None
    resumable: bool
    items: list[WorkItem]
    waiters: list[Waiter]


Command = (
    StartStep | Enqueued | ResumeWait | Answered | GaveUp | Recovered | Publish | SetRetryTimer | Unrouted
    | PersonAnswered | Warn | Idle | Stalled | Finish
)  # fmt: skip
"""Any output of the broker."""

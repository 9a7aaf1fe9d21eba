"""Undecided ticks in snapshots: undelivered events, and outcomes of steps that wait for their own sends.

A finished step is not run again, even if its outcome has not taken effect yet. The outcome is written with the
delivery and its place among the undelivered events. A restored run gives it to the broker at that place.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from batonflow.values.exceptions import dump_exception, load_exception
from batonflow.workflow_core.engine.state import WorkItem, origins_of
from batonflow.workflow_core.engine.ticks import EventArrived, StepFailed, StepReturned, Tick
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import Event

__all__ = ["deliveries_as_data", "outcomes_as_data", "read_outcome", "with_outcomes"]

WriteEvent = Callable[[Event], str | None]
ReadEvent = Callable[[Any], Event]


def deliveries_as_data(ticks: Iterable[Tick], write: WriteEvent) -> list[dict[str, Any]]:
    """Write the events among the undecided ticks."""
    return [
        {
            "event": write(tick.event),
            "step_id": tick.target,
            "recovery_counts": dict(tick.recoveries or {}),
            "scope_path": [],
            **({"origins": origins_of(tick.causes)} if tick.causes else {}),
        }
        for tick in ticks
        if isinstance(tick, EventArrived)
    ]


def outcomes_as_data(ticks: Sequence[Tick], write: WriteEvent) -> dict[int, dict[str, Any]]:
    """Return the outcomes by the number of the delivery; ``place`` counts all undecided ticks."""
    found: dict[int, dict[str, Any]] = {}
    place = 0
    for tick in ticks:
        if isinstance(tick, StepReturned | StepFailed):
            outcome = _outcome(tick, write)
            if outcome is None:
                continue
            found[tick.item.id] = {"place": place, "began": tick.item.started_at, "ended": tick.now, **outcome}
        place += 1
    return found


def _outcome(tick: StepReturned | StepFailed, write: WriteEvent) -> dict[str, Any] | None:
    """Return an outcome as data. None means that it could not be restored, so that the step runs again."""
    if isinstance(tick, StepFailed):
        return _failure(tick.error)
    result = tick.result
    problem = tick.item.spec.problem_with(result)
    if problem is not None:  # the result may not be writable
        return _failure(WorkflowRuntimeError(problem))
    try:
        if isinstance(result, list):
            return {"returned": [write(event) for event in cast("list[Event]", result)]}
        return {"returned": None if result is None else write(result)}
    except ValueError:
        return None


def _failure(error: BaseException) -> dict[str, Any] | None:
    # Retry policies and @catch_error use the class and the attributes of an error.
    data = dump_exception(error)
    read = load_exception(data)
    same = type(read) is type(error) and read.args == error.args and _carried(read) == _carried(error)
    return {"failed": data} if same else None


def _carried(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def read_outcome(item: WorkItem, entry: dict[str, Any], read: ReadEvent) -> StepReturned | StepFailed:
    """Return the outcome of a delivery from data."""
    item.started_at = entry["began"]
    if "failed" in entry:
        return StepFailed(item, load_exception(entry["failed"]), entry["ended"])
    returned = entry["returned"]
    if isinstance(returned, list):
        return StepReturned(item, [read(event) for event in cast("list[Any]", returned)], entry["ended"])
    return StepReturned(item, None if returned is None else read(returned), entry["ended"])


def with_outcomes(deliveries: Iterable[Tick], outcomes: Iterable[tuple[int, StepReturned | StepFailed]]) -> list[Tick]:
    """Return all undecided ticks, with each outcome at its place."""
    ticks = list(deliveries)
    for place, tick in sorted(outcomes, key=lambda outcome: outcome[0]):
        ticks.insert(place, tick)
    return ticks

"""Requests of a step to its run: collect events, wait for an event, read earlier failures."""

from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from threading import get_ident
from typing import Any, cast

from batonflow.values.types import RetryInfo, is_seconds
from batonflow.workflow_core.engine.state import Buffer, Number, WorkItem, current_item
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.run import Run

__all__ = ["collect", "current_context", "retry_info", "wait_for"]

_FEW = 1000
"""Up to this many expected types lists are compared whole; beyond it, by length and that many samples."""


def current_context() -> Any:
    """Return the context of the step that is running here.

    Raises:
        WorkflowRuntimeError: No step is running here.
    """
    item = current_item.get()
    if item is None or item.run is None:
        raise WorkflowRuntimeError("get_step_context() may only be called from within a running step")
    return item.run.context_for(item)


def retry_info(run: Run, item: WorkItem) -> RetryInfo:
    """Return the earlier failures of a delivery; zeros on the first attempt."""
    failures = item.failures
    if failures is None:
        return RetryInfo()
    elapsed = max(0.0, run.source.now() - failures.first_attempt_at)
    failed_at = failures.last_failed_at
    last = None if failed_at is None else datetime.fromtimestamp(failed_at, UTC)
    return RetryInfo(failures.count, elapsed, failures.last_error, last)


# --- waiting ----------------------------------------------------------------------------------------------------------


def wait_for(
    run: Run, item: WorkItem, event_type: Any, waiter_event: Any, waiter_id: str | None, requirements: Any, timeout: Any
) -> Coroutine[Any, Any, Any]:
    """Suspend a step until an event arrives; see ``Context.wait_for_event``.

    Raises:
        TypeError: An argument has a wrong type; the message names it.
    """
    kind: Any = event_type
    required: dict[str, Any] = requirements or {}
    wrong: tuple[str, object] | None = None
    if not (isinstance(event_type, type) and issubclass(event_type, Event)):
        wrong = "event_type= takes the class of the event to wait for", cast("object", event_type)
    elif waiter_event is not None and not isinstance(waiter_event, Event):
        wrong = "waiter_event= takes the event that asks for the answer", waiter_event
    elif requirements is not None and not isinstance(requirements, Mapping):
        wrong = "requirements= takes a dict of attributes and their values", requirements
    elif timeout is not None and not is_seconds(timeout):
        wrong = "timeout= takes seconds, 0 or more, or None", timeout
    if wrong is not None:
        raise TypeError(f"wait_for_event(): {wrong[0]}, got {wrong[1]!r}")
    return run.waiting.wait(item, kind, waiter_event, waiter_id, required, timeout)


# --- collecting -------------------------------------------------------------------------------------------------------


def collect(run: Run, item: WorkItem, event: Event, expected: list[type[Event]], buffer_id: str) -> list[Event] | None:
    """Put an event aside until one of each expected type has arrived. A repeated attempt gets the same result.

    A complete set leaves the buffer at once. It stays with the delivery until its end, so that a retry finds it.
    """
    if get_ident() != run.thread_id:
        return run.on_loop(lambda: collect(run, item, event, expected, buffer_id))
    numbers = item.make_progress().here()
    number = numbers.collects
    numbers.collects += 1
    name = numbers.named(number)
    if numbers.collected is None:
        numbers.collected = []
    elif number < len(numbers.collected):
        return numbers.collected[number]
    found = _collect(item, event, expected, buffer_id, name)
    numbers.collected.append(found)
    return found


def _collect(
    item: WorkItem, event: Event, expected: list[type[Event]], buffer_id: str, name: Number
) -> list[Event] | None:
    segment = item.segment
    if type(expected) is not list:
        expected = _as_list(expected)
    if not expected:
        if segment is not None:
            segment.collected(name, buffer_id, None, [])
        return []
    step = item.step
    buffer = step.buffers.get(buffer_id)
    if buffer is None:
        buffer = step.buffers[buffer_id] = Buffer()
    if not _same_expectation(buffer.expected, expected):
        _check(expected)
        buffer.expected = list(expected)
        buffer.needs = dict(Counter(expected))
        buffer.count = sum(min(len(buffer.have.get(cls, ())), need) for cls, need in buffer.needs.items())
    cls = type(event)
    held = buffer.have.get(cls)
    if len(held or ()) >= buffer.needs.get(cls, 0):
        if segment is not None:
            segment.collected(name, buffer_id, None, None)
        return None
    if held is None:
        held = buffer.have[cls] = deque()
    held.append(event)
    buffer.count += 1
    if segment is not None:
        buffer.causes.append(segment)
        buffer.keys.setdefault(cls, deque()).append([item.id, name])
    if buffer.count < len(expected):
        if segment is not None:
            segment.collected(name, buffer_id, event, None)
        return None
    found = [buffer.have[wanted].popleft() for wanted in expected]
    if segment is not None:
        segment.follows(buffer.causes)
        segment.collected(name, buffer_id, event, [buffer.keys[wanted].popleft() for wanted in expected])
    if any(buffer.have.values()):
        buffer.count, buffer.causes = 0, []
        buffer.expected = []
    else:
        del step.buffers[buffer_id]
    return found


def _same_expectation(known: list[type[Event]], given: list[type[Event]]) -> bool:
    """Tell whether two lists of expected types are equal. Long lists are compared by samples, to keep fan-in linear."""
    size = len(known)
    if size != len(given):
        return False
    if size <= _FEW:
        return known == given
    apart = size // _FEW + 1
    return known[-1] is given[-1] and known[::apart] == given[::apart]


def _as_list(expected: Any) -> list[type[Event]]:
    if not isinstance(expected, Iterable):
        raise TypeError(f"collect_events() expects a list of Event classes; got {expected!r}")
    return list(cast("Iterable[type[Event]]", expected))


def _check(expected: Sequence[object]) -> None:
    for one in expected:
        if not isinstance(one, type):
            raise TypeError(f"collect_events() expects a list of Event classes; got {one!r} in it")

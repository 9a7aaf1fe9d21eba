"""``ctx.collect_events``: puts events aside until a set is full, once for each delivery."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

from batonflow.workflow_core.engine.state import Buffer, Number, WorkItem
from batonflow.workflow_core.events import Event

__all__ = ["collect"]

_FEW = 1000
"""Up to this many expected types lists are compared whole; beyond it, by length and that many samples."""


def collect(item: WorkItem, event: Event, expected: list[type[Event]], buffer_id: str) -> list[Event] | None:
    """Put an event aside until one of each expected type is there; the same again on a repeated attempt.

    A full set leaves the buffer at once and stays with the delivery until it ends, so a retry finds it again.
    """
    numbers = item.done().here()
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
    """Tell whether two lists of expected types mean the same; long ones by samples, or fan-in would be quadratic."""
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

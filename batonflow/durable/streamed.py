"""Streamed events in records: pieces are joined, secrets removed, or events left out.

Runs do not need streamed events to continue, except questions to people; they are for readers. Undelivered events and
values of the state, which a run needs, are written unchanged; see ``Codec``.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from batonflow.instrumentation.redaction import redacted
from batonflow.workflow_core.engine.state import Number
from batonflow.workflow_core.events import Event, InputRequiredEvent

__all__ = ["Streamed", "after_pieces", "streamed_as_data", "without_secrets"]

Streamed = tuple[Number, Event, int, float]
"""Number in the attempt, event, place in the stream, time."""


def streamed_as_data(
    streamed: list[Streamed], write: Callable[[Event], Any], *, kept: bool
) -> Iterator[tuple[Number, Any, Any]]:
    """Return streamed events for records: number, data (None if it is left out), place and time.

    Joined events also have the place of the last piece, and the ``sizes`` of the pieces if they are known.

    Args:
        streamed: The events, in order.
        write: Returns the data of an event.
        kept: Whether to record them for readers of the store.
    """
    for number, event, *place in _coalesced(streamed):
        if isinstance(event, InputRequiredEvent):
            yield number, write(event), *place
        else:
            yield number, without_secrets(write(event)) if kept else None, *place


def without_secrets(data: Any) -> Any:
    """Return the data of an event with secrets replaced; data in other forms than JSON do not change."""
    if not isinstance(data, list):
        return data
    name, values, *marked = cast("list[Any]", data)
    return [name, redacted(values), *marked]


def _coalesced(streamed: list[Streamed]) -> Iterator[tuple[Any, ...]]:
    """Return streamed events with joined pieces of answers; each entry covers all numbers up to its last."""
    pieces: list[Streamed] = []
    for entry in streamed:
        if pieces and type(entry[1]) is not type(pieces[0][1]):
            yield _whole(pieces)
            pieces = []
        if hasattr(entry[1], "joined"):
            pieces.append(entry)
        else:
            yield entry
    if pieces:
        yield _whole(pieces)


def _whole(pieces: list[Streamed]) -> tuple[Any, ...]:
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return first
    joined: Any = type(first[1])
    whole = last[0], joined.joined([event for _, event, _, _ in pieces]), first[2], first[3], last[2]
    return (*whole, _sizes(pieces)) if hasattr(joined, "sizes") else whole


def _sizes(pieces: list[Streamed]) -> list[int]:
    """Return, in one list, the distance of each piece from the first and its text's length."""
    numbers: list[int] = []
    for _, event, seq, _ in pieces:
        piece: Any = event
        numbers += (seq - pieces[0][2], *piece.sizes())
    return numbers


def after_pieces(event: Any, sizes: list[int] | None, distance: int) -> Any:
    """Return a joined event without the pieces that a reader already has.

    Args:
        event: The joined event.
        sizes: The recorded sizes of its pieces; None for an event that is not joined, which is returned unchanged.
        distance: The distance of the last known piece from the first one; less than 0 for a reader that has no piece.
    """
    if sizes is None or distance < 0 or not hasattr(event, "without"):
        return event
    kinds = len(event.sizes())
    said = [0] * kinds
    for begin in range(0, len(sizes), kinds + 1):
        if sizes[begin] > distance:
            break
        said = [total + more for total, more in zip(said, sizes[begin + 1 : begin + 1 + kinds], strict=True)]
    return event.without(*said)

"""Streamed events in records: pieces are joined, secrets removed, or events left out.

No run needs them to go on, but for questions to people; they are there for readers. What a run does need, events that
are on their way and values of the state, is kept as it is: see ``Codec`` for what is never written of those.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from batonflow.instrumentation.redaction import redacted
from batonflow.workflow_core.engine.state import Number
from batonflow.workflow_core.events import Event, InputRequiredEvent

__all__ = ["Streamed", "said_up_to", "streamed_as_data", "without_secrets"]

Streamed = tuple[Number, Event, int, float]
"""Number in the attempt, event, place in the stream, time."""


def streamed_as_data(
    streamed: list[Streamed], write: Callable[[Event], Any], *, kept: bool
) -> Iterator[tuple[Number, Any, Any]]:
    """Streamed events as records have them: number, data (None when it is left out), place and time.

    Those that are put together of pieces have the place of the last one too, and ``sizes`` of the pieces if they know.

    Args:
        streamed: In order.
        write: Makes data of an event.
        kept: Whether readers of the store are to have them.
    """
    for number, event, *place in _coalesced(streamed):
        if isinstance(event, InputRequiredEvent):
            yield number, write(event), *place
        else:
            yield number, without_secrets(write(event)) if kept else None, *place


def without_secrets(data: Any) -> Any:
    """Return an event as data with secrets replaced; a form other than JSON stays as it is."""
    if not isinstance(data, list):
        return data
    name, values, *marked = cast("list[Any]", data)
    return [name, redacted(values), *marked]


def _coalesced(streamed: list[Streamed]) -> Iterator[tuple[Any, ...]]:
    """Return streamed events with the pieces of an answer joined: each entry covers all numbers to its last."""
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
    """Of each piece, how far behind the first one it stood and how much it said, one behind the other."""
    numbers: list[int] = []
    for _, event, seq, _ in pieces:
        piece: Any = event
        numbers += (seq - pieces[0][2], *piece.sizes())
    return numbers


def said_up_to(sizes: list[int], distance: int, kinds: int) -> list[int]:
    """Return the length of the text in the pieces up to one.

    Args:
        sizes: Of the pieces, as recorded.
        distance: Of the place up to which it is wanted from that of the first piece.
        kinds: How many numbers tell how much a piece said.
    """
    said = [0] * kinds
    for begin in range(0, len(sizes), kinds + 1):
        if sizes[begin] > distance:
            break
        said = [total + more for total, more in zip(said, sizes[begin + 1 : begin + 1 + kinds], strict=True)]
    return said

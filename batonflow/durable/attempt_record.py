"""Records of attempts: stretches of a step's attempt that become durable as one piece.

A stretch reaches from the start of the attempt, or its last suspension, to its end or next suspension. A record keeps
the uncommitted records that it builds upon, and is committed after them.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Any, cast

from pydantic_core import PydanticSerializationError

from batonflow.values.serializers import as_json as json_text
from batonflow.values.serializers import read_json
from batonflow.workflow_core.engine.state import Causes, Number
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event

__all__ = [
    "AttemptRecord", "amends", "as_json", "check_name", "lowest_place", "read_again", "whole_writes",
]  # fmt: skip


class AttemptRecord:
    """The record of a part of an attempt, or of another change of a run.

    Attributes:
        id: The number of the record, unique in the tree of workflows and over restarts.
        kind: ``"segment"`` for a part of an attempt; ``"started"``, ``"input"``, ``"answered"``, ``"dropped"``,
            ``"edited"``, ``"restored"`` or ``"ended"`` for another change.
        path: The place of the workflow in the tree; empty for the run itself, ``order_station#2`` for a child run.
        step: The step.
        item: The number of the delivery within its workflow run.
        attempt: The number of the attempt, from 0.
        began: The time of its start, in wall-clock seconds.
        consumed: The event that started the attempt; None for the later records of an attempt.
        causes: The causes of the consumed events.
        writes: (number, path, value) of each change of the state, in order. The number is (key, number) inside
            ``ctx.once``, also in ``sends`` and ``streamed``.
        sends: (number, event, target step) of each sent event.
        streamed: (number, event, place in the stream, time) of each event written to the stream.
        collects: (number, buffer, event or None, found events) of each ``collect_events``.
        gave_up: The keys of waits that the step gave up.
        calls: The calls of models that have ended.
        handed: The names of values of the state that the step got and may have changed in place.
        outcome: The end of the stretch, and its value.
        data: The complete record as data; None before.
    """

    __slots__ = (
        "_body", "after", "attempt", "began", "calls", "causes", "closed", "collects", "committed", "consumed", "data",
        "gave_up", "handed", "held_up", "id", "item", "kind", "number", "outcome", "path", "sends", "step",
        "streamed", "waits_for", "writes", "written_at",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        kind: str,
        path: str,
        step: str,
        item: int = 0,
        attempt: int = 0,
        consumed: Event | None = None,
        causes: Causes = (),
        began: float = 0.0,
    ) -> None:
        self.id = number
        self.began = began
        self.kind = kind
        self.path = path
        self.step = step
        self.item = item
        self.attempt = attempt
        self.consumed = consumed
        self.causes = causes
        # The place in the order of closing.
        self.number = 0
        self.writes: list[tuple[Number, str, Any]] = []
        # The places of the writes in the order of all writes.
        self.written_at: list[int] = []
        self.sends: list[tuple[Number, Event, str | None]] = []
        self.streamed: list[tuple[Number, Event, int, float]] = []
        self.collects: list[tuple[Number, str, Event | None, list[Any] | None]] | None = None
        self.handed: set[str] | None = None
        self.gave_up: list[str] | None = None
        self.calls: list[Any] | None = None
        self.outcome: tuple[str, Any] = ("open", None)
        self.data: dict[str, Any] | None = None
        self._body: bytes | None = None
        self.closed = False
        self.committed = False
        self.after: list[AttemptRecord] = (
            [cast("AttemptRecord", cause) for cause, _ in causes if not cause.committed] if causes else []
        )
        # The records that wait for this one, and the open record that this one waits for.
        self.held_up: list[AttemptRecord] = []
        self.waits_for: AttemptRecord | None = None

    def hold_up(self, other: "AttemptRecord") -> None:
        """Let a record that builds upon this open one wait for it."""
        self.held_up.append(other)
        other.waits_for = self

    @property
    def is_clean(self) -> bool:
        """Tell whether the record has no effects so far that others could see."""
        return not (self.writes or self.sends or self.streamed or self.collects or self.gave_up)

    @property
    def place(self) -> int | None:
        """The place in the stream of the record's first event."""
        if self.streamed:
            return self.streamed[0][2]
        published: list[list[Any]] = (self.data or {}).get("published", [])
        return published[0][0] if published else None

    def collected(self, number: Number, buffer: str, event: Event | None, found: list[Any] | None) -> None:
        """Note the result of ``collect_events``: the event that was put aside, and the complete set, if any.

        Raises:
            StoreError: The name of the buffer cannot be written.
        """
        check_name(buffer)
        if self.collects is None:
            self.collects = []
        self.collects.append((number, buffer, event, found))

    @property
    def is_frozen(self) -> bool:
        """Tell whether ``body`` was computed."""
        return self._body is not None

    def body(self) -> bytes:
        """The record as JSON at the time of the first access."""
        if self._body is None:
            self._body = as_json(self.data)
        return self._body

    def follows(self, causes: Iterable[Any]) -> None:
        """Commit this record together with, or after, the records of ``causes``."""
        self.after.extend(cause for cause in causes if cause is not self and not cause.committed)

    def group(self) -> "list[AttemptRecord] | AttemptRecord":
        """All records to commit with this one, in order. If one of them is still open, the result is that record."""
        found: dict[int, AttemptRecord] = {}
        stack: list[AttemptRecord] = [self]
        while stack:
            segment = stack.pop()
            if segment.committed or id(segment) in found:
                continue
            if not segment.closed:
                return segment
            if segment.waits_for is not None and not segment.waits_for.closed:
                return segment.waits_for
            found[id(segment)] = segment
            stack.extend(segment.after)
        return [self] if len(found) == 1 else _in_order(found)


def _in_order(found: dict[int, AttemptRecord]) -> list[AttemptRecord]:
    """Order records: dependencies first; among records that depend on each other, the earlier one first.

    The algorithm of R. Tarjan (Depth-first search and linear graph algorithms, 1972): a cycle is complete when the
    search returns to its first record, and its dependencies were complete before.
    """
    order: list[AttemptRecord] = []
    done: set[int] = set()
    # The position of a record on the path, and the earliest position of the records that it builds upon.
    path: list[AttemptRecord] = []
    at: dict[int, int] = {}
    back_to: dict[int, int] = {}
    for first in sorted(found.values(), key=attrgetter("number")):
        walk = [(first, iter(first.after))] if id(first) not in done else []
        while walk:
            segment, others = walk[-1]
            here = id(segment)
            if here not in at:
                at[here] = back_to[here] = len(path)
                path.append(segment)
            further = None
            for other in others:
                if id(other) in done or id(other) not in found:
                    continue
                if id(other) not in at:
                    further = other
                    break
                back_to[here] = min(back_to[here], at[id(other)])
            if further is not None:
                walk.append((further, iter(further.after)))
                continue
            walk.pop()
            if back_to[here] == at[here]:
                order += (circle := sorted(path[at[here] :], key=attrgetter("id")))
                done.update(map(id, circle))
                del path[at[here] :]
            else:
                around = id(walk[-1][0])
                back_to[around] = min(back_to[around], back_to[here])
    return order


def lowest_place(still_open: "Iterable[AttemptRecord]") -> int | None:
    """Return the first place in the stream of uncommitted records."""
    uncommitted = (one for each in still_open for one in (each, *each.held_up) if not one.committed)
    return min((place for one in uncommitted if (place := one.place) is not None), default=None)


def as_json(data: Any) -> bytes:
    """Return records as JSON.

    Raises:
        StoreError: A value in them cannot be written.
    """
    try:
        return json_text(data)
    except (PydanticSerializationError, RecursionError) as error:
        raise StoreError(
            f"The work of the run cannot be recorded: {error}; keep such data out of events and state"
        ) from error


def read_again(data: Any) -> Any:
    """Return records as they are read from a store.

    Raises:
        StoreError: A value in them cannot be written.
    """
    return read_json(as_json(data))


def check_name(name: str) -> None:
    """Refuse a name that cannot be written.

    Raises:
        StoreError: The name contains a lone surrogate.
    """
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"{name!r} cannot name anything in a run that is kept: there is half a character in it, as in names of "
                "files that are not UTF-8. Name it by something else"
            ) from None


def whole_writes(writes: list[tuple[Any, str, Any]]) -> list[tuple[str, int]]:
    """Return the keys whose last write replaces the whole value, with the place of that write."""
    last = {path.partition(".")[0]: place for place, (_, path, _) in enumerate(writes)}
    return [(key, place) for key, place in last.items() if writes[place][1] == key]


def amends(group: list[AttemptRecord], numbers: Iterator[int]) -> Iterator[AttemptRecord]:
    """Repeat the alternating writes of a group's records to the same keys, in the order of the writes."""
    last: dict[tuple[str, str], int] = {}
    by_turns: set[tuple[str, str]] = set()
    for member in group:
        written: list[tuple[Any, str, Any]] = (member.data or {}).get("writes", []) if member.written_at else []
        for at, (_, path, _) in zip(member.written_at, written, strict=True):
            key = member.path, path.partition(".")[0]
            if at < last.get(key, 0):
                by_turns.add(key)
            last[key] = max(at, last.get(key, 0))
    for where in sorted({where for where, _ in by_turns}):
        writes = [
            (at, path, value)
            for member in group
            if member.written_at and member.path == where
            for at, (_, path, value) in zip(member.written_at, read_json(member.body())["writes"], strict=True)
            if (where, path.partition(".")[0]) in by_turns
        ]
        amended = AttemptRecord(next(numbers), "edited", where, "")
        amended.closed = amended.committed = True
        amended.data = {"kind": "edited", "id": amended.id, "path": where}
        amended.data["writes"] = [[0, path, value] for _, path, value in sorted(writes, key=itemgetter(0))]
        yield amended

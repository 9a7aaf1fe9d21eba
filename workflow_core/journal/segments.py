"""A segment: the stretch of a step's attempt that becomes durable as one piece.

It reaches from the start of the attempt, or its last suspension, to its end or next suspension. What was used from
segments that are not yet committed is remembered, so that none is committed before what it built upon.
"""

from typing import Any

from batonflow.workflow_core.engine.progress import Number
from batonflow.workflow_core.events import Event

__all__ = ["Causes", "Segment"]


class Segment:
    """What one stretch of an attempt consumed and did, in order; or an event that came in, a record of its own.

    ``writes`` are (number, path, value), ``sends`` (number, event, target) and ``streamed`` (number, event); ``number``
    counts within the attempt, inside ``ctx.once`` within that call. ``outcome`` is a pair: what ended the segment, and
    with what.
    """

    __slots__ = (
        "after",
        "attempt",
        "closed",
        "committed",
        "consumed",
        "held_up",
        "item_id",
        "kind",
        "number",
        "outcome",
        "path",
        "sends",
        "step",
        "streamed",
        "writes",
    )

    def __init__(
        self, path: str, step: str, item_id: int, attempt: int, consumed: Event | None, causes: "Causes"
    ) -> None:
        self.kind = "segment"
        self.path = path
        self.step = step
        self.item_id = item_id
        self.attempt = attempt
        self.consumed = consumed
        self.number = 0
        self.writes: list[tuple[Number, str, Any]] = []
        self.sends: list[tuple[Number, Event, str | None]] = []
        self.streamed: list[tuple[Number, Event]] = []
        self.outcome: tuple[str, Any] = ("open", None)
        self.closed = False
        self.committed = False
        self.after: list[Segment] = [cause for cause in causes if not cause.committed]
        self.held_up: list[Segment] = []

    def follows(self, causes: "list[Segment] | Causes") -> None:
        """Be committed together with, or after, each of ``causes``."""
        self.after.extend(cause for cause in causes if cause is not self and not cause.committed)

    def group(self) -> "list[Segment] | Segment":
        """All that must be committed with this one, oldest first; or an open segment that it has to wait for."""
        found: dict[int, Segment] = {}
        stack: list[Segment] = [self]
        while stack:
            segment = stack.pop()
            if segment.committed or id(segment) in found:
                continue
            if not segment.closed:
                return segment
            found[id(segment)] = segment
            stack.extend(segment.after)
        return sorted(found.values(), key=lambda segment: segment.number)


Causes = tuple[Segment, ...]
"""The segments that an event depends on; empty when no journal listens."""

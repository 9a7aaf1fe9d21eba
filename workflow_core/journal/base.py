"""What a run writes down: one record for each committed segment, offered to a journal in transactions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from batonflow.workflow_core.engine.progress import Number
from batonflow.workflow_core.events import Event

__all__ = ["Journal", "Record"]


@dataclass(slots=True)
class Record:
    """One durable piece of a run's history.

    Attributes:
        kind: ``"started"``, ``"input"`` (an event from outside), ``"segment"`` or ``"ended"``.
        run_id: The run.
        path: Which workflow of the tree; empty for the run itself, ``order_station#2`` for a child.
        step: The step of a segment.
        item: Number of the delivery within its workflow run.
        attempt: Which attempt of the delivery, from 0.
        consumed: The event that started the attempt; None for the later segments of an attempt.
        writes: (number, path, value) of each change of the state, in order; the number is (key, number) inside
            ``ctx.once``, there and in the next two.
        sends: (number, event, target step) of each sent event.
        streamed: (number, event) of each event written to the stream.
        outcome: What ended the segment: ``("returned", event or list or None)``, ``("waiting", waiter id)``,
            ``("once", (key, value))``, ``("failed", exception)``.
    """

    kind: str
    run_id: str
    path: str = ""
    step: str = ""
    item: int = 0
    attempt: int = 0
    consumed: Event | None = None
    writes: list[tuple[Number, str, Any]] = field(default_factory=list[tuple[Number, str, Any]])
    sends: list[tuple[Number, Event, str | None]] = field(default_factory=list[tuple[Number, Event, str | None]])
    streamed: list[tuple[Number, Event]] = field(default_factory=list[tuple[Number, Event]])
    outcome: tuple[str, Any] = ("", None)


class Journal(Protocol):
    """Where the records of runs go. Called on the loop of the run, so it must not block."""

    def commit(self, records: Sequence[Record]) -> None:
        """Take records that belong together: all become durable, or none. Values must be read before returning."""
        ...

"""Keeps the segments of a run and hands each to the journal, never before what it built upon.

A run without a journal has no recorder; the price is then one truth test at each place that would tell it something.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.journal.base import Journal, Record
from batonflow.workflow_core.journal.segments import Causes, Segment

__all__ = ["Recorder"]


class Recorder:
    """Turns what a run does into records.

    Args:
        journal: Takes the records.
        run_id: The run at the root of the tree.
        path: Which workflow of the tree this is.
        numbers: Numbers what is closed in the whole tree; a new row of its own at the root.
    """

    def __init__(self, journal: Journal, run_id: str, path: str, numbers: Iterator[int] | None = None) -> None:
        self._journal = journal
        self._run_id = run_id
        self._path = path
        self._numbers = numbers or count(1)
        self._start: Causes = ()
        self._writers: dict[str, Segment] = {}

    def for_child(self, path: str) -> "Recorder":
        """The recorder of a workflow inside this one."""
        return Recorder(self._journal, self._run_id, path, self._numbers)

    def started(self, event: Event, target: str | None, causes: Causes) -> Causes:
        """The run begins with an event, perhaps one that another workflow of the tree made.

        Returns:
            What depends on the event must wait for these.
        """
        self._start = self._came("started", event, target, causes)
        return self._start

    def received(self, event: Event, target: str | None, causes: Causes) -> Causes:
        """An event came from outside, or from another workflow of the tree; returns what its use must wait for."""
        return self._came("input", event, target, causes)

    def ended(self, event: Event) -> None:
        """The run is over."""
        self._put("ended", "", None, self._start, ("returned", event))

    def _came(self, kind: str, event: Event, target: str | None, causes: Causes) -> Causes:
        segment = self._put(kind, target or "", event, causes, ("", None))
        return () if segment.committed else (segment,)

    def _put(self, kind: str, step: str, consumed: Event | None, causes: Causes, outcome: tuple[str, Any]) -> Segment:
        """A record that is complete at once; it too is committed no earlier than what it built upon."""
        segment = Segment(self._path, step, 0, 0, consumed, causes)
        segment.kind = kind
        self._finish(segment, outcome)
        return segment

    def open(self, item: WorkItem, consumed: Event | None) -> None:
        """An attempt begins, or goes on after a suspension."""
        attempt = item.failures.count if item.failures is not None else 0
        item.segment = Segment(self._path, item.spec.name, item.id, attempt, consumed, item.causes)

    def close(self, item: WorkItem, kind: str, value: Any) -> None:
        """The open segment of an attempt ends; it is committed at once unless it has to wait for another."""
        segment = item.segment
        if segment is not None and not segment.closed:
            self._finish(segment, (kind, value))

    def _finish(self, segment: Segment, outcome: tuple[str, Any]) -> None:
        segment.number = next(self._numbers)
        segment.outcome = outcome
        segment.closed = True
        self._settle(segment)

    def read(self, item: WorkItem, key: str | None) -> None:
        """A step looked at a key of the state, or at all of it."""
        segment = item.segment
        if segment is None:
            return
        if key is not None:
            writer = self._writers.get(key)
            if writer is not None:
                segment.follows((writer,))
        else:
            segment.follows(list(self._writers.values()))

    def wrote(self, item: WorkItem, path: str, value: Any) -> None:
        """A step changed a key of the state."""
        segment = item.segment
        if segment is None:
            return
        key = path.partition(".")[0]
        self.read(item, key)
        self._writers[key] = segment
        numbers = item.done().here()
        segment.writes.append((numbers.named(numbers.writes), path, value))

    def _settle(self, segment: Segment) -> None:
        group = segment.group() if segment.after else [segment]
        if isinstance(group, Segment):
            group.held_up.append(segment)
            return
        self._journal.commit([self._record(member) for member in group])
        held_up: list[Segment] = []
        for member in group:
            member.committed = True
            if member.held_up:
                held_up += member.held_up
            # Cut the chain of segments, or it would reach back to the first one.
            member.after, member.held_up = [], []
        if self._writers:
            self._writers = {key: writer for key, writer in self._writers.items() if not writer.committed}
        for other in held_up:
            if not other.committed:
                self._settle(other)

    def _record(self, segment: Segment) -> Record:
        return Record(
            kind=segment.kind,
            run_id=self._run_id,
            path=segment.path,
            step=segment.step,
            item=segment.item_id,
            attempt=segment.attempt,
            consumed=segment.consumed,
            writes=segment.writes,
            sends=segment.sends,
            streamed=segment.streamed,
            outcome=segment.outcome,
        )

"""Logs of parts in memory. A log is gone as soon as no run, no session and no other log refers to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from weakref import WeakValueDictionary

from batonflow.durable.store_protocol import NewRun, PartsGoneError
from batonflow.workflow_core.errors import StoreError

__all__ = ["PartLog", "PartLogs"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class PartLog:
    """A log of parts.

    Attributes:
        number: The number of the log.
        parent: The log that it continues.
        begins: The number of its first part of its own.
        bodies: Its parts.
        writer: The run that may add parts.
    """

    number: int
    parent: "PartLog | None" = None
    begins: int = 0
    bodies: list[bytes] = field(default_factory=list[bytes])
    writer: str = ""

    @property
    def length(self) -> int:
        """The number of parts, with those of its parents."""
        return self.begins + len(self.bodies)

    @property
    def first(self) -> "PartLog":
        """The log that begins the conversation."""
        log = self
        while log.parent is not None:
            log = log.parent
        return log

    def parts(self) -> list[bytes]:
        """Return the parts, with those of its parents."""
        line: list[tuple[PartLog, int | None]] = [(self, None)]
        while (parent := line[-1][0].parent) is not None:
            log, last = line[-1]
            line.append((parent, log.begins if last is None else min(log.begins, last)))
        parts: list[bytes] = []
        for log, last in reversed(line):
            parts += log.bodies if last is None else log.bodies[: max(0, last - log.begins)]
        return parts

    def add(self, first: int, bodies: Sequence[bytes]) -> None:
        """Add parts from a number on, as far as they are new.

        Raises:
            StoreError: Parts before them are missing.
        """
        if first > self.length:
            raise StoreError(f"Part {first} of a conversation was written before part {self.length}")
        self.bodies += bodies[self.length - first :]


class PartLogs:
    """The logs of a store."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._logs: WeakValueDictionary[int, PartLog] = WeakValueDictionary()

    def for_run(self, run: NewRun, is_writing: Callable[[str], bool]) -> PartLog:
        """Return the log of a new run.

        Args:
            run: The run.
            is_writing: Tells whether a run may still add parts.

        Raises:
            PartsGoneError: The log that the run continues was deleted.
        """
        log = self._continued(run, is_writing)
        log.writer = run.run_id
        log.add(log.length, run.parts)
        return log

    def _continued(self, run: NewRun, is_writing: Callable[[str], bool]) -> PartLog:
        if run.continues is None:
            return self.new()
        number, length = run.continues
        known = self._logs.get(number)
        if known is None or known.length < length:
            raise PartsGoneError(f"The parts that run {run.run_id!r} continues were deleted")
        return known if known.length == length and not is_writing(known.writer) else self.new(known, length)

    def find(self, number: int) -> PartLog | None:
        """Return the log with a number; None if it is gone."""
        return self._logs.get(number)

    def new(self, parent: PartLog | None = None, begins: int = 0) -> PartLog:
        """Return a new log."""
        log = PartLog(next(self._numbers), parent, begins)
        self._logs[log.number] = log
        return log

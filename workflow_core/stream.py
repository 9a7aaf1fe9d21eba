"""The stream of a run: what steps streamed, kept for late readers, and the engine's own notes in a bounded ring."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import (
    Event,
    InternalDispatchEvent,
    InternalEventsMissedEvent,
    StepState,
    StepStateChanged,
    UnhandledEvent,
    WorkflowIdleEvent,
    WorkflowStalledEvent,
)

__all__ = ["Note", "StreamItem", "StreamLog", "StreamReader"]

ANOTHER_LOOP = "belongs to another event loop: await and stream its handler on the loop where run() was called"
"""What is wrong when a run is used on a loop that is not its own; the subject of the sentence stands before it."""

RING = 10_000
"""How many internal notes are kept for readers that ask late."""

Note = tuple[int, float, str, str, int | str, Any, Any]
"""seq, ts, what, step, worker, input, output; cheap to make, turned into an event only when read."""

Entry = tuple[int, float, str, str, int, Event]
"""A streamed event with its origin, in the order of ``StreamItem``'s fields."""

_STEP_STATES = {state.value: state for state in StepState}


class StreamItem(NamedTuple):
    """One event of a run with where it comes from.

    Attributes:
        seq: Position in the stream; grows, with gaps.
        ts: Wall-clock seconds when it was written.
        step: The step that wrote it, empty for the engine.
        path: Which workflow of the tree, empty for the run itself.
        cause: Number of the delivery that wrote it, 0 for the engine.
        event: The event.
    """

    seq: int
    ts: float
    step: str
    path: str
    cause: int
    event: Event


def _as_event(note: Note) -> InternalDispatchEvent:
    _, _, what, name, worker, received, returned = note
    if what in _STEP_STATES:
        return StepStateChanged(
            name=name,
            step_state=_STEP_STATES[what],
            worker_id=str(worker),
            input_event_name=str(received) if what == "not_running" else received.__name__,
            output_event_name=None if returned is None else str(returned),
        )
    if what == "unhandled":
        return UnhandledEvent(event_type=name, qualified_name=received, step_name=returned, idle=worker == "idle")
    if what == "stalled":
        return WorkflowStalledEvent(waiting_on=received.split("\n") if received else [])
    return WorkflowIdleEvent()


class StreamLog:
    """Everything a run has streamed so far, and the futures of those who wait for more.

    Args:
        loop: The event loop of the run.
    """

    __slots__ = ("_loop", "_sleepers", "ended", "items", "notes", "notes_lost", "seq")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.seq = 0
        self.items: list[Entry] = []
        self.notes: list[Note] | deque[Note] = []
        self.notes_lost = 0
        self.ended = False
        self._sleepers: list[asyncio.Future[None]] = []

    def publish(self, event: Event, ts: float, step: str, path: str, cause: int) -> None:
        """Append an event; the last one of a run is its StopEvent."""
        self.items.append((self.seq, ts, step, path, cause, event))
        self.seq += 1
        if self._sleepers:
            self._wake()

    def note(self, ts: float, what: str, name: str, worker: int | str, received: Any, returned: Any) -> None:
        """Append something the engine says about itself: for a step's state, the types that came in and went out."""
        if len(self.notes) == RING:
            if isinstance(self.notes, list):
                self.notes = deque(self.notes, maxlen=RING)
            self.notes_lost += 1
        self.notes.append((self.seq, ts, what, name, worker, received, returned))
        self.seq += 1
        if self._sleepers:
            self._wake()

    def last_unhandled(self) -> str:
        """Class name of the last event that nobody took, as far as notes are kept; empty when there was none."""
        return next((note[3] for note in reversed(self.notes) if note[2] == "unhandled"), "")

    def end(self) -> None:
        """Nothing will follow."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def more(self) -> None:
        """Wait until something is appended.

        Raises:
            WorkflowRuntimeError: Another event loop than that of the run is running here.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WorkflowRuntimeError(f"The run {ANOTHER_LOOP}; other loops can only read what is streamed already")
        sleeper: asyncio.Future[None] = self._loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper


class StreamReader(AsyncIterator[StreamItem]):
    """A position in a stream, for one reader; each has its own.

    Args:
        log: The stream.
        after: Begin behind this ``seq``.
        internal: Also read the engine's notes; when some are lost already, an event says how many.
    """

    def __init__(self, log: StreamLog, after: int = -1, *, internal: bool = False) -> None:
        self._log = log
        self._internal = internal
        self._next_item = 0
        while self._next_item < len(log.items) and log.items[self._next_item][0] <= after:
            self._next_item += 1
        self._next_note = 0
        self._after = after
        self.finished = False

    def __aiter__(self) -> "StreamReader":
        return self

    async def __anext__(self) -> StreamItem:
        # The position asked for may lie ahead of what is streamed so far.
        while (entry := await self.next_entry())[0] <= self._after:
            pass
        return StreamItem(*entry)

    async def next_entry(self) -> Entry:
        """The next streamed event as it was kept; raises StopAsyncIteration at the end."""
        while True:
            entry = self.take()
            if entry is not None:
                return entry
            if self._log.ended:
                self.finished = True
                raise StopAsyncIteration
            await self._log.more()

    def take(self) -> Entry | None:
        """The next event if there is one already."""
        if self._internal and (note := self._take_note()) is not None:
            return note
        items = self._log.items
        position = self._next_item
        if position < len(items):
            self._next_item = position + 1
            return items[position]
        return None

    def _take_note(self) -> Entry | None:
        """The next note, when it stands before the next streamed event."""
        log = self._log
        lost = log.notes_lost - self._next_note
        if lost > 0:
            self._next_note = log.notes_lost
            first = log.notes[0][0]
            return first, log.notes[0][1], "", "", 0, InternalEventsMissedEvent(count=lost)
        while self._next_note - log.notes_lost < len(log.notes):
            note = log.notes[self._next_note - log.notes_lost]
            if self._next_item < len(log.items) and log.items[self._next_item][0] < note[0]:
                return None
            self._next_note += 1
            if note[0] > self._after:
                return note[0], note[1], note[3], "", 0, _as_event(note)
        return None

"""The stream of a run: streamed events, kept for late readers, and a bounded ring of internal notes."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, cast
from weakref import WeakSet

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

__all__ = ["EventIterator", "Note", "StreamItem", "StreamLog", "StreamReader"]

ANOTHER_LOOP = "belongs to another event loop: await and stream its handler on the loop where run() was called"
"""The error of using a run on another loop; the subject of the sentence stands before it."""

RING = 10_000
"""The number of internal notes that are kept for late readers."""

Note = tuple[int, float, str, str, int | str, Any, Any]
"""seq, ts, kind, step, worker, input, output; turned into an event only when read."""

_NOTE_SIZE = 7
_FULL = 2 * RING * _NOTE_SIZE

NEVER = sys.maxsize
"""A number that no event has."""

Origin = tuple[str, str, int]
"""The origin of a streamed event: step, path, number of the delivery."""

Entry = tuple[int, float, str, str, int, Event]
"""A streamed event with its origin, in the order of ``StreamItem``'s fields."""

_STEP_STATES = {state.value: state for state in StepState}


class StreamItem(NamedTuple):
    """A streamed event with its origin.

    Attributes:
        seq: The position in the stream; it grows, with gaps.
        ts: The time of writing, in wall-clock seconds.
        step: The step that wrote it; empty for the engine.
        path: The place of the workflow in the tree; empty for the run itself.
        cause: The number of the delivery that wrote it; 0 for the engine.
        event: The event.
    """

    seq: int
    ts: float
    step: str
    path: str
    cause: int
    event: Event


def _nothing() -> None: ...


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
    """The events of a stream so far, and the futures of waiting readers."""

    __slots__ = (
        "_dropped", "_loop", "_notes", "_sleepers", "begins", "ended", "events", "followers", "mark", "on_abandon",
        "on_mark", "origins", "readers", "reserved", "seq", "seqs", "times",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # For a resumed run, earlier events are only in the store.
        self.begins = self.seq = 0
        # An int is the number of a piece of text: its origin makes the event of it for each reader.
        self.events: list[Event] = []
        self.seqs: list[int] = []
        self.times: list[float] = []
        self.origins: list[Any] = []
        # The fields of the newest notes in one list; a tuple for each would double the garbage collector's work.
        self._notes: list[Any] = []
        self._dropped = 0
        self.ended = False
        # Callers that await the run or its next event; the hook is called if the last of them is cancelled.
        self.followers = 0
        self.on_abandon: Callable[[], None] | None = None
        self.readers: WeakSet[StreamReader] | None = None
        self._sleepers: list[asyncio.Future[None]] | None = None
        # Events from ``reserved`` on are held until the store has their numbers; more are reserved at ``mark``.
        self.reserved = self.mark = NEVER
        self.on_mark: Callable[[], None] = _nothing

    def publish(self, event: Event, ts: float, origin: Origin) -> None:
        """Append an event; the last event of a run is its StopEvent."""
        # Columns with shared origins; a tuple for each event would double the work of the garbage collector.
        self.events.append(event)
        self.seqs.append(self.seq)
        self.times.append(ts)
        self.origins.append(origin)
        self.seq = seq = self.seq + 1
        if seq >= self.mark:
            self.on_mark()
        if self._sleepers:
            self.wake()

    def go_on_at(self, seq: int) -> int | None:
        """Set the number of the next event of a resumed run.

        Returns:
            The last number that readers in this process know; None if nothing was streamed here.
        """
        known_to, self.seq = self.seq - 1, max(self.seq, seq)
        if self.events:
            return known_to
        self.begins = self.seq
        return None

    def reserve(self, reserved: int, *, mark: int) -> None:
        """Release events with numbers below ``reserved``; reserve more at ``mark``."""
        self.reserved, self.mark = reserved, mark
        if self.seq >= mark:
            self.on_mark()
        self.wake()

    def note(self, ts: float, what: str, name: str, worker: int | str, received: Any, returned: Any) -> None:
        """Append an internal note; for the state of a step, with the types of its input and output."""
        notes, seq = self._notes, self.seq
        notes += (seq, ts, what, name, worker, received, returned)
        self.seq = seq = seq + 1
        if seq >= self.mark:
            self.on_mark()
        if len(notes) == _FULL:
            del notes[: RING * _NOTE_SIZE]
            self._dropped += RING
        if self._sleepers:
            self.wake()

    @property
    def notes_made(self) -> int:
        """The number of notes so far."""
        return self._dropped + len(self._notes) // _NOTE_SIZE

    @property
    def notes_lost(self) -> int:
        """The number of dropped notes."""
        return max(0, self.notes_made - RING)

    def note_at(self, number: int) -> Note:
        """Return a kept note; the numbers start with 0."""
        begin = (number - self._dropped) * _NOTE_SIZE
        return cast("Note", tuple(self._notes[begin : begin + _NOTE_SIZE]))

    def last_unhandled(self) -> str:
        """Return the class name of the last unhandled event among the kept notes; empty without one."""
        kept = map(self.note_at, reversed(range(self.notes_lost, self.notes_made)))
        return next((note[3] for note in kept if note[2] == "unhandled"), "")

    def end(self, *, is_recorded: bool = True) -> None:
        """End the stream; events that are not recorded stay hidden."""
        self.ended, self.mark, self.on_mark = True, NEVER, _nothing
        if is_recorded:
            self.reserved = NEVER
        self.wake()

    def wake(self) -> None:
        """Let waiting readers look again."""
        sleepers, self._sleepers = self._sleepers, None
        for sleeper in sleepers or ():
            if not sleeper.done():
                sleeper.set_result(None)

    async def follow(self, awaited: Awaitable[Any], by: "StreamReader | None" = None) -> None:
        """Await the run or its next event for a caller, or for a reader of the stream."""
        self.followers += 1
        try:
            await awaited
        except asyncio.CancelledError:
            others = any(one is not by and one.follows and not one.finished for one in self.readers or ())
            if self.followers == 1 and not others and self.on_abandon is not None:
                self.on_abandon()
            raise
        finally:
            self.followers -= 1

    def more(self) -> "asyncio.Future[None]":
        """Return a future that is set when an entry is appended.

        Raises:
            WorkflowRuntimeError: The running event loop is not that of the run.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WorkflowRuntimeError(
                f"The run {ANOTHER_LOOP}; other loops can only read events that are already streamed"
            )
        sleeper: asyncio.Future[None] = self._loop.create_future()
        if self._sleepers is None:
            self._sleepers = []
        self._sleepers.append(sleeper)
        return sleeper


class StreamReader(AsyncIterator[StreamItem]):
    """The position of one reader in a stream.

    Args:
        log: The stream.
        after: Start after this ``seq``.
        internal: Include internal notes; an event reports the number of dropped ones.
        earlier: Loads the stored events before the log, after a ``seq``; they are read first.
    """

    def __init__(
        self,
        log: StreamLog,
        after: int = -1,
        *,
        internal: bool = False,
        earlier: Callable[[int], Awaitable[list[Entry]]] | None = None,
    ) -> None:
        self.log = log
        self._earlier = earlier
        self._stored: deque[Entry] | None = None
        self.internal = internal
        self.position = 0
        while self.position < len(log.seqs) and log.seqs[self.position] <= after:
            self.position += 1
        self._next_note, self._after = 0, after
        self._sleeper: asyncio.Future[None] | None = None
        self.finished = False
        self.follows = True  # whether the cancelled task of this reader abandons the run
        if log.on_abandon is not None:
            log.readers = log.readers or WeakSet([self])
            log.readers.add(self)

    @property
    def is_awaited(self) -> bool:
        """Tell whether a reader waits for the next event here."""
        return self._sleeper is not None and not self._sleeper.done()

    def show_internal(self, internal: bool) -> None:
        """Include or exclude internal notes from here on."""
        if internal and not self.internal and self.position:
            self._after = self.log.seqs[self.position - 1]
        self.internal = internal

    async def __anext__(self) -> StreamItem:
        # The requested position may be ahead of the stream.
        while (entry := await self.next_entry())[0] <= self._after:
            pass
        return StreamItem(*entry)

    async def next_entry(self) -> Entry:
        """Return the next entry; raise StopAsyncIteration at the end."""
        if self._earlier is not None:
            self._stored = deque(await self._earlier(self._after))
            self._earlier = None  # only after loading, so that a cancelled read starts again
        if self._stored:
            return self._stored.popleft()
        while True:
            entry = self.take()
            if entry is not None:
                return entry
            if self.log.ended:
                self.finished = True
                raise StopAsyncIteration
            self._sleeper = sleeper = self.log.more()
            await (self.log.follow(sleeper, self) if self.follows and self.log.on_abandon is not None else sleeper)
            self._sleeper = sleeper = None  # many readers are kept

    def take(self) -> Entry | None:
        """Return the next event if it is already there."""
        if self.internal and (note := self._take_note()) is not None:
            return note
        log, position = self.log, self.position
        if position == len(log.events) or log.seqs[position] >= log.reserved:
            return None
        self.position = position + 1
        event: Any = log.events[position]
        made = log.origins[position](event) if type(event) is int else event
        return log.seqs[position], log.times[position], *log.origins[position], made

    def _take_note(self) -> Entry | None:
        """Return the next note if it precedes the next streamed event."""
        log = self.log
        lost = log.notes_lost - self._next_note
        if lost > 0:
            self._next_note = log.notes_lost
            first = log.note_at(self._next_note)
            return first[0], first[1], "", "", 0, InternalEventsMissedEvent(count=lost)
        while self._next_note < log.notes_made:
            note = log.note_at(self._next_note)
            if note[0] >= log.reserved or (self.position < len(log.seqs) and log.seqs[self.position] < note[0]):
                return None
            self._next_note += 1
            if note[0] > self._after:
                return note[0], note[1], note[3], "", 0, _as_event(note)
        return None


class EventIterator(AsyncIterator[Event]):
    """An iterator over the events of a stream; a generator would double the cost of an event."""

    __slots__ = ("_reader", "_run_id", "_started")

    def __init__(self, reader: StreamReader, run_id: str) -> None:
        self._reader = reader
        self._run_id = run_id
        self._started = False

    async def __anext__(self) -> Event:
        reader = self._reader
        events, position = reader.log.events, reader.position
        if position < len(events) and not reader.internal:
            reader.position = position + 1
            event: Any = events[position]
            return reader.log.origins[position](event) if type(event) is int else event
        if not self._started:
            self._begin()
        return (await reader.next_entry())[5]

    def _begin(self) -> None:
        """Start reading; raise an error if another reader is waiting or has read everything."""
        if self._reader.finished:
            raise WorkflowRuntimeError(
                f"All the streamed events have already been consumed (run {self._run_id}); use subscribe() for "
                "several readers"
            )
        if self._reader.is_awaited:
            raise WorkflowRuntimeError(
                f"The streamed events of run {self._run_id} are being read already; use subscribe() for several readers"
            )
        self._started = True

    async def aclose(self) -> None:
        """Stop reading; a later iteration continues here."""

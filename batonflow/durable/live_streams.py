"""Streams of runs while another process reads them: events arrive before the commit that records them.

A reader asks the owner of a run for the events after a place in its stream, every few seconds. The owner sends them
until nobody asks any more. What is lost on the way comes with the commit.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

from batonflow.durable.codec import Codec
from batonflow.durable.lease import RunLease
from batonflow.durable.streamed import without_secrets
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import InputRequiredEvent
from batonflow.workflow_core.stream import Entry, StreamReader

__all__ = [
    "SECONDS_BETWEEN_QUESTIONS", "SECONDS_UNTIL_UNREAD", "LiveEvent", "LivePublisher", "LiveReader", "LiveStore",
]  # fmt: skip

SECONDS_BETWEEN_QUESTIONS = 2.0
SECONDS_UNTIL_UNREAD = 3 * SECONDS_BETWEEN_QUESTIONS
SECONDS_TO_GATHER = 0.03
LONGEST_MESSAGE = 6000
MOST_EVENTS = 50


@runtime_checkable
class LiveStore(Protocol):
    """A store that carries events from the owner of a run to other processes."""

    def follow_live(self, run_id: str, heard: Callable[[str], None]) -> Callable[[], None]:
        """Call ``heard``, on any thread, with the messages about a run; return a function that ends this."""
        ...

    def ask_live(self, run_id: str, after: int, commit: int) -> None:
        """Ask the owner of a run for the events after a place.

        The reader knows the commits up to a number.
        """
        ...

    def tell_live(self, run_id: str, message: str) -> None:
        """Send a message about a run to its readers."""
        ...

    def when_asked(self, asked: Callable[[str, int, int], None]) -> None:
        """Call a bound method, on any thread, with the questions of readers, as long as its object exists."""
        ...


class LiveEvent(NamedTuple):
    """An event on its way: its place, its origin, and its data as in a record."""

    seq: int
    ts: float
    step: str
    path: str
    cause: int
    data: Any


class LivePublisher:
    """Sends the events of a run that this process drives.

    Args:
        store: The store.
        lease: The lease of the run.
    """

    def __init__(self, store: LiveStore, lease: RunLease) -> None:
        self._store = store
        self.lease = lease
        self._log = lease.run.stream
        self._codec = Codec.of(lease.run.workflow.__batonflow__)
        self._reader: StreamReader | None = None
        self._position = -1
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    def ask(self, after: int, commit: int) -> None:
        """Send the events after a place, and go on for some seconds."""
        # Earlier events are in the store only; a reader that has read them there knows the commit of the claim.
        if after < self._log.begins - 1 and commit < self.lease.claimed_at_seq:
            return
        loop = asyncio.get_running_loop()
        self._until = loop.time() + SECONDS_UNTIL_UNREAD
        if self._reader is None or after < self._position:
            self._reader = StreamReader(self._log, after)
            self._reader.follows = False
            self._position = after
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._send(), name="batonflow-live-stream")

    @property
    def is_over(self) -> bool:
        """True after the last reader has left."""
        return self._task is None or self._task.done()

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._log.ended and loop.time() < self._until:
            events: list[Entry] = []
            while self._reader is not None and len(events) < MOST_EVENTS and (entry := self._reader.take()) is not None:
                events.append(entry)
            if events:
                self._tell(events)
                await asyncio.sleep(SECONDS_TO_GATHER)
            else:
                await asyncio.wait({self._log.more()}, timeout=SECONDS_BETWEEN_QUESTIONS)
        self._reader = None

    def _tell(self, events: Collection[Entry]) -> None:
        """Send events in messages that are short enough; a longer event comes with its commit."""
        texts: list[str] = []
        begin = self._position
        for seq, ts, step, path, cause, event in events:
            text = ""
            with suppress(StoreError):
                data = self._codec.event(event)
                data = data if isinstance(event, InputRequiredEvent) else without_secrets(data)
                text = json.dumps([seq, ts, step, path, cause, data])
            if not 0 < len(text) <= LONGEST_MESSAGE or sum(map(len, texts)) + len(text) > LONGEST_MESSAGE:
                self._tell_texts(begin, texts)
                texts, begin = [], self._position
            if 0 < len(text) <= LONGEST_MESSAGE:
                texts.append(text)
            else:
                begin = seq
            self._position = seq
        self._tell_texts(begin, texts)

    def _tell_texts(self, after: int, texts: list[str]) -> None:
        if texts:
            with suppress(StoreError):
                self._store.tell_live(self.lease.run_id, f"[{after}, {', '.join(texts)}]")


class LiveReader:
    """Reads the events of a run that another process drives.

    Args:
        store: The store.
        run_id: The run.
    """

    def __init__(self, store: LiveStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._messages: list[str] = []
        self._arrived: asyncio.Future[None] = self._loop.create_future()
        self._asked_at = 0.0
        self._leave = store.follow_live(run_id, self._heard)

    def _heard(self, message: str) -> None:
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._receive, message)

    def _receive(self, message: str) -> None:
        self._messages.append(message)
        if not self._arrived.done():
            self._arrived.set_result(None)

    def close(self) -> None:
        """Stop reading."""
        self._leave()
        self._arrived.cancel()

    def more(self) -> asyncio.Future[None]:
        """Return a future that is done when there are messages."""
        if self._arrived.done() and not self._messages:
            self._arrived = self._loop.create_future()
        return self._arrived

    def ask(self, after: int, commit: int) -> None:
        """Ask for the events after a place, if it is time for it."""
        now = self._loop.time()
        if now >= self._asked_at + SECONDS_BETWEEN_QUESTIONS:
            self._asked_at = now
            with suppress(StoreError):
                self._store.ask_live(self._run_id, after, commit)

    def take(self, after: int) -> list[LiveEvent]:
        """Return the events that follow a place without a gap."""
        found: list[LiveEvent] = []
        messages, self._messages = self._messages, []
        for message in messages:
            begin, *events = json.loads(message)
            if begin > after:  # something was lost
                self._asked_at = 0.0
                continue
            new = [LiveEvent(*event) for event in events if event[0] > after]
            found += new
            after = new[-1].seq if new else after
        return found

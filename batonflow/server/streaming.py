"""Reader of a run's stream to its end: first from the store, then live."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, cast

from batonflow.durable.gaps import gap_after
from batonflow.durable.live_streams import SECONDS_BETWEEN_QUESTIONS, LiveEvent, LiveReader, LiveStore
from batonflow.durable.store_protocol import StoredCommit
from batonflow.server.envelopes import END, Streamed, envelope, recorded_envelope
from batonflow.server.runs import Place, Runs
from batonflow.server.stored import Reading, seq_of, streamed_by
from batonflow.workflow_core.errors import RunInterruptedError, RunLostError, StoreError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stream import StreamReader

__all__ = ["EventForReader", "Following"]

BATCH = 64


class EventForReader(NamedTuple):
    """One event for a reader.

    Attributes:
        seq: Its place in the stream.
        ends: True for the last event of the run.
        envelope: Creates its envelope at the time of sending, so that a slow reader does not hold many.
    """

    seq: int
    ends: bool
    envelope: Callable[[], dict[str, Any]]


class Following:
    """One reading of a run's stream, by pulling, so that unread events stay only in the run.

    Args:
        runs: The runs of the server.
        place: The location of the run.
        after: Begin after this place in the stream; None for new events only.
        internal: Include the engine's internal events, for runs in this process.
        pause: Seconds without an event until an empty batch is yielded.
        is_closing: Returns True while the server stops.
    """

    def __init__(
        self,
        runs: Runs,
        place: Place,
        after: int | None,
        *,
        internal: bool,
        pause: float,
        is_closing: Callable[[], bool],
    ) -> None:
        self._runs = runs
        self._place = place
        self._run_id = place.info.run_id
        self._after: int | None = after
        self._internal = internal
        self._pause = pause
        self._is_closing = is_closing
        # Pieces up to this place were yielded, which the store has merged.
        self._pieces = -1 if after is None else after
        # The store was read up to this commit.
        self._commit: int = 0

    async def has_more(self) -> bool:
        """Return True if the store has events after the start, for a finished run."""
        if self._after is None:
            return False
        end = self._runs.place_of_end(self._place)
        if end is not None:
            return self._after < end
        reading = self._reading(self._after)
        async with aclosing(reading.batches()) as batches:
            async for _ in batches:
                return True
        return bool(reading.held)

    async def batches(self) -> AsyncGenerator[list[EventForReader]]:
        """Yield the events in groups, up to the end of the run; empty groups during pauses."""
        while not self._is_closing():
            live = self._place.live()
            if live is not None and await _has_begun(live):
                async with aclosing(self._from_memory(live)) as batches:
                    async for batch in batches:
                        yield batch
                if not await self._goes_on_elsewhere(live):
                    return
                continue
            async with aclosing(self._from_store()) as batches:
                async for batch in batches:
                    yield batch
                    if batch and batch[-1].ends:
                        return
            place = await self._runs.look_for(self._run_id)
            if place is None:
                return
            self._place = place
            if place.is_over and self._commit >= place.info.seq:
                return

    # --- in memory ----------------------------------------------------------------------------------------------------

    async def _from_memory(self, live: WorkflowHandler) -> AsyncGenerator[list[EventForReader]]:
        reader = cast("StreamReader", live.subscribe(-1 if self._after is None else self._after, self._internal))
        log = reader.log
        if self._after is None:
            self._after = self._pieces = log.seq - 1
        if log.begins:
            reading = self._reading(self._after, log.begins)
            async with aclosing(self._stored(reading)) as batches:
                async for batch in batches:
                    yield batch
            if reading.held:  # missing events come from memory first, if they are there
                yield [self._recorded(one, self._pieces) for one in reading.held]
        while True:
            batch = self._take(reader)
            if batch:
                yield batch
            elif log.ended or self._is_closing():  # the run may be one that the server does not drive, and go on
                return
            else:
                with self._runs.arrival(self._run_id) as closing:
                    more = log.more()
                    await asyncio.wait({more, closing}, timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
                if not (more.done() or closing.done()):
                    yield []

    def _take(self, reader: StreamReader) -> list[EventForReader]:
        assert self._after is not None
        batch: list[EventForReader] = []
        while len(batch) < BATCH and (entry := reader.take()) is not None:
            if entry[0] > self._after:
                self._after = self._pieces = entry[0]
                seq, ts, step, path, cause, event = entry
                batch.append(self._live_event(event, seq=seq, ts=ts, step=step, path=path, cause=cause or None))
        return batch

    def _live_event(self, event: Event, **place: Any) -> EventForReader:
        if self._place.served is not None:
            self._place.served.saw(type(event))
        return EventForReader(place["seq"], ends=False, envelope=partial(envelope, event, **place))

    async def _goes_on_elsewhere(self, live: WorkflowHandler) -> bool:
        if not _is_elsewhere(live):
            return False
        place = await self._runs.look_for(self._run_id)
        if place is None:
            return False
        self._place = place
        return not self._is_closing()

    # --- in the store -------------------------------------------------------------------------------------------------

    def _reading(self, after: int, before: int = END + 1) -> Reading:
        place = self._place
        return Reading(self._runs.pages, place.store, place.info, place.codec, after, before)

    async def _stored(self, reading: Reading) -> AsyncGenerator[list[EventForReader]]:
        async with aclosing(reading.batches()) as batches:
            async for batch in batches:
                yield [self._recorded(one, self._pieces) for one in batch]

    def _recorded(self, one: Streamed, after: int) -> EventForReader:
        return EventForReader(one.seq, one.ends, partial(self._recorded_envelope, one, after))

    def _recorded_envelope(self, one: Streamed, after: int) -> dict[str, Any]:
        served, codec = self._place.served, self._place.codec
        place = {name: getattr(one, name) for name in ("seq", "ts", "step", "path", "commit")}
        event = one.event(codec, after)
        if event is None:
            return recorded_envelope(one.data, codec, cause=one.cause or None, **place)
        if served is not None:
            served.saw(type(event))
        return envelope(event, cause=one.cause or None, **place)

    async def _from_store(self) -> AsyncGenerator[list[EventForReader]]:
        """Yield stored events and new commits until the run is over or continues in this process.

        Concurrent steps are stored as they end. Events after a missing one wait for it, so that a place in the stream
        identifies the same events for all readers.
        """
        if self._after is None:
            self._after = self._pieces = await self._now()
        known = self._after
        reading = self._reading(known)
        async with aclosing(self._stored(reading)) as batches:
            async for batch in batches:
                self._after = batch[-1].seq
                yield batch
        self._commit, gap, held = reading.commit, reading.gap, reading.held
        if self._place.is_over:
            if held:  # nothing can come before it now
                yield [self._recorded(one, self._pieces) for one in held]
            return
        store = self._place.store
        live = LiveReader(store, self._run_id) if isinstance(store, LiveStore) else None
        with self._runs.arrival(self._run_id) as arrived:
            commits = aiter(self._place.store.subscribe(self._run_id, self._commit))
            coming: asyncio.Future[StoredCommit | None] | None = None
            try:
                while not (arrived.done() or self._is_closing() or self._is_back()):
                    coming = coming or asyncio.ensure_future(anext(commits, None))
                    if await self._wait({coming, arrived}, live, 0 if held else self._commit):
                        if told := self._take_live(live):
                            yield told
                        continue
                    if not coming.done():
                        yield []
                        continue
                    commit, coming = coming.result(), None
                    if commit is None or self._is_back():  # memory has more events than the store
                        return
                    self._commit = commit.seq
                    gap = gap_after([commit], gap)
                    held = [one for one in (*held, *streamed_by([commit], self._place.codec)) if one.seq > self._after]
                    held.sort(key=seq_of)
                    end = bisect_left(held, gap, key=seq_of)
                    told, held = [self._recorded(one, self._pieces) for one in held[:end]], held[end:]
                    if told:
                        self._after = told[-1].seq
                        yield told
            finally:
                if live is not None:
                    live.close()
                if coming is not None:
                    coming.cancel()
                    await asyncio.wait({coming})
                await cast("AsyncGenerator[Any]", commits).aclose()

    async def _wait(self, others: set[asyncio.Future[Any]], live: LiveReader | None, commit: int) -> bool:
        """Wait for others, or for events of the owner before their commit; return True for the latter."""
        end = asyncio.get_running_loop().time() + self._pause
        while (left := end - asyncio.get_running_loop().time()) > 0:
            if live is None:
                await asyncio.wait(others, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                return False
            assert self._after is not None
            live.ask(self._after, commit)
            more = live.more()
            patience = min(left, SECONDS_BETWEEN_QUESTIONS)
            done, _ = await asyncio.wait({*others, more}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return not done & others
        return False

    def _take_live(self, live: LiveReader | None) -> list[EventForReader]:
        """Return the events that the owner of the run has sent."""
        assert live is not None
        assert self._after is not None
        told: list[EventForReader] = []
        for one in live.take(self._after):
            self._after = self._pieces = one.seq
            told.append(EventForReader(one.seq, ends=False, envelope=partial(self._early_envelope, one)))
        return told

    def _early_envelope(self, one: LiveEvent) -> dict[str, Any]:
        return recorded_envelope(
            one.data, self._place.codec, seq=one.seq, ts=one.ts, step=one.step, path=one.path, cause=one.cause or None
        )

    async def _now(self) -> int:
        if self._place.is_over:
            end = self._runs.place_of_end(self._place)
            return (END if end is None else end) - 1
        reading, last = self._reading(-1), -1
        async with aclosing(reading.batches()) as batches:
            async for batch in batches:
                last = batch[-1].seq
        return reading.held[-1].seq if reading.held else last

    def _is_back(self) -> bool:
        return self._place.live() is not None


async def _has_begun(live: WorkflowHandler) -> bool:
    try:
        await live.started()
    except StoreError:
        return False
    return True


def _is_elsewhere(live: WorkflowHandler) -> bool:
    return isinstance(live.stopped_by, RunInterruptedError | RunLostError)

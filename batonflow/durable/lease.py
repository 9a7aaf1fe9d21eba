"""The lease of one run that this process drives. Its records become commits, which a connection writes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic_core import PydanticSerializationError

from batonflow.durable.at_work import maps_at_work
from batonflow.durable.attempt_record import AttemptRecord, as_json
from batonflow.durable.gaps import Reset, with_gap, with_reset
from batonflow.durable.parts.references import with_count
from batonflow.durable.parts.writer import PartWriter
from batonflow.durable.recorder import Recorder
from batonflow.durable.store_protocol import InboxItem, RunCommit, RunStore
from batonflow.durable.traces import with_trace
from batonflow.values.serializers import read_json
from batonflow.workflow_core.errors import RunInterruptedError, RunLostError, StoreError
from batonflow.workflow_core.events import StopEvent, WorkflowCancelledEvent
from batonflow.workflow_core.stream import NEVER

if TYPE_CHECKING:
    from batonflow.workflow_core.options import Options
    from batonflow.workflow_core.run import Run

__all__ = ["RunLease"]


SNAPSHOT_EVERY = 1000
"""Commits between snapshots of the whole state. Loading a run need not begin at its first commit."""

SECONDS_TO_MAPS = 0.1
"""Least seconds until a waiting run with calls of ``ctx.map`` at work is looked at again."""

STREAM_BLOCK = 1000
"""So many numbers of streamed events are reserved at a time."""

_STREAM_AHEAD = STREAM_BLOCK // 2

HELD_SECONDS = 5.0
"""Seconds that an effect waits for its intent to be written, while a working step holds it up."""


class Connection(Protocol):
    """The interface to a store for leased runs; ``connection.py`` implements it for the runs of an event loop."""

    store: RunStore
    loop: asyncio.AbstractEventLoop

    def add(self, lease: "RunLease") -> None: ...

    def remove(self, lease: "RunLease") -> None: ...

    def dirty(self, lease: "RunLease", *, awaited: bool = False) -> None: ...

    def park(self, lease: "RunLease") -> None: ...

    def note_left(self, lease: "RunLease") -> None: ...

    def asleep(self, run: Any, wake_at: float | None) -> None: ...


class RunLease:
    """One run that this process drives, and its commits.

    Args:
        connection: Writes its commits to the store.
        run: The run at the root of a tree.
        options: The options of its workflow.
        closed: Called when this process no longer drives the run.
    """

    def __init__(self, connection: Connection, run: "Run", options: "Options", closed: Callable[[], None]) -> None:
        self.connection = connection
        self.run = run
        self._closed = closed
        # Creates the records that are committed here.
        self.recorder: Recorder | None = None
        self.run_id = run.state.run_id
        # The trace context of the run for the next commit, and the one before the takeover.
        self.trace: dict[str, Any] | None = None
        self.earlier_trace: dict[str, Any] | None = None
        # Seconds for which the run was ready before this process claimed it.
        self.claim_delay: float | None = None
        self._said_trace: dict[str, Any] | None = None
        self.epoch = 0
        # The numbers of the last created and the last written commit.
        self.made = 0
        self.written = 0
        # The last known position of the inbox.
        self.inbox_seen = 0
        # Gives the data for the end of a turn of a session, from status and event; None for other runs.
        self.end_of_turn: Callable[[str, StopEvent], bytes] | None = None
        self._turn: bytes | None = None
        self.lost = False
        self.is_held = False
        # Whether the run is being released.
        self.parking: asyncio.Task[None] | None = None
        self._attached = False
        self._counts_time = options.timeout is not None
        self._idle_release = options.idle_release
        self._bodies: list[bytes] = []
        self._consumed: list[int] = []
        self._passed_over: list[int] = []
        # The gap in the stream after a takeover, for the next commit.
        self.reset: Reset | None = None
        self._status: Literal["completed", "failed", "cancelled"] | None = None
        self._result: bytes | None = None
        self._stream_reserved = 0
        # The number of the last commit before the claim.
        self.claimed_at_seq = 0
        self._snapshot_at = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._release: asyncio.TimerHandle | None = None
        # Uncommitted records, with the futures that wait for them.
        self._held: list[tuple[AttemptRecord, asyncio.Future[None]]] = []

    def attach(self, epoch: int, seq: int, stream_seq: int, snapshot_at: int = 0) -> None:
        """Start the lease of a run with a number of commits.

        Args:
            epoch: The epoch of the claim.
            seq: The number of the last commit.
            stream_seq: The end of the reserved numbers of streamed events.
            snapshot_at: The number of the commit with the last snapshot.
        """
        self.epoch = epoch
        self.claimed_at_seq = seq
        # A handler may have changed the state while the store created the run.
        self.made, self.written = seq + len(self._bodies), seq
        self._stream_reserved = stream_seq
        self._snapshot_at = snapshot_at
        self._attached = True
        self.connection.add(self)
        log = self.run.stream
        log.reserved, log.mark, log.on_mark = stream_seq, stream_seq - _STREAM_AHEAD, self._reserve
        if log.seq >= log.mark or self._bodies:
            self._reserve()

    def _reserve(self) -> None:
        """Reserve further numbers of streamed events, because readers get only reserved numbers."""
        self.run.stream.mark = NEVER
        if not self.lost:
            self.connection.dirty(self, awaited=True)

    def collected(self) -> list[bytes]:
        """Return the commits for the creation of the run."""
        bodies, self._bodies = self._bodies, []
        return bodies

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(self, group: Sequence[AttemptRecord]) -> None:
        """Add records that form one commit."""
        if self.lost or self._status is not None:  # changes of the state after the end are not recorded
            return
        run = self.run
        # The used part of the run's timeout.
        elapsed = run.ending.elapsed() if self._counts_time else 0.0
        parts, first = self._parts, group[0]
        if len(group) == 1 and not (first.is_frozen or first.place is not None or self.reset or self.trace):
            fields = {"t": run.now(), "e": elapsed, "r": [first.data]}
            body = as_json(fields if parts is None else {"p": parts.count, **fields})
        else:
            body = self._marked_body(group, elapsed)
        self._bodies.append(body)
        self.made += 1
        for segment in group:
            if segment.kind == "ended" and not segment.path:
                self._note_end(segment)
        if self._held:
            self._held = [(held, waiting) for held, waiting in self._held if not _let_go(held, waiting)]
        if self._attached:
            self.connection.dirty(self, awaited=self._status is not None)

    def _marked_body(self, group: Sequence[AttemptRecord], elapsed: float) -> bytes:
        """Return the body of a commit with its marks: a gap, a trace, and the number of parts."""
        records = b",".join([segment.body() for segment in group])
        body = b'{"t":%.6f,"e":%.3f,"r":[%b]}' % (self.run.now(), elapsed, records)
        if self.recorder is not None and any(segment.place is not None for segment in group):
            body = with_gap(body, self.recorder.lowest_place())
        if self.reset is not None:
            body, self.reset = with_reset(body, self.reset), None
        if self.trace:
            body, self._said_trace, self.trace = with_trace(body, self.trace), self.trace, None
        return body if self._parts is None else with_count(body, self._parts.count)

    def _note_end(self, segment: AttemptRecord) -> None:
        event = segment.consumed
        error = self.run.ending.error
        cancelled = isinstance(event, WorkflowCancelledEvent)
        self._status = "cancelled" if cancelled else "completed" if error is None else "failed"
        self._result = segment.body()
        if self.end_of_turn is not None and isinstance(event, StopEvent):
            self._turn = self.end_of_turn(self._status, event)
        if (parts := self._parts) is not None:
            turn = self._turn and as_json(parts.lean(read_json(self._turn)))
            self._turn = turn and with_count(turn, parts.count)
            self._result = with_count(self._result, parts.count)

    @property
    def _parts(self) -> PartWriter | None:
        """The parts that this lease writes."""
        parts = None if self.recorder is None else self.recorder.parts
        return parts if parts is not None and parts.owner is self else None

    def consumed(self, item: InboxItem, *, passed_over: bool = False) -> None:
        """Note that an inbox item was delivered or cannot be used, for the next commit."""
        self._consumed.append(item.position)
        if passed_over:
            self._passed_over.append(item.position)

    def take(self) -> RunCommit | None:
        """Return the commit to write now; None without changes."""
        run = self.run
        runs_out = run.stream.seq + len(self._bodies) >= self._stream_reserved - _STREAM_AHEAD
        if not self._bodies and not self._consumed and not runs_out:
            return None
        bodies, self._bodies = self._bodies, []
        consumed, self._consumed = self._consumed, []
        passed_over, self._passed_over = self._passed_over, []
        if runs_out:
            self._stream_reserved = run.stream.seq + len(bodies) + STREAM_BLOCK
        snapshot = None
        if self._status is None and self.made - self._snapshot_at >= SNAPSHOT_EVERY:
            snapshot = self._snapshot()
            if snapshot is not None:
                self._snapshot_at = self.made
        parts = self._parts
        new = [] if parts is None else parts.take_new()
        return RunCommit(
            run_id=self.run_id,
            owner=self.connection.store.owner,
            epoch=self.epoch,
            expected_seq=self.made - len(bodies),
            commits=bodies,
            consumed=consumed,
            passed_over=passed_over,
            status=self._status,
            result=self._result,
            stream_seq=self._stream_reserved,
            snapshot=snapshot,
            ttl=self.connection.store.lease_seconds,
            turn=self._turn,
            parts=new,
            first_part=0 if parts is None else parts.count - len(new),
        )

    def _snapshot(self) -> bytes | None:
        """Return a snapshot of the run to shorten recovery, or None."""
        try:
            return self._snapshot_bytes()
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            self._snapshot_at = self.made  # do not try again at each commit
            self.run.ending.warn(f"no snapshot is kept beside its records, which stay whole: {error}")
            return None

    def _snapshot_bytes(self) -> bytes | None:
        """Return the state of the run after the records so far; None while there is unrecorded work."""
        run, recorder = self.run, self.recorder
        if recorder is None or run.ending.over or not recorder.is_quiet():
            return None
        payload = run.snapshot(None)
        payload["last_record"] = recorder.last_record()
        payload["last_streamed"] = run.stream.seq - 1
        if self._said_trace is not None:
            payload["trace"] = self._said_trace
        return as_json(payload)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Note that the run only waits: its commits are written now, and it may be released later."""
        if self._bodies and not self.lost:
            self.connection.dirty(self, awaited=True)
        if self._idle_release is not None and self._release is None and not self.lost:
            self._release = self.connection.loop.call_later(self._idle_release, self._leave_memory)

    def busy(self) -> None:
        """Note that the run works again."""
        if self._release is not None:
            self._release.cancel()
            self._release = None

    def _leave_memory(self) -> None:
        self._release = None
        if maps_at_work(self.run):
            wait = max(self._idle_release or 0.0, SECONDS_TO_MAPS)
            self._release = self.connection.loop.call_later(wait, self._leave_memory)
        elif self.run.begin_release():
            self.connection.park(self)

    async def park(self) -> None:
        """Release the run to the store, unless there is new input."""
        run = self.run
        wake_at = run.next_due()
        try:
            await self.settled()
            parked = await self.connection.store.park(
                self.run_id, self.connection.store.owner, self.epoch, self.made, wake_at
            )
        except StoreError as error:
            if not self.lost:  # otherwise its end in this process is logged already
                run.ending.warn(f"it could not leave memory: {error}")
            parked = False
        self.parking = None

        def left() -> None:
            self.connection.note_left(self)
            self._leave()  # its id still refers to this run
            self.connection.asleep(run, wake_at)

        run.end_release(left if parked else None, goes_on=not self.lost)

    # --- outcomes -----------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Tell whether all commits are written."""
        return self.written == self.made

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call ``done`` when all present commits are written; at once if they are."""
        if self.is_settled or self.lost:
            callback()
        else:
            self._await_written(callback)

    def _await_written(self, callback: Callable[[], None]) -> None:
        self._waiting.append((self.made, callback))
        self.connection.dirty(self, awaited=True)

    async def has(self, segment: AttemptRecord) -> None:
        """Wait until a record is written.

        A record that builds upon the work of an unfinished step is written together with it. That is awaited for some
        seconds only, as the other step may itself wait for this one.

        Raises:
            RunLostError: This process does not drive the run any more.
        """
        if not segment.committed:
            committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append((segment, committed))
            await asyncio.wait([committed], timeout=HELD_SECONDS)
            if not segment.committed:
                self.run.ending.warn(
                    f"step {segment.step} goes on before its last effect is written: it rests on what another step has "
                    "sent or set and not finished"
                )
        await self.settled()

    async def settled(self) -> None:
        """Wait until all present commits are written.

        Raises:
            RunLostError: This process does not drive the run any more.
        """
        if not self.is_settled and not self.lost:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake() -> None:
                if not done.done():
                    done.set_result(None)

            self._await_written(wake)
            await done
        if self.lost:
            raise RunLostError(f"Run {self.run_id!r} is not driven by this process any more")

    def was_written(self, commit: RunCommit) -> None:
        """Note that a commit is written."""
        self.written = commit.expected_seq + len(commit.commits)
        if commit.parts and (parts := self._parts) is not None:
            parts.stored = commit.first_part + len(commit.parts)
        if commit.stream_seq > self.run.stream.reserved:
            self.run.stream.reserve(commit.stream_seq, mark=commit.stream_seq - _STREAM_AHEAD)
        ready = [callback for seq, callback in self._waiting if seq <= self.written]
        if ready:
            self._waiting = [entry for entry in self._waiting if entry[0] > self.written]
            for callback in ready:
                callback()
        if commit.status is not None:
            self.close()
            self.run.ending.recorded()

    def fail(self, error: StoreError | RunInterruptedError) -> None:
        """Stop the run, because its records cannot be written. The store keeps its last written state."""
        if self.lost:
            return
        self.lost = True
        self.close()
        self._bodies, waiting, self._waiting = [], self._waiting, []
        self.run.ending.drop(error)
        for _, callback in waiting:
            callback()

    def lose(self) -> None:
        """Stop the run, because another process has claimed it."""
        if self.parking is not None:
            return  # the run is being released; later events count only after a restore
        self.fail(
            RunLostError(
                f"Run {self.run_id!r} does not belong to this process any more: it was deleted, or another process "
                "took it over while this one did not answer. Nothing more of it is kept here"
            )
        )

    def close(self) -> None:
        """End the lease."""
        self._leave()
        self._closed()

    def _leave(self) -> None:
        self.busy()
        self.connection.remove(self)


def _let_go(segment: AttemptRecord, waiting: "asyncio.Future[None]") -> bool:
    if segment.committed and not waiting.done():
        waiting.set_result(None)
    return segment.committed

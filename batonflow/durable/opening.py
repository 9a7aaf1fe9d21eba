"""The opening of stored runs, from the store to the first step."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from batonflow.durable.at_rest import repeat_questions
from batonflow.durable.cancels import end_cancelled
from batonflow.durable.codec import Codec
from batonflow.durable.connection import StoreConnection, connection_of
from batonflow.durable.digests import digest_of, digest_of_start
from batonflow.durable.gaps import last_reset, note_reset
from batonflow.durable.history import stream_in_store
from batonflow.durable.lease import STREAM_BLOCK, RunLease
from batonflow.durable.live_runs import DIGESTS, LIVE, METADATA, belongs_to, forget, hand_over, other_input
from batonflow.durable.parts.references import PartReader
from batonflow.durable.parts.writer import PartWriter
from batonflow.durable.recorded_run import RecordedRun
from batonflow.durable.recorder import Recorder, note_model_call
from batonflow.durable.recovery import recorded_run, restore, run_of
from batonflow.durable.state_edits import edited_state
from batonflow.durable.store_protocol import (
    Busy,
    Claimed,
    Created,
    Ended,
    Loaded,
    NewRun,
    PartsGoneError,
    RunInfo,
    RunStore,
)
from batonflow.durable.traces import ABANDONED, trace_in, with_trace
from batonflow.instrumentation.dispatcher import get_dispatcher
from batonflow.new_runs import input_is_served, place_of_new_runs
from batonflow.run_facts import describe_run, note_model_calls
from batonflow.values.serializers import read_json
from batonflow.workflow_core.context.state_store import named_values
from batonflow.workflow_core.dependencies import provide_deps
from batonflow.workflow_core.engine.state import Cause, PastRecord, RunState
from batonflow.workflow_core.errors import ReplayIncompatible, RunInUseError, StoreError
from batonflow.workflow_core.events import Event, StreamResetEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.stream import Entry

__all__ = ["Opening"]

dispatcher = get_dispatcher(__name__)

_NOT_FORKED = {
    "exists": "There is a run {run_id!r} already: choose another new_id",
    "unknown": "The store has no run {source!r} with a commit {at}",
    "compacted": "Commit {at} of run {source!r} is not kept any more, only later ones: its records were compacted",
}


class Opening:
    """The opening of a run.

    Args:
        workflow: The workflow.
        store: The store of the run.
        run: The run, which holds events in the meantime.
    """

    def __init__(self, workflow: AnyWorkflow, store: RunStore, run: Run) -> None:
        self._workflow, self._options = workflow, workflow.__batonflow__
        self._store = store
        self._run = run
        self._codec = Codec.of(workflow.__batonflow__)
        self._connection: StoreConnection = connection_of(store)
        self._event: Event | None = None
        self._claimed: Claimed | Created | None = None
        self._is_new = False
        self._digest = ""
        self._causes: Any = ()
        self._first = b""
        self._first_parts: list[bytes] = []
        self._continues: tuple[int, int] | None = None
        self._lease: RunLease | None = None
        self._place = place_of_new_runs.get()
        self._task: asyncio.Task[None] | None = None
        run.arrived_while_released = []
        LIVE.setdefault(store, {})[run.state.run_id] = run

    def start(self, work: Any) -> None:
        """Start the work in a task."""
        task = asyncio.get_running_loop().create_task(self._safely(work), name="batonflow-open-run")
        self._task = self._run.opening = task

    async def _safely(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the task is not awaited, so the handler reports every error
            self._forget()
            await self._let_go()
            self._run.ending.refuse(error)
        finally:
            if self._task is asyncio.current_task():  # otherwise another task goes on with the opening
                self._run.opening = None

    async def _let_go(self) -> None:
        """Release the claim; delete a fork that could not begin."""
        if self._lease is not None:
            self._lease.lost = True
            self._lease.close()
        if self._claimed is None:
            return
        store, run_id = self._store, self._run.state.run_id
        with suppress(StoreError):
            if self._is_new:
                await store.delete(run_id, force=True)
            else:
                await store.release(run_id, store.owner, self._claimed.epoch)

    def _forget(self) -> None:
        forget(self._store, self._run)

    def give_up(self) -> None:
        """Refuse the run, and free its id."""
        self._forget()
        self._options.runtime.discard(self._run)

    def _record_from(self, number: int, parts: PartWriter | None) -> tuple[RunLease, Recorder]:
        """Record the run from now on."""
        lease = self._lease = RunLease(self._connection, self._run, self._options, self._forget)
        recorder = lease.recorder = self._recorder(lease, number, parts)
        if parts is not None:
            parts.owner = lease
        self._run.record_with(lease, recorder)
        note_model_calls(self._run, note_model_call)
        recorder.watch_attributes(self._workflow)
        return lease, recorder

    def _recorder(self, lease: RunLease, number: int, parts: PartWriter | None) -> Recorder:
        options = self._options
        return Recorder(lease, options.serializer, first=number, keep_streamed=options.store_streamed, parts=parts)

    def _parts_of_state(self) -> PartWriter | None:
        """Return the parts of the state from an earlier run on the same context, or new ones."""
        if self._connection.part_store is None:
            return None
        earlier: Any = self._run.cell.recorder
        parts: PartWriter | None = getattr(earlier, "parts", None)
        if parts is None or parts.place is None or parts.place[0] is not self._store or not parts.is_whole:
            return PartWriter()
        return parts

    def prepare(self, event: Event | None) -> None:
        """Create the first record."""
        run = self._run
        parts = self._parts_of_state()
        self._continues = None if parts is None or parts.place is None else (parts.place[1], parts.stored)
        lease, recorder = self._record_from(1, parts)
        if event is None:
            # The snapshot was made without a store, so its parts get names for records.
            _name_parts(run.state)
            payload = run.snapshot(self._options.serializer)
            recorder.restored(payload)
            self._digest = digest_of(payload)
        else:
            staged = named_values(run.cell)
            self._event = event
            self._causes = recorder.started(event, None, (), {"served": True} if run.state.served else None, staged)
            self._digest = digest_of_start(self._codec, event)
        DIGESTS[run] = self._digest
        [self._first] = lease.collected()
        if self._place is not None and dispatcher.enabled and (trace := dispatcher.carrier()):
            self._first = with_trace(self._first, trace)
        self._first_parts = [] if parts is None else parts.take_new()

    # --- outcomes -----------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Create the run, or continue the run of its id."""
        run_id = self._run.state.run_id
        if self._options.deps is not None and self._place is None:
            await provide_deps(self._workflow, self._run)
        owner = self._store.owner if self._place is None else None
        try:
            found = await self._store.create(self._new_run(), owner, self._store.lease_seconds)
        except PartsGoneError:
            self._run.cell.recorder = None
            self.prepare(self._event)
            found = await self._store.create(self._new_run(), owner, self._store.lease_seconds)
        if not isinstance(found, Created):
            if found.info.workflow != self._options.workflow_name:
                raise belongs_to(run_id, found.info.workflow, self._options.workflow_name)
            if found.info.digest != self._digest:
                raise other_input(run_id)
        if self._place is not None:
            self._forget()
            hand_over(self._run)
        elif isinstance(found, Created):
            self._begin(found)
        else:
            await self.carry_on()

    def _new_run(self) -> NewRun:
        return NewRun(
            run_id=self._run.state.run_id,
            workflow=self._options.workflow_name,
            version=self._options.version,
            digest=self._digest,
            first=self._first,
            stream_seq=STREAM_BLOCK if self._place is None else 0,
            metadata=METADATA.get(self._run),
            parts=self._first_parts,
            continues=self._continues,
            **({} if self._place is None else self._place.as_fields()),
        )

    def _begin(self, created: Created) -> None:
        self._claimed = created
        lease = self._lease
        assert lease is not None
        if lease.recorder is not None and (parts := lease.recorder.parts) is not None:
            parts.place = self._store, created.part_log
            parts.stored += len(self._first_parts)
        lease.attach(created.epoch, 1, STREAM_BLOCK)
        self._run.open(self._event, self._causes)

    async def carry_on(self) -> None:
        """Continue an existing run."""
        self._event = None  # the run has its start event, also if this opening was prepared as a new run
        run_id = self._run.state.run_id
        await self._check_workflow(run_id)
        found = await self._store.claim(run_id, self._store.owner, self._store.lease_seconds)
        if isinstance(found, Claimed):
            await self.take_up(found)
        elif isinstance(found, Busy):
            raise RunInUseError(run_id, found.owner, found.since)
        elif isinstance(found, Ended):
            await self._give_result(found.info)
        else:
            raise StoreError(f"The store has no run {run_id!r}: start it with run(run_id=...)")

    async def come_back(self, *, holds_events: bool) -> None:
        """Continue a released run; while another process drives it, it stays released.

        Args:
            holds_events: Whether events were sent to the run here, which the other process cannot deliver.
        """
        try:
            await self.carry_on()
        except RunInUseError:
            if holds_events or self._run.ending.done:
                raise
            self._connection.asleep(self._run, None)

    async def _check_workflow(self, run_id: str) -> None:
        """Refuse the run of another workflow, and one without the dependencies that nothing makes."""
        info = await self._store.info(run_id)
        if info is not None and not info.is_over and (source := self._options.deps) is not None:
            source.check_known(self._run)
        if info is not None and info.workflow != self._options.workflow_name:
            raise belongs_to(run_id, info.workflow, self._options.workflow_name)

    async def fork(self, source: str, at: int, state: Mapping[str, Any], event: Event | None) -> None:
        """Fork another run, with changes."""
        run_id = self._run.state.run_id
        await self._check_workflow(source)
        # Written together with the fork, so that no fork exists without its changes.
        by_client = input_is_served()  # the changes and the event are input of a client
        edits = await self._edits(source, at, state, by_client) if state or by_client else []
        outcome = await self._store.fork(source, at, run_id, edits)
        if outcome != "forked":
            raise StoreError(_NOT_FORKED[outcome].format(source=source, at=at, run_id=run_id))
        claimed = await self._store.claim(run_id, self._store.owner, self._store.lease_seconds)
        if not isinstance(claimed, Claimed):
            raise StoreError(f"Run {run_id!r} was claimed by another process as soon as it was written")
        self._is_new = True
        self._event = event
        await self.take_up(claimed)

    async def _edits(self, source: str, at: int, state: Mapping[str, Any], by_client: bool) -> list[bytes]:
        """Return the commits of a fork; empty for other runs."""
        workflow = self._workflow
        loaded = await self._store.load(source, at)
        recorded = None if loaded is None else recorded_run(workflow, loaded)
        if recorded is None or recorded.root.ended is not None:
            return []
        restored = run_of(workflow, self._run.state.run_id, recorded)
        lease = RunLease(self._connection, restored, self._options, lambda: None)
        recorder = self._recorder(lease, recorded.last_record + 1, None)
        recorder.edited(edited_state(restored.cell.state, state)[1], **({"served": True} if by_client else {}))
        return lease.collected()

    async def take_up(self, claimed: Claimed) -> None:
        """Restore a claimed run, and continue it."""
        run = self._run
        self._claimed = claimed
        loaded = await self._store.load(claimed.run_id)
        if loaded is None:
            raise StoreError(f"Run {claimed.run_id!r} was deleted while it was taken up")
        try:
            recorded = recorded_run(self._workflow, loaded)
            if recorded.root.ended is None:
                restore(run, recorded)
        except StoreError:  # most often, because the code does not fit
            if not await end_cancelled(self._store, claimed, loaded, self._codec):
                raise
            if (info := await self._store.info(claimed.run_id)) is not None:
                await self._give_result(info)
            return
        if recorded.root.ended is not None:
            source, at = loaded.info.forked_from or (claimed.run_id, claimed.seq)
            raise StoreError(f"Run {source!r} is over at commit {at}: fork at an earlier one")
        if loaded.info.session or loaded.info.metadata:
            describe_run(run, loaded.info.session, loaded.info.metadata)
        if self._options.deps is not None:
            await provide_deps(self._workflow, run)
        workflow: Any = self._workflow  # that of a turn is an agent
        end_of_turn = await workflow.__batonflow_turn__(run) if loaded.info.session else None
        lease, _ = self._record_from(recorded.last_record + 1, self._stored_parts(loaded, recorded))
        lease.end_of_turn = end_of_turn
        snapshot_at, snapshot = loaded.snapshot or (0, None)
        known_to = run.stream.go_on_at(claimed.stream_seq)
        lease.attach(claimed.epoch, claimed.seq, claimed.stream_seq, snapshot_at)
        lease.claim_delay = claimed.delay
        lease.earlier_trace = trace_in(loaded.commits, snapshot)
        if claimed.abandoned and lease.earlier_trace is not None and loaded.commits:
            lease.earlier_trace = {**lease.earlier_trace, ABANDONED: loaded.commits[-1].at}
        # After a release in this process, without another claim, the stream is complete.
        if not self._connection.has_left(claimed):
            lost_after = max(recorded.last_streamed, last_reset(loaded.commits)) if known_to is None else known_to
            if run.stream.seq > lost_after + 1:  # an earlier process could stream
                lease.reset = note_reset(run, lost_after + 1)
        if known_to is None:
            repeat_questions(run, loaded, {item.key for item in loaded.inbox})
        DIGESTS[run] = loaded.info.digest
        run.open(None, (), then=self._event)
        for item in loaded.inbox:
            self._connection.deliver(lease, item)

    def _stored_parts(self, loaded: Loaded, recorded: RecordedRun) -> PartWriter | None:
        """Return the parts of a restored run."""
        if self._connection.part_store is None:
            return None
        stored = recorded.stored
        parts = PartWriter(PartReader(loaded.parts) if stored is None else stored.reader)
        parts.place = self._store, loaded.part_log
        if stored is not None:
            parts.adopt(stored.made)
        return parts

    async def _give_result(self, info: RunInfo) -> None:
        """Set the recorded result and state of a finished run."""
        run, missed = self._run, list[Entry]()
        try:
            loaded = await self._store.load(info.run_id)
            if loaded is not None:
                restore(run, recorded_run(self._workflow, loaded))
            if run.stream.events:  # it was released here, and another process has ended it
                found = await stream_in_store(self._store, run, run.stream.seq - 1)
                missed = [entry for entry in found if not isinstance(entry[-1], StreamResetEvent)]  # no reader lost any
        except (ReplayIncompatible, StoreError) as error:
            run.ending.warn(f"its result is known, and its state cannot be had: {error}")
        record = read_json(info.result or b"null")
        self._forget()
        self._lease = None  # the prepared records of a new run are dropped
        run.take_result(self._codec.read(record["event"]), record.get("seq", 0), missed)


def _name_parts(state: RunState) -> None:
    """Name the parts of a snapshot for records, because no record of this store created them."""
    numbers = count(1)
    past = PastRecord(0)

    def name() -> Cause:
        return past, next(numbers)

    for item in state.items.values():
        item.causes = tuple(name() for _ in item.inputs or (item.event,))
    for step in state.steps.values():
        for key, queues in step.joins.items():
            step.join_causes[key] = [deque(name() for _ in queue) for queue in queues]
        for buffer in step.buffers.values():
            for cls, held in buffer.have.items():
                buffer.keys[cls] = deque([0, next(numbers)] for _ in held)
    for stream in state.streams.values():
        stream.key = -stream.id
        for step_name, members in stream.collected.items():
            stream.collected_causes[step_name] = [name() for _ in members]
    for tick in state.restored_ticks:
        if hasattr(tick, "causes"):
            tick.causes = (name(),)

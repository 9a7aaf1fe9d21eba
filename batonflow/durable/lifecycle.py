"""The lifecycle of stored runs: beginning, takeover, release while waiting, forks, and the meaning of ids."""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import count
from typing import Any, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from batonflow.clock import current_source
from batonflow.durable.attempt_record import as_json
from batonflow.durable.cancels import check_appended, end_cancelled
from batonflow.durable.codec import Codec
from batonflow.durable.connection import Desk, desk_of
from batonflow.durable.gaps import Reset, last_reset
from batonflow.durable.lease import STREAM_BLOCK, Drive, recorder_of
from batonflow.durable.recorded_run import Fold
from batonflow.durable.recorder import Recorder
from batonflow.durable.recovery import add_commit, fold_of, snapshot_of
from batonflow.durable.replay import replayed
from batonflow.durable.state_edits import edited_state
from batonflow.durable.store_protocol import (
    Busy,
    Claimed,
    Created,
    Ended,
    Loaded,
    NewRun,
    RunInfo,
    RunStore,
    StoredCommit,
)
from batonflow.durable.traces import ABANDONED, trace_in
from batonflow.values.names import qualified_name
from batonflow.values.serializers import read_json
from batonflow.workflow_core.context.snapshot import dump_run, load_run
from batonflow.workflow_core.context.state_store import StateCell, lacks_default, named_values
from batonflow.workflow_core.engine.state import Cause, PastRecord, RunState, is_address
from batonflow.workflow_core.errors import (
    ContextSerdeError,
    ReplayIncompatible,
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    StoreError,
)
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import WorkflowRun, new_run
from batonflow.workflow_core.served_input import input_is_served
from batonflow.workflow_core.stream import Entry

__all__ = [
    "begin_recorded",
    "folded",
    "forget_sleepers",
    "fork_run",
    "give_up",
    "known_run",
    "recover_runs",
    "restore",
    "resume_run",
    "resume_sleeper",
    "runs_of",
    "send_to_run",
    "stored_stream",
    "wake_sleeper",
]


_live: WeakKeyDictionary[RunStore, dict[str, Run]] = WeakKeyDictionary()
"""The runs of each store that go on in this process, by id."""

_NOT_FORKED = {
    "exists": "There is a run {run_id!r} already: choose another new_id",
    "unknown": "The store has no run {source!r} with a commit {at}",
    "compacted": "Commit {at} of run {source!r} is not kept any more, only later ones: its records were compacted",
}

_digests: WeakKeyDictionary[Run, str] = WeakKeyDictionary()


def digest_of(encoded: Any) -> str:
    """Return a digest of data that does not depend on the order of keys."""
    text = json.dumps(encoded, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def digest_of_start(codec: Codec, event: Event) -> str:
    """Tells apart start events, in all processes alike: sets have another order in each.

    Raises:
        StoreError: The event cannot be written.
    """
    encoded = codec.event(event)
    is_plain = isinstance(encoded, list) and len(cast("list[Any]", encoded)) == _LENGTH_WHEN_PLAIN
    return digest_of(encoded if is_plain else _in_order(codec, event))


_LENGTH_WHEN_PLAIN = 2


def _in_order(codec: Codec, value: Any) -> Any:
    if type(value) is str or value is None:  # nearly everything
        return value
    if isinstance(value, BaseModel):
        name, fields = _named(type(value))
        values = {**{field: getattr(value, field) for field in fields}, **(value.__pydantic_extra__ or {})}
        return [name, _in_order(codec, values)]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            _quoted(key) if type(key) is str else json.dumps(_in_order(codec, key)): _in_order(codec, inner)
            for key, inner in items
        }
    if isinstance(value, list | tuple):
        return [_in_order(codec, inner) for inner in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        members = cast("set[Any]", value)
        return sorted(json.dumps(_in_order(codec, inner), sort_keys=True) for inner in members)
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeDecodeError):  # of bytes that are not text
        return codec.value(value)


@cache
def _named(cls: type[BaseModel]) -> tuple[str, list[str]]:
    """Return the name of a class of models and the names of its written fields."""
    return qualified_name(cls), [name for name, field in cls.model_fields.items() if not field.exclude]


_quoted = lru_cache(maxsize=1024)(json.dumps)


def known_run(store: RunStore, workflow: AnyWorkflow, run_id: str, event: Event | None) -> Run | None:
    """The run of this id that goes on in this process.

    Raises:
        RunInputMismatchError: It was started with other input, or belongs to another workflow.
    """
    run = _live.get(store, {}).get(run_id)
    if run is None or run.ending.resolved or run.loop.is_closed():
        return None
    theirs, ours = run.workflow.__batonflow__.workflow_name, workflow.__batonflow__.workflow_name
    if theirs != ours:
        raise _others(run_id, theirs, ours)
    known = None if event is None else _digests.get(run)
    if event is not None and known is not None:
        codec = Codec(workflow.__batonflow__.serializer)
        if digest_of_start(codec, event) != known:
            raise _mismatch(run_id)
    return run


def runs_of(store: RunStore, workflow: AnyWorkflow) -> list[Run]:
    """The runs of a workflow that go on in this process, or are kept out of memory by it."""
    runs = list(_live.get(store, {}).values())
    return [run for run in runs if run.workflow is workflow and not run.ending.resolved and not run.loop.is_closed()]


def forget_sleepers(store: RunStore, workflow: AnyWorkflow) -> int:
    """Let go of runs that left memory and have no handlers; return their number."""
    asleep = [run for run in runs_of(store, workflow) if run.is_asleep and not run.ending.handlers]
    for run in asleep:
        desk_of(store).forget(run)
        del _live[store][run.state.run_id]
    return len(asleep)


def _others(run_id: str, theirs: str, ours: str) -> RunInputMismatchError:
    return RunInputMismatchError(
        f"Run {run_id!r} belongs to workflow {theirs}, not to {ours}: choose another run_id, or keep the workflow's "
        f"name with workflow_name={theirs!r}"
    )


def _mismatch(run_id: str) -> RunInputMismatchError:
    return RunInputMismatchError(
        f"Run {run_id!r} was started with other input: use the same input to go on with it, or another run_id to start "
        "a new run"
    )


# --- beginning --------------------------------------------------------------------------------------------------------


def begin_recorded(workflow: AnyWorkflow, store: RunStore, run: Run, event: Event | None) -> None:
    """Begin a run under its id, or go on with the one that the store has.

    Args:
        workflow: The workflow.
        store: Where it is kept.
        run: A new run; it begins as soon as the store agrees.
        event: What it starts with; None for one that a snapshot holds.

    Raises:
        StoreError: The start event cannot be written.
    """
    opening = _Opening(workflow, store, run)
    try:
        opening.prepare(event)
    except StoreError:
        opening.give_up()
        raise
    opening.start(opening.create())


def resume_run(workflow: AnyWorkflow, store: RunStore, run: Run) -> None:
    """Go on with a run that the store has."""
    opening = _Opening(workflow, store, run)
    opening.start(opening.carry_on())


def fork_run(
    workflow: AnyWorkflow,
    store: RunStore,
    run: Run,
    source: str,
    at: int,
    state: Mapping[str, Any],
    event: Event | None,
) -> None:
    """Begin a run that shares the work of another run up to a commit."""
    opening = _Opening(workflow, store, run)
    opening.start(opening.fork(source, at, state, event))


async def give_up(run: Run) -> None:
    """Stop a run in this process, and leave it to the next one that takes it up; one that is over stays so."""
    store: RunStore | None = run.workflow.__batonflow__.store
    assert store is not None
    with suppress(StoreError):
        # Repeated, as the run goes on meanwhile, and may leave memory or come back: commits on their way must not
        # come after the release.
        while not run.ending.done:
            held = _lease_of(run)
            coming_or_leaving = run.opening or (held and held.parking)
            if coming_or_leaving is not None:
                await asyncio.wait({coming_or_leaving})
            elif held is not None and not held.is_settled:
                await held.settled()
            else:
                break
    drive = _lease_of(run)
    if run.ending.done:
        return
    if drive is None:  # it left memory, perhaps just now
        desk_of(store).forget(run)
        _live.get(store, {}).pop(run.state.run_id, None)
        run.ending.interrupted()
    else:
        run.ending.interrupted()
        with suppress(StoreError):
            await store.release(drive.run_id, store.owner, drive.epoch)


def wake_sleeper(run: Run) -> None:
    """Wake a run that left memory, as an event came for it."""
    store: RunStore | None = run.workflow.__batonflow__.store
    if store is not None:
        desk_of(store).wake(run)


def resume_sleeper(run: Run) -> None:
    """Bring a run that left memory back into it."""
    store: RunStore | None = run.workflow.__batonflow__.store
    assert store is not None
    early = run.early
    opening = _Opening(run.workflow, store, run)
    run.early = early
    opening.start(opening.carry_on())


async def recover_runs(workflow: AnyWorkflow, store: RunStore, limit: int, skip: Collection[str] = ()) -> list[Run]:
    """Take up runs of this workflow that no living process drives, or that are due."""
    found: list[Run] = []
    passed_over: list[Claimed] = []
    seen: set[str] = set()
    while len(found) < limit:
        claimed = await store.claim_due(
            store.owner, store.lease_seconds, min(100, limit - len(found)), [workflow.__batonflow__.workflow_name]
        )
        for one in claimed:
            if one.run_id in skip or one.run_id in seen:  # a run that cannot be taken up is offered again at once
                passed_over.append(one)
            elif known_run(store, workflow, one.run_id, None) is None:
                run = new_run(workflow, None, one.run_id)
                opening = _Opening(workflow, store, run)
                opening.start(opening.take_up(one))
                found.append(run)
        if not claimed or all(one.run_id in seen for one in claimed):
            break
        seen.update(one.run_id for one in claimed)
    for one in passed_over:
        await store.release(one.run_id, store.owner, one.epoch)
    return found


async def send_to_run(
    workflow: AnyWorkflow,
    store: RunStore,
    run_id: str,
    event: Event,
    key: str | None = None,
    step: str | None = None,
) -> bool:
    """Put an event into a run's inbox; tells whether it was not there before.

    Raises:
        StoreError: There is no such run, it is over, or the event cannot be written.
        WorkflowRuntimeError: There is no such step that takes the event.
    """
    options = workflow.__batonflow__
    if step is not None:
        child, _, inner = step.rpartition(".")
        taker = options.children[child].__batonflow__ if child in options.children else options
        taker.check_target(event, inner if child else step)
    data = Codec(options.serializer).event(event)
    payload = as_json(data if step is None else {"event": data, "step": step})
    return check_appended(run_id, await store.append(run_id, key or current_source().token(20), payload))


class _Opening:
    """A run on its way from the store to its first step.

    Args:
        workflow: The workflow.
        store: Where the run is kept.
        run: The run, which collects what is sent to it meanwhile.
    """

    def __init__(self, workflow: AnyWorkflow, store: RunStore, run: Run) -> None:
        self._workflow, self._options = workflow, workflow.__batonflow__
        self._store = store
        self._run = run
        self._codec = Codec(workflow.__batonflow__.serializer)
        self._desk: Desk = desk_of(store)
        self._event: Event | None = None
        self._claimed: Claimed | Created | None = None
        self._is_new = False
        self._digest = ""
        self._causes: Any = ()
        self._first = b""
        run.early = []
        _live.setdefault(store, {})[run.state.run_id] = run

    def start(self, work: Any) -> None:
        """Do the work in a task that lives as long as it needs."""
        self._run.opening = asyncio.get_running_loop().create_task(self._safely(work), name="batonflow-open-run")

    async def _safely(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - nobody awaits the task, so whatever it is, the handler has to tell
            self._forget()
            await self._let_go()
            self._run.ending.refuse(error)
        finally:
            self._run.opening = None

    async def _let_go(self) -> None:
        """Release the claim; a fork that could not begin is deleted."""
        drive = _lease_of(self._run)
        if drive is not None:
            drive.lost = True
            drive.close()
        if self._claimed is None:
            return
        store, run_id = self._store, self._run.state.run_id
        with suppress(StoreError):
            if self._is_new:
                await store.delete(run_id, force=True)
            else:
                await store.release(run_id, store.owner, self._claimed.epoch)

    def _forget(self) -> None:
        _live.get(self._store, {}).pop(self._run.state.run_id, None)

    def give_up(self) -> None:
        """The run cannot begin, and its id is free again."""
        self._forget()
        self._options.runtime.discard(self._run)

    def _record_from(self, number: int) -> Drive:
        """Record the run from now on."""
        run = self._run
        drive = run.drive = Drive(self._desk, run, self._forget)
        recorder = Recorder(drive, self._codec, first=number, keep_streamed=self._options.store_streamed)
        recorder.watch(run.cell)
        recorder.watch_attributes(self._workflow)
        run.recorder = recorder
        return drive

    def prepare(self, event: Event | None) -> None:
        """Make the first record."""
        run = self._run
        drive = self._record_from(1)
        recorder = recorder_of(run)
        assert recorder is not None
        if event is None:
            # A snapshot that was made without a store: its parts get names, so that records can refer to them.
            _name_parts(run.state)
            payload = dump_run(run.state, run.cell, self._options.serializer, run=run)
            recorder.restored(payload)
            self._digest = digest_of(payload)
        else:
            staged = named_values(run.cell)
            self._event = event
            self._causes = recorder.started(event, None, (), {"served": True} if run.state.served else None, staged)
            self._digest = digest_of_start(self._codec, event)
        _digests[run] = self._digest
        [self._first] = drive.collected()

    # --- outcomes -----------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Create the run, or go on with the one of its id."""
        run_id = self._run.state.run_id
        new = NewRun(
            run_id=run_id,
            workflow=self._options.workflow_name,
            version=self._options.version,
            digest=self._digest,
            first=self._first,
            stream_seq=STREAM_BLOCK,
        )
        found = await self._store.create(new, self._store.owner, self._store.lease_seconds)
        if not isinstance(found, Created):
            if found.info.workflow != self._options.workflow_name:
                raise _others(run_id, found.info.workflow, self._options.workflow_name)
            if found.info.digest != self._digest:
                raise _mismatch(run_id)
            self._event = None  # it was taken when the run began
            await self.carry_on()
            return
        self._claimed = found
        drive = _lease_of(self._run)
        assert drive is not None
        drive.attach(found.epoch, 1, STREAM_BLOCK)
        self._begin(self._event, self._causes)

    async def carry_on(self) -> None:
        """Go on with a run that exists."""
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

    async def _check_workflow(self, run_id: str) -> None:
        """Refuse the run of another workflow before anything is done with it."""
        info = await self._store.info(run_id)
        if info is not None and info.workflow != self._options.workflow_name:
            raise _others(run_id, info.workflow, self._options.workflow_name)

    async def fork(self, source: str, at: int, state: Mapping[str, Any], event: Event | None) -> None:
        """Branch off from another run, with changes."""
        run_id = self._run.state.run_id
        await self._check_workflow(source)
        # Written together with the fork, so that a refused change or a crash leaves no fork without it.
        by_client = input_is_served()  # the client chooses changes and event
        edits = await self._edits(source, at, state, by_client) if state or by_client else []
        outcome = await self._store.fork(source, at, run_id, edits)
        if outcome != "forked":
            raise StoreError(_NOT_FORKED[outcome].format(source=source, at=at, run_id=run_id))
        claimed = await self._store.claim(run_id, self._store.owner, self._store.lease_seconds)
        if not isinstance(claimed, Claimed):
            raise StoreError(f"Run {run_id!r} was taken by somebody else as soon as it was there")
        self._is_new = True
        self._event = event
        await self.take_up(claimed)

    async def _edits(self, source: str, at: int, state: Mapping[str, Any], by_client: bool) -> list[bytes]:
        """Return the changes of a fork as commits; empty when there is no run to fork."""
        workflow = self._workflow
        loaded = await self._store.load(source, at)
        fold = None if loaded is None else folded(workflow, loaded)
        if fold is None or fold.root.ended is not None:
            return []
        steps = self._options.steps
        run = WorkflowRun(workflow, RunState(self._run.state.run_id, steps.table), StateCell(steps.state_type))
        restore(run, fold)
        drive = Drive(self._desk, run, lambda: None)
        recorder = Recorder(drive, self._codec, first=fold.last_record + 1, keep_streamed=self._options.store_streamed)
        recorder.edited(edited_state(run.cell.state, state)[1], **({"served": True} if by_client else {}))
        return drive.collected()

    async def take_up(self, claimed: Claimed) -> None:
        """Restore a run that was claimed, and let it go on."""
        run = self._run
        self._claimed = claimed
        loaded = await self._store.load(claimed.run_id)
        if loaded is None:
            raise StoreError(f"Run {claimed.run_id!r} was deleted while it was taken up")
        try:
            fold = folded(self._workflow, loaded)
            if fold.root.ended is None:
                restore(run, fold)
        except StoreError:  # above all, the code does not fit
            if not await end_cancelled(self._store, claimed, loaded, self._codec):
                raise
            if (info := await self._store.info(claimed.run_id)) is not None:
                await self._give_result(info)
            return
        if fold.root.ended is not None:
            source, at = loaded.info.forked_from or (claimed.run_id, claimed.seq)
            raise StoreError(f"Run {source!r} is over at commit {at}: fork at an earlier one")
        drive = self._record_from(fold.last_record + 1)
        snapshot_at = loaded.snapshot[0] if loaded.snapshot is not None else 0
        known_to, run.stream.seq = run.stream.seq - 1, max(run.stream.seq, claimed.stream_seq)
        drive.attach(claimed.epoch, claimed.seq, claimed.stream_seq, snapshot_at)
        drive.earlier_trace = trace_in(loaded.commits)
        if claimed.abandoned and drive.earlier_trace is not None:
            drive.earlier_trace = {**drive.earlier_trace, ABANDONED: loaded.commits[-1].at}
        only_slept = bool(run.stream.events)  # its readers are still here
        if not only_slept:
            run.stream.begins = run.stream.seq
        if not self._desk.has_left(claimed):  # else no other process had it meanwhile, and the stream is complete
            lost_from = (known_to if only_slept else max(fold.last_streamed, last_reset(loaded.commits))) + 1
            drive.reset = Reset(run.stream.seq, run.now(), lost_from, run.stream.seq - 1)
            run.publish(drive.reset.event(), "", 0)
        if not only_slept:
            self._repeat_questions(loaded)
        _digests[run] = loaded.info.digest
        self._begin(None, ())
        if self._event is not None:
            run.send(self._event, None, None)
        for item in loaded.inbox:
            self._desk.deliver(drive, item)

    def _repeat_questions(self, loaded: Loaded) -> None:
        """Stream the open questions again: the readers of the process that asked are gone."""
        run = asks = self._run
        if run.family is not None:  # questions of child runs are known after their restore, for which a copy serves
            steps = self._options.steps
            asks = WorkflowRun(self._workflow, RunState(run.state.run_id, steps.table), StateCell(steps.state_type))
            restore(asks, folded(self._workflow, loaded))
            if asks.family is not None:
                asks.family.unfold()
        answered = {item.key for item in loaded.inbox}
        found = [
            (question.path if question.waiter is None else inner.path, question)
            for inner, question in asks.questions.at_rest()
            if InputRequest(inner, question).answer_key not in answered
        ]
        if found:
            run.questions.repeat(found)

    def _begin(self, event: Event | None, causes: Any) -> None:
        run = self._run
        early, run.early = run.early or [], None
        if run.ending.done:  # cancelled before it began
            interrupted = isinstance(run.ending.error, RunInterruptedError)
            if run.recorder is not None and run.ending.event is not None and not interrupted:
                run.recorder.ended(run.ending.event, run.stream.seq)
            return
        self._options.turns.launch(run, event, None, causes)
        for sent, target, path in early:
            if path or is_address(target):
                run.send_to(sent, path, target)
            else:
                run.when_taken(sent, partial(run.send, sent, target, None))

    async def _give_result(self, info: RunInfo) -> None:
        """Give the recorded result and state of a run that is over."""
        try:
            loaded = await self._store.load(info.run_id)
            if loaded is not None:
                restore(self._run, folded(self._workflow, loaded))
        except (ReplayIncompatible, StoreError) as error:
            self._run.ending.warn(f"its result is known, and its state cannot be had: {error}")
        record = read_json(info.result or b"null")
        self._forget()
        self._run.silence()  # nothing that was prepared for a new run is written
        self._run.early = None
        event = self._codec.read(record["event"])
        self._run.stream.begins = self._run.stream.seq = record.get("seq", 0)
        self._run.publish(event, "", 0)
        self._run.ending.restore(event)


def _lease_of(run: Run) -> Drive | None:
    return cast("Drive | None", run.drive)


def _name_parts(state: RunState) -> None:
    """Give the parts of a snapshot names for records, as no record of this store made them."""
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
    for tick in state.restored_deliveries:
        if hasattr(tick, "causes"):
            tick.causes = (name(),)


# --- loading ----------------------------------------------------------------------------------------------------------


async def stored_stream(run: Run, after: int) -> list[Entry]:
    """Return the stream of a run from before this process took it up, behind a position.

    Raises:
        StoreError: The store fails, or something was streamed of a class that is not loaded.
    """
    if run.opening is not None and asyncio.get_running_loop() is run.loop:
        await asyncio.wait({run.opening})
    store: RunStore | None = run.workflow.__batonflow__.store
    run_id, begins = run.state.run_id, run.stream.begins
    if store is None or begins <= after + 1:
        return []
    commits: list[StoredCommit] = []
    while page := await store.read(run_id, commits[-1].seq if commits else 0):
        commits += page
    events = replayed(run_id, "running", commits, run.workflow).events
    return [(one.seq, one.ts, one.step, one.path, one.cause, one.event) for one in events if after < one.seq < begins]


def folded(workflow: AnyWorkflow, loaded: Loaded) -> Fold:
    """Fold the records of a run.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit them any more.
    """
    fold = Fold(workflow)
    upcast = workflow.__batonflow__.upcaster(loaded.info.version)
    if loaded.snapshot is not None:
        fold = fold_of(workflow, read_json(loaded.snapshot[1]))
    for commit in loaded.commits:
        body = read_json(commit.body)
        records = body["r"] if upcast is None else [upcast(record) for record in body["r"]]
        add_commit(fold, records, body["e"])
    return fold


def restore(run: Run, fold: Fold) -> None:
    """Bring a run to where the records leave it."""
    workflow = run.workflow
    try:
        loaded = load_run(workflow, snapshot_of(fold, run.state.run_id), workflow.__batonflow__.serializer)
        run.adopt(loaded)
    except ContextSerdeError as error:
        if lacks_default(error.__cause__):  # the records are as they should be
            text = f"Run {run.state.run_id!r} cannot go on with {type(workflow).__name__}: {error}"
            raise ReplayIncompatible(f"{text}. Give new fields of a state a default") from error
        raise ReplayIncompatible(
            f"The records of run {run.state.run_id!r} do not fit {type(workflow).__name__} any more: {error}. Restore "
            "what they need, or translate old records with Workflow(version=..., upcasters=...)"
        ) from error

"""Recovery: from the records of a run to its live state."""

from collections import deque
from contextlib import suppress
from typing import Any

from batonflow.durable.parts.objects import PartObjects
from batonflow.durable.parts.references import PartReader, change_values, escaped, has_references, whole_commits
from batonflow.durable.recorded_run import RecordedRun, RecordedWorkflow, Unread
from batonflow.durable.store_protocol import Loaded
from batonflow.values.serializers import read_json
from batonflow.values.state_data import DELETED, as_declared, write_into
from batonflow.workflow_core.child_runs import SavedChild
from batonflow.workflow_core.context.snapshot import LoadedRun, count_work, event_type_of
from batonflow.workflow_core.context.state_store import StateCell, lacks_default
from batonflow.workflow_core.context.underway import with_outcomes
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.state import Numbers, Question, RunState, Waiter, WorkItem
from batonflow.workflow_core.errors import ContextSerdeError, ReplayIncompatible, StoreError
from batonflow.workflow_core.events import CollectionReleaseEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import WorkflowRun

__all__ = ["recorded_run", "restore", "run_of"]


def recorded_run(workflow: AnyWorkflow, loaded: Loaded) -> RecordedRun:
    """Apply the records of a run.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
    """
    upcast = workflow.__batonflow__.upcaster(loaded.info.version)
    refers = upcast is None and any(has_references(commit.body) for commit in loaded.commits)
    stored = PartObjects(PartReader(loaded.parts)) if refers else None
    recorded = RecordedRun(workflow, stored)
    try:
        if loaded.snapshot is not None:
            recorded.begin_with(read_json(loaded.snapshot[1]))
        for commit in loaded.commits if upcast is None else whole_commits(loaded):
            body = read_json(commit.body)
            if stored is not None and not has_references(commit.body):  # of an earlier version, or of a fork
                for record in body["r"]:
                    change_values(record, escaped)
            records = body["r"] if upcast is None else [upcast(record) for record in body["r"]]
            recorded.commit(records, body["e"])
    except ContextSerdeError as error:
        raise _unfit(workflow, loaded.info.run_id, error) from error
    return recorded


def restore(run: Run, recorded: RecordedRun) -> None:
    """Set a run to the state after its last record, which ``recorded`` gives away.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
    """
    root = recorded.root.state
    root.run_id = run.state.run_id
    root.elapsed, root.served = recorded.elapsed, recorded.served
    try:
        root.questions = [question for question in recorded.questions if _is_read(question)]
        root.question_seq = max((question.number for question in root.questions), default=root.question_seq)
        run.adopt(_live(recorded, recorded.root))
    except ReplayIncompatible:
        raise
    except (ContextSerdeError, StoreError, ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        raise _unfit(run.workflow, run.state.run_id, error) from error


def _unfit(workflow: AnyWorkflow, run_id: str, error: Exception) -> ReplayIncompatible:
    name = type(workflow).__name__
    if lacks_default(error) or lacks_default(error.__cause__):  # the records are valid
        return ReplayIncompatible(
            f"Run {run_id!r} cannot go on with {name}: {error}. Give new fields of a state a default"
        )
    return ReplayIncompatible(
        f"The records of run {run_id!r} do not fit {name} any more: {error}. Restore what they need, or translate old "
        "records with Workflow(version=..., upcasters=...)"
    )


def run_of(workflow: AnyWorkflow, run_id: str, recorded: RecordedRun) -> Run:
    """Return a run in the state after its last record, without starting it and without child runs."""
    steps = workflow.__batonflow__.steps
    run = WorkflowRun(workflow, RunState(run_id, steps.table), StateCell(steps.state_type))
    restore(run, recorded)
    return run


# --- from data to objects ---------------------------------------------------------------------------------------------


def _live(recorded: RecordedRun, place: RecordedWorkflow) -> LoadedRun:
    """Return the live state of a workflow; its events and values are read now."""
    loaded, state = place.loaded, place.state
    place.take_complete_sets()
    for item in place.pending.values():
        state.item_seq += 1
        item.id = state.item_seq  # only a record determines its number
        state.items[item.id] = item
    for item in state.items.values():
        _read_item(item)
        for waiter in place.waits.get(item.id, {}).values():
            state.waiters.add(waiter if isinstance(waiter, Waiter) else _waiter(place, item, waiter))
            item.open_waits += 1
    for step in state.steps.values():
        for queues in (*step.joins.values(), *(list(buffer.have.values()) for buffer in step.buffers.values())):
            for queue in queues:
                _read_queue(queue)
    for stream in state.streams.values():
        for name, events in stream.collected.items():
            stream.collected[name] = list(map(_read, events))
    for tick in place.loose.values():
        tick.event = _read(tick.event)
    state.restored_ticks = with_outcomes(place.loose.values(), place.outcomes.values())
    state.running = place.ended is None
    state.stopped, loaded.result = _read(place.stopped), _read(place.ended)
    _write(place)
    count_work(state)
    Broker(state).end_idle_streams()
    loaded.children = [
        SavedChild(child["name"], path, child["call"], child["by_event"], loaded=_live(recorded, inner))
        for path, inner in recorded.places.items()
        if (child := inner.child) is not None and path.rpartition("/")[0] == place.path
    ]
    return loaded


def _read(value: Any) -> Any:
    return value.read() if isinstance(value, Unread) else value


def _read_queue(queue: deque[Any]) -> None:
    for place, value in enumerate(queue):
        queue[place] = _read(value)


def _read_item(item: WorkItem) -> None:
    if item.inputs is not None:
        item.inputs = type(item.inputs)(map(_read, item.inputs))  # pyright: ignore[reportCallIssue]
    if item.event is None:  # pyright: ignore[reportUnnecessaryComparison]
        members, stream = list(item.inputs or ()), str(item.released_stream)
        item.event = CollectionReleaseEvent(events=members, stream_id=stream, binding_id=item.spec.name)
    item.event = _read(item.event)
    progress = item.progress
    if progress is not None:
        for numbers in (progress, *(progress.once_calls or {}).values()):
            _read_collected(numbers)
        for key, answer in progress.answers.items():
            progress.answers[key] = _read(answer)
        if progress.once is not None:
            progress.once = {key: _read(value) for key, value in progress.once.items()}


def _read_collected(numbers: Numbers) -> None:
    for place, found in enumerate(numbers.collected or ()):
        if found is not None and numbers.collected is not None:
            numbers.collected[place] = list(map(_read, found))


def _is_read(question: Question) -> bool:
    """Read a question; return False if it cannot be read, because it is only shown to people."""
    with suppress(StoreError):
        question.event = _read(question.event)
        return True
    return False


def _waiter(place: RecordedWorkflow, item: WorkItem, data: dict[str, Any]) -> Waiter:
    waiter_id, wanted, asked = str(data["waiter_id"]), data.get("requirements"), data.get("question")
    event_type = event_type_of(place.workflow, data["waiting_for_event"])
    requirements: dict[str, Any] = {} if wanted is None else place.unread(wanted).read()
    explicit_id = None if waiter_id.startswith("waiter_") else waiter_id
    waiter = Waiter(explicit_id, data["key"], event_type, requirements, item, data.get("due"))
    if asked is not None:
        question = Question(place.unread(asked), "", item.id, waiter)
        waiter.question = question if _is_read(question) else None
    return waiter


def _write(place: RecordedWorkflow) -> None:
    """Apply the changes of the key-value state."""
    state = place.loaded.cell.state
    for path, value in place.writes.items():
        write_into(state, path, DELETED if value is None else value.read())
    for name in {path.partition(".")[0] for path in place.writes}:
        as_declared(state, name, place.loaded.serializer)

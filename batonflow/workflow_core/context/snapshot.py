"""Snapshots: a run as data, written from the live state at any moment, and read back.

The format is version 2 of LlamaIndex workflows; versions 0 and 1 are converted first. Data that only this engine has
(numbers of sends and writes, answers, ``once`` records, child runs) stand under additional keys.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from batonflow.values.answer_fields import answer_fields
from batonflow.values.exceptions import dump_exception, load_exception
from batonflow.values.names import qualified_name
from batonflow.values.payloads import NotASnapshotError, entries, mapping, upgrade
from batonflow.values.serializers import BaseSerializer, JsonSerializer, moved_class
from batonflow.values.state_data import dump_state
from batonflow.values.words import written
from batonflow.workflow_core.child_runs import SavedChild, call_as_data
from batonflow.workflow_core.context.state_store import StateCell, lacks_default, load_state
from batonflow.workflow_core.context.underway import deliveries_as_data, outcomes_as_data, read_outcome, with_outcomes
from batonflow.workflow_core.engine.state import (
    Buffer,
    Causes,
    Failures,
    Numbers,
    PastRecord,
    Progress,
    Question,
    RunState,
    StepState,
    Stream,
    Waiter,
    WorkItem,
    as_origin,
    origins_of,
)
from batonflow.workflow_core.engine.ticks import EventArrived, StepFailed, StepReturned, Tick
from batonflow.workflow_core.errors import ContextSerdeError, WorkflowCancelledByUser
from batonflow.workflow_core.events import CollectionReleaseEvent, Event, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec
from batonflow.workflow_core.run import Run

__all__ = ["LoadedRun", "count_work", "dump_run", "event_type_of", "load_run"]


@dataclass(slots=True)
class LoadedRun:
    """A run that is not started: its state, child runs, and counts of child runs by name."""

    state: RunState
    cell: StateCell
    serializer: BaseSerializer
    counts: dict[str, int] = field(default_factory=dict[str, int])
    children: "list[SavedChild]" = field(default_factory=list["SavedChild"])
    result: StopEvent | None = None  # of a child run that is over


# --- writing ----------------------------------------------------------------------------------------------------------


def dump_run(
    state: RunState,
    cell: StateCell,
    serializer: BaseSerializer,
    *,
    run: Run | None = None,
    loaded: LoadedRun | None = None,
    include_state: bool = True,
    children_with: BaseSerializer | None = None,
) -> dict[str, Any]:
    """Return the snapshot of a run.

    The live run adds ticks under way and children, which ``children_with`` writes, else the serializer of each. A
    ``loaded`` run adds its children.

    Raises:
        ValueError: A value cannot be written; the message names it.
    """
    underway: Sequence[Tick] = ()
    if state.running:
        underway = state.restored_ticks if run is None else run.underway()
    writer = _Writer(serializer, underway)
    items = state.items_by_step()
    ended = run is not None and run.ending.over
    payload: dict[str, Any] = {
        "version": 2,
        "state": dump_state(cell.state, serializer) if include_state else {},
        "is_running": state.running,
        "run_id": state.run_id,
        "workers": {name: writer.step(state, name, items.get(name, ())) for name in state.table.steps},
        "stream_seq": state.stream_seq,
        "work_item_seq": state.item_seq,
        "waiter_seq": state.waiter_seq,
        "deliveries": deliveries_as_data(underway, writer.event),
        "streams": {str(stream.id): writer.stream(stream) for stream in state.streams.values()},
        "elapsed_alive": state.elapsed if ended or run is None else run.ending.elapsed(),
    }
    if state.cancelled or (run is not None and isinstance(run.ending.error, WorkflowCancelledByUser)):
        payload["cancelled"] = True
    if state.served:
        payload["served"] = True
    if run is not None and run.root is run:
        run.questions.look()
    if state.running and state.questions:
        payload["questions"] = writer.questions(state.questions)
    if run is not None and run.family is not None:
        payload["children"] = _dump_children(run, serializer, children_with)
    elif loaded is not None and (loaded.children or loaded.counts):
        runs = [_dump_saved(saved, serializer, children_with) for saved in loaded.children]
        payload["children"] = {"counts": dict(loaded.counts), "runs": runs}
    return payload


def _dump_children(run: Run, serializer: BaseSerializer, children_with: BaseSerializer | None) -> dict[str, Any]:
    family: Any = run.family
    runs = [_dump_saved(saved, serializer, children_with) for saved in family.saved]
    for child in dict.fromkeys((*family.finished, *family.children)) if run.state.running else ():
        inner = child.run
        with_ = children_with or inner.workflow.__batonflow__.serializer
        payload = dump_run(inner.state, inner.cell, with_, run=inner, children_with=children_with)
        if inner.ending.done and not inner.state.running and inner.ending.event is not None:
            payload["result"] = written(serializer, inner.ending.event)
        call = None if child.call is None else call_as_data(child.call)
        runs.append(_child_as_data(child.name, inner.path, call, child.by_event, payload))
    return {"counts": dict(family.counts), "runs": runs}


def _dump_saved(saved: SavedChild, serializer: BaseSerializer, children_with: BaseSerializer | None) -> dict[str, Any]:
    payload, loaded = saved.payload, saved.loaded
    if loaded is not None:
        with_ = children_with or loaded.serializer
        payload = dump_run(loaded.state, loaded.cell, with_, loaded=loaded, children_with=children_with)
        if loaded.result is not None:
            payload["result"] = written(serializer, loaded.result)
    return _child_as_data(saved.name, saved.path, saved.call, saved.by_event, payload)


def _child_as_data(name: str, path: str, call: Any, by_event: bool, payload: Any) -> dict[str, Any]:
    return {"name": name, "path": path, "call": call, "by_event": by_event, "payload": payload}


class _Writer:
    """The writer of a run's parts, with one serializer."""

    def __init__(self, serializer: BaseSerializer, underway: Sequence[Tick]) -> None:
        self._serializer = serializer
        self._outcomes = outcomes_as_data(underway, self.event)

    def event(self, event: Event | None) -> str | None:
        if event is None:
            return None
        try:
            return written(self._serializer, event)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Event {type(event).__name__} cannot be written into a snapshot: {error}") from error

    def step(self, state: RunState, name: str, items: Sequence[WorkItem]) -> dict[str, Any]:
        step = state.steps.get(name)
        if step is None:
            return {
                "queue": [], "in_progress": [], "collected_events": {}, "static_collect_events": [],
                "collected_waiters": [],
            }  # fmt: skip
        executing = [
            item
            for item in items
            if item.worker >= 0 or item.suspended or (item.task is not None and item.answered is None)
        ]
        queued = [item for item in step.queue or () if item.answered is None]
        answered = [item for item in step.queue or () if item.answered is not None]
        delayed = [item for item in state.delayed.values() if item.spec.name == name]
        names: dict[str, Any] = {}
        if any(buffer.keys for buffer in step.buffers.values()):
            names["collect_keys"] = {
                buffer_id: [key for cls in buffer.have for key in buffer.keys[cls]]
                for buffer_id, buffer in step.buffers.items()
            }
        if step.join_causes:
            names["join_origins"] = {
                str(key): [origins_of(tuple(queue)) for queue in queues] for key, queues in step.join_causes.items()
            }
        return {
            **names,
            "queue": [self.item(item) for item in [*queued, *delayed]],
            "in_progress": [{**self.item(item), "worker_id": item.worker} for item in [*executing, *answered]],
            "collected_events": {
                buffer_id: [self.event(event) for events in buffer.have.values() for event in events]
                for buffer_id, buffer in step.buffers.items()
            },
            "collect_needs": {
                buffer_id: {qualified_name(cls): count for cls, count in buffer.needs.items()}
                for buffer_id, buffer in step.buffers.items()
            },
            "static_collect_events": [self.event(event) for queue in step.joins.get(0, ()) for event in queue],
            "joins": {
                str(key): [[self.event(event) for event in queue] for queue in queues]
                for key, queues in step.joins.items()
            },
            "collected_waiters": [self.waiter(waiter) for waiter in state.waiters if waiter.item.spec.name == name],
        }

    def item(self, item: WorkItem) -> dict[str, Any]:
        failures = item.failures
        bound = None
        if item.inputs is not None and item.spec.config.collect is None:
            names = [slot.name for slot in item.spec.slots]
            bound = {name: self.event(event) for name, event in zip(names, item.inputs, strict=True)}
        origins = {"origins": origins_of(item.causes), "releases": item.released_stream} if item.causes else {}
        return {
            **origins,
            "event": self.event(item.event),
            "bound_events": bound,
            "attempts": failures.count if failures is not None else 0,
            "first_attempt_at": failures.first_attempt_at if failures is not None else None,
            "last_exception": dump_exception(failures.last_error) if failures and failures.last_error else None,
            "last_failed_at": failures.last_failed_at if failures is not None else None,
            "recovery_counts": dict(item.recoveries or {}),
            "not_before": item.due,
            "scope_path": _scope(item.stream),
            "work_item_id": f"work_item_{item.id}",
            "progress": self.progress(item.progress),
            **({"outcome": self._outcomes[item.id]} if item.id in self._outcomes else {}),
        }

    def progress(self, progress: Progress | None) -> dict[str, Any] | None:
        if progress is None:
            return None
        once = {key: value for key, value in (progress.once or {}).items() if not isinstance(value, asyncio.Future)}
        once |= progress.unreturned
        return {
            **self.numbers(progress),
            "answers": {key: self.event(answer) for key, answer in progress.answers.items()},
            "once": {key: self.record(key, value) for key, value in once.items()},
            "once_calls": {
                key: self.numbers(call) for key, call in (progress.once_calls or {}).items() if key not in once
            },
            "intents": {**(progress.intents or {}), **progress.begun},
        }

    def numbers(self, numbers: Numbers) -> dict[str, Any]:
        return {
            "sends": max(numbers.sends, numbers.skip_sends),
            "writes": max(numbers.writes, numbers.skip_writes),
            "streamed": max(numbers.streamed, numbers.skip_streamed),
            "collected": [
                None if found is None else [self.event(event) for event in found] for found in numbers.collected or ()
            ],
        }

    def record(self, key: str, value: Any) -> str:
        try:
            return written(self._serializer, value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The result of ctx.once({key!r}, ...) cannot be written: {error}") from error

    def waiter(self, waiter: Waiter) -> dict[str, Any]:
        cls = waiter.event_type
        try:
            requirements = None if waiter.unknown_requirements else self._serializer.serialize(waiter.requirements)
        except (TypeError, ValueError):
            requirements = None
        return {
            "waiter_id": waiter.id,
            "key": waiter.key,
            "event": self.event(waiter.item.event),
            "bound_events": None,
            "waiting_for_event": qualified_name(cls),
            "fields": answer_fields(cls),
            "has_requirements": bool(waiter.requirements) or waiter.unknown_requirements,
            "requirements": requirements,
            "resolved_event": None,
            "scope_path": _scope(waiter.item.stream),
            "work_item_id": f"work_item_{waiter.item.id}",
            "due": waiter.due,
            "question": self.question(waiter.question),
        }

    def question(self, question: Question | None) -> str | None:
        # A question that cannot be written is left out; the run itself can still be written.
        try:
            return self._serializer.serialize(question.event) if question is not None else None
        except (TypeError, ValueError):
            return None

    def questions(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        written = [(self.question(question), question) for question in questions]
        return [
            {"event": event, "path": question.path, "cause": question.cause, "number": question.number}
            for event, question in written
            if event is not None
        ]

    def stream(self, stream: Stream) -> dict[str, Any]:
        origins = {name: origins_of(tuple(causes)) for name, causes in stream.collected_causes.items()}
        return {
            **({"key": stream.key, "collected_origins": origins} if stream.key else {}),
            "stream_id": str(stream.id),
            "source_step": stream.producer,
            "scope_path": _scope(stream.parent),
            "open_work_items": stream.live,
            "recovery_counts": dict(stream.recoveries or {}),
            "collected": {name: [self.event(event) for event in events] for name, events in stream.collected.items()},
            "released": sorted(stream.released),
        }


def _scope(stream: Stream | None) -> list[str]:
    path: list[str] = []
    while stream is not None:
        path.insert(0, str(stream.id))
        stream = stream.parent
    return path


# --- reading ----------------------------------------------------------------------------------------------------------


def load_run(workflow: AnyWorkflow, payload: Any, serializer: BaseSerializer, *, is_complete: bool = True) -> LoadedRun:
    """Read a snapshot. Unless it ``is_complete``, records follow, so its work is not counted yet.

    Raises:
        ContextSerdeError: It is not a snapshot, its version is newer, or a value in it cannot be read.
    """
    if isinstance(serializer, JsonSerializer):
        serializer = serializer.knowing(workflow.__batonflow__.declared_types)
    try:
        data = upgrade(payload)
        loaded = _Reader(workflow, data, serializer).read()
        if is_complete:
            count_work(loaded.state)
        return loaded
    except NotASnapshotError as error:
        raise ContextSerdeError(str(error)) from None
    except ContextSerdeError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, ValidationError) as error:
        if lacks_default(error):
            raise ContextSerdeError(str(error)) from error
        raise ContextSerdeError(
            f"Context dict specified in an invalid format: {type(error).__name__}: {error}"
        ) from error


class _Reader:
    """The reader of a run's state from a snapshot of version 2."""

    def __init__(self, workflow: AnyWorkflow, data: dict[str, Any], serializer: BaseSerializer) -> None:
        self._workflow = workflow
        self._data = data
        self._serializer = serializer
        self._state = RunState(str(data.get("run_id") or ""), workflow.__batonflow__.steps.table)
        self._streams: dict[str, Stream] = {}
        self._items: dict[str, WorkItem] = {}
        self._numbers: set[int] = set()
        # Outcomes of finished steps, with their places among the undecided ticks.
        self._outcomes: dict[WorkItem, tuple[int, StepReturned | StepFailed]] = {}

    def read(self) -> LoadedRun:
        data, state = self._data, self._state
        state.running = bool(data.get("is_running"))
        state.cancelled = bool(data.get("cancelled"))
        state.served = bool(data.get("served"))
        state.elapsed = float(data.get("elapsed_alive") or 0.0)
        state.waiter_seq = int(data.get("waiter_seq") or 0)
        state.item_seq = int(data.get("work_item_seq") or 0)
        self._read_streams(mapping(data, "streams"), mapping(data, "collection_release_states"))
        workers = {name: worker for name, worker in data["workers"].items() if name in state.table.steps}
        for name, worker in workers.items():
            self._read_step(state.step(state.table.steps[name]), worker)
        for name, worker in workers.items():
            self._read_waiters(state.step(state.table.steps[name]), worker)
        deliveries = [
            EventArrived(
                self._event(delivery["event"]),
                delivery.get("step_id"),
                _counts(delivery),
                _causes(entries(delivery, "origins")),
            )
            for delivery in entries(data, "deliveries")
        ]
        state.restored_ticks = with_outcomes(deliveries, self._outcomes.values())
        for entry in entries(data, "questions"):
            question = self._question(entry["event"])
            if question is not None:
                state.question_seq = max(state.question_seq, entry["number"])
                restored = Question(question, entry["path"], entry["cause"], number=entry["number"])
                state.questions = [*state.questions, restored]
        cell = self._cell(mapping(data, "state"))
        children = mapping(data, "children")
        runs = [
            SavedChild(entry["name"], entry["path"], entry["call"], entry.get("by_event", True), entry["payload"])
            for entry in entries(children, "runs")
        ]
        return LoadedRun(state, cell, self._serializer, dict(mapping(children, "counts")), runs)

    def _cell(self, payload: dict[str, Any]) -> StateCell:
        state_type = self._workflow.__batonflow__.steps.state_type
        store_type = payload.get("store_type", "in_memory")
        if store_type != "in_memory":
            cell = StateCell(state_type)
            cell.foreign = str(store_type)
            return cell
        if not payload:
            return StateCell(state_type)
        loaded = load_state(payload, self._serializer, state_type)
        return StateCell(state_type, loaded)

    def _event(self, text: Any) -> Event:
        event = self._serializer.deserialize(text)
        if not isinstance(event, Event):
            raise ContextSerdeError(
                f"The snapshot holds a {type(event).__name__} where an event belongs: {str(text)[:80]}"
            )
        return event

    def _read_streams(self, streams: dict[str, Any], releases: dict[str, Any]) -> None:
        state = self._state
        pending = sorted(streams.values(), key=lambda entry: len(entries(entry, "scope_path")))
        for entry in pending:
            state.stream_seq += 1
            parent = self._stream(entry.get("scope_path"))
            stream = Stream(state.stream_seq, entry["source_step"], parent, _counts(entry))
            stream.released = set(entries(entry, "released"))
            stream.key = int(entry.get("key") or 0)
            for name, events in mapping(entry, "collected").items():
                stream.collected[name] = [self._event(event) for event in events]
            for name, origins in mapping(entry, "collected_origins").items():
                stream.collected_causes[name] = list(_causes(origins))
            self._streams[str(entry["stream_id"])] = state.streams[stream.id] = stream
        for release in releases.values():
            stream = self._streams.get(str(release["stream_id"]))
            name = release["binding_id"].partition("->")[2].partition(":")[0]
            if stream is not None and release.get("released"):
                stream.released.add(name)
            elif stream is not None:
                stream.collected[name] = [self._event(event) for event in entries(release, "buffer")]

    def _stream(self, scope: list[str] | None) -> Stream | None:
        return self._streams.get(str(scope[-1])) if scope else None

    def _read_step(self, step: StepState, worker: dict[str, Any]) -> None:
        for entry in [*entries(worker, "in_progress"), *entries(worker, "queue")]:
            self._item(step, entry)
        for buffer_id, events in mapping(worker, "collected_events").items():
            buffer = step.buffers[buffer_id] = Buffer()
            for event in map(self._event, events):
                buffer.have.setdefault(type(event), deque()).append(event)
            needs = mapping(mapping(worker, "collect_needs"), buffer_id)
            for event, key in zip(events, mapping(worker, "collect_keys").get(buffer_id, ()), strict=False):
                buffer.keys.setdefault(type(self._event(event)), deque()).append(key)
            # Used only to describe missing events, until the step collects again.
            buffer.needs = {event_type_of(self._workflow, name): count for name, count in needs.items()}
        joins = mapping(worker, "joins")
        if not joins and worker.get("static_collect_events"):
            events = [self._event(event) for event in worker["static_collect_events"]]
            step.joins[0] = _dealt(step.spec, events)
        for key, queues in joins.items():
            stream = self._streams.get(key)
            number = stream.id if stream is not None else 0
            step.joins[number] = [deque(map(self._event, queue)) for queue in queues]
            if key in mapping(worker, "join_origins"):
                step.join_causes[number] = [deque(_causes(origins)) for origins in worker["join_origins"][key]]

    def _item(self, step: StepState, entry: dict[str, Any]) -> WorkItem:
        state = self._state
        known = str(entry.get("work_item_id") or "")
        number = int(known.rpartition("_")[2]) if known.rpartition("_")[2].isdigit() else 0
        while not number or number in self._numbers:
            number = max(state.item_seq, number) + 1
        self._numbers.add(number)
        state.item_seq = max(state.item_seq, number, int(self._data.get("work_item_seq") or 0))
        event = self._event(entry["event"])
        item = WorkItem(number, step, event, self._stream(entry.get("scope_path")), _counts(entry))
        if entry.get("bound_events"):
            item.inputs = tuple(self._event(entry["bound_events"][slot.name]) for slot in step.spec.slots)
        elif isinstance(event, CollectionReleaseEvent):
            item.inputs = cast("list[Event]", event.events)
        if entry.get("attempts"):
            error = load_exception(entry.get("last_exception"))
            first = float(entry.get("first_attempt_at") or 0.0)
            item.failures = Failures(int(entry["attempts"]), first, error, entry.get("last_failed_at"))
        item.due = entry.get("not_before")
        item.causes = _causes(entries(entry, "origins"))
        item.released_stream = int(entry.get("releases") or 0)
        item.progress = self._progress(entry.get("progress"))
        if entry.get("outcome"):
            outcome: dict[str, Any] = entry["outcome"]
            self._outcomes[item] = int(outcome["place"]), read_outcome(item, outcome, self._event)
        self._items[known or f"work_item_{number}"] = item
        self._state.items[item.id] = item
        return item

    def _progress(self, entry: dict[str, Any] | None) -> Progress | None:
        if entry is None:
            return None
        progress = Progress()
        self._read_numbers(progress, entry)
        for key, call in mapping(entry, "once_calls").items():
            self._read_numbers(progress.once_call(key), call)
        for key, answer in entry["answers"].items():
            progress.answers[key] = None if answer is None else self._event(answer)
        progress.once = {key: self._serializer.deserialize(value) for key, value in entry["once"].items()}
        progress.intents = entry.get("intents") or None
        return progress

    def _read_numbers(self, numbers: Numbers, entry: dict[str, Any]) -> None:
        numbers.skip_sends, numbers.skip_writes = entry["sends"], entry["writes"]
        numbers.skip_streamed = entry["streamed"]
        numbers.collected = [
            None if found is None else [self._event(event) for event in found] for found in entry["collected"]
        ]

    def _read_waiters(self, step: StepState, worker: dict[str, Any]) -> None:
        ordinals: dict[int, int] = {}
        for entry in entries(worker, "collected_waiters"):
            item = self._items.get(str(entry.get("work_item_id"))) or self._item(step, entry)
            self._items.setdefault(str(entry.get("work_item_id")), item)
            ordinals[item.id] = ordinals.get(item.id, 0) + 1
            awaited = entry["waiting_for_event"]
            event_type = event_type_of(self._workflow, awaited)
            waiter_id = str(entry["waiter_id"])
            implicit = waiter_id.startswith("waiter_")
            qualified = qualified_name(event_type)
            key = entry.get("key") or (f"{ordinals[item.id]}:{qualified}" if implicit else waiter_id)
            if entry.get("resolved_event"):
                item.make_progress().answers[key] = self._event(entry["resolved_event"])
                continue
            written = entry.get("requirements")
            requirements: dict[str, Any] = self._serializer.deserialize(written) if isinstance(written, str) else {}
            waiter = Waiter(None if implicit else waiter_id, key, event_type, requirements, item, entry.get("due"))
            question = self._question(entry.get("question"))
            if question is not None:
                waiter.question = Question(question, "", item.id, waiter)
            waiter.unknown_requirements = bool(entry.get("has_requirements")) and not isinstance(written, str)
            self._state.waiters.add(waiter)
            item.open_waits += 1

    def _question(self, text: Any) -> Event | None:
        """Return a question, or None if it cannot be read; it is only shown to people."""
        try:
            return None if text is None else self._event(text)
        except (ContextSerdeError, ValueError, TypeError):
            return None


def event_type_of(workflow: AnyWorkflow, name: str) -> type[Event]:
    """Return the class of events that a wait names.

    Raises:
        ContextSerdeError: The class is not loaded.
    """
    for cls in [*workflow.__batonflow__.steps.events, *_known_events()]:
        # LlamaIndex leaves out enclosing classes.
        if name in (qualified_name(cls), f"{cls.__module__}.{cls.__name__}"):
            return cls
    moved = moved_class(name)
    if isinstance(moved, type) and issubclass(moved, Event):
        return moved
    raise ContextSerdeError(
        f"The snapshot waits for {name}, which is not a loaded event class: import its module first"
    )


def count_work(state: RunState) -> None:
    """Count the work of a restored state, and give free workers to its deliveries in order."""
    ended = {tick.item for tick in state.restored_ticks if not isinstance(tick, EventArrived)}
    for stream in state.streams.values():
        if stream.parent is not None:
            stream.parent.live += 1
    for step in state.steps.values():
        for number, queues in step.joins.items():
            if number:
                state.streams[number].live += sum(map(len, queues))
    for item in [item for items in state.items_by_step().values() for item in items]:
        state.busy += 1
        if item.stream is not None:
            item.stream.live += 1
        if item.due is not None:
            state.delayed[item.id] = item
        elif item.step.active < item.spec.num_workers or item in ended:
            item.step.occupy(item)
        else:
            item.step.enqueue(item)


def _dealt(spec: StepSpec, events: list[Event]) -> list[deque[Event]]:
    """Return the events that a join holds, by slot; slots of one type get them in turn."""
    queues: list[deque[Event]] = [deque() for _ in spec.slots]
    for event in events:
        fitting = [queue for slot, queue in zip(spec.slots, queues, strict=True) if type(event) in slot.types]
        if fitting:
            min(fitting, key=len).append(event)
    return queues


def _causes(origins: list[Any]) -> Causes:
    """Return the causes of an event from the records of an earlier owner of the run."""
    named = map(as_origin, origins)
    return tuple((PastRecord(number), name) for number, name in named)


def _counts(entry: dict[str, Any]) -> dict[str, int] | None:
    return entry.get("recovery_counts") or None


def _known_events() -> list[type[Event]]:
    """Return all loaded event classes."""
    found: list[type[Event]] = []
    stack = [Event]
    while stack:
        cls = stack.pop()
        found.append(cls)
        stack.extend(cls.__subclasses__())
    return found

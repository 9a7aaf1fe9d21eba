"""The state of a run as its records leave it, found without running the code of its steps.

A record says that a delivery did something; the work that is left is the deliveries that no record has ended. Every
event is named by the record that made it and its number there (its *origin*), and every delivery by the origins of the
events in it. So the result depends on the order of commits only, not on the order of deliveries: an event is pending
for each step that takes it until a record says that it was consumed.

Records change the live state of the run. Events and values stay data until all records are applied, because later
records use up most of them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

from batonflow.durable.codec import Codec
from batonflow.durable.parts.objects import PartObjects
from batonflow.values.exceptions import load_exception
from batonflow.values.names import loaded_class, names_of
from batonflow.workflow_core.context.snapshot import LoadedRun, load_run
from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.engine.state import (
    TO_STEPS,
    Buffer,
    Cause,
    Causes,
    Failures,
    Numbers,
    Origin,
    PastRecord,
    Question,
    Recoveries,
    RunState,
    StepState,
    Stream,
    WorkItem,
    as_origin,
    is_address,
)
from batonflow.workflow_core.engine.ticks import EventArrived, StepFailed, StepReturned
from batonflow.workflow_core.errors import ReplayIncompatible, StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec, StepTable

__all__ = ["RecordedRun", "RecordedWorkflow", "Unread"]


class Unread:
    """An event or a value of a record, as data.

    Args:
        codec: Reads the data.
        data: The data.
    """

    __slots__ = ("_codec", "data")

    def __init__(self, codec: Codec, data: Any) -> None:
        self._codec = codec
        self.data = data

    @property
    def class_name(self) -> str:
        """The name of the class of an event."""
        return self._codec.class_name(self.data)

    def read(self) -> Any:
        """Return the event or value.

        Raises:
            StoreError: The class is not loaded, or does not fit the data.
        """
        return self._codec.read(self.data)


class RecordedWorkflow:
    """The recorded state of one workflow of the tree.

    Args:
        path: The path of the workflow's run; empty for the run itself.
        workflow: The workflow.
        child: The data of the child run in its parent.
        stored: The parts that its records refer to.
        loaded: Its state in the snapshot before the records; None if the records begin with its start.
    """

    def __init__(
        self,
        path: str,
        workflow: AnyWorkflow,
        child: dict[str, Any] | None = None,
        stored: PartObjects | None = None,
        loaded: LoadedRun | None = None,
    ) -> None:
        self.path = path
        self.workflow = workflow
        self.child = child
        options = workflow.__batonflow__
        self.table: StepTable = options.steps.table
        serializer = options.serializer
        self._codec = Codec(serializer, stored=stored)
        if loaded is None:
            loaded = LoadedRun(RunState("", self.table), StateCell(options.steps.state_type), serializer)
            loaded.state.running = True
        self.loaded = loaded
        self.state = state = loaded.state
        # Deliveries without a record, by the origin of their event and by their step.
        self.pending: dict[tuple[Origin, str], WorkItem] = {}
        # The open waits, by the number of the delivery and the key: from the snapshot, or as data of a record.
        self.waits: dict[int, dict[str, Any]] = {}
        # The open fan-outs, by the number of the record that opened them.
        self._streams = {stream.key: stream for stream in state.streams.values()}
        # Events that no step accepted; waits or other workflows may have taken them.
        self.loose: dict[Origin, EventArrived] = {}
        # The outcomes of deliveries that were undecided in the snapshot, with their places.
        self.outcomes: dict[int, tuple[int, StepReturned | StepFailed]] = {}
        # The changes of the state by path; None for a removed value.
        self.writes: dict[str, Unread | None] = {}
        self.stopped: Any = None
        self.ended: Any = loaded.result
        self._classes: dict[str, type[Event]] = {}
        self._take_over()

    def _take_over(self) -> None:
        """Sort the waits and the undecided ticks of a snapshot."""
        state = self.state
        for waiter in state.waiters:
            self.waits.setdefault(waiter.item.id, {})[waiter.key] = waiter
            waiter.item.open_waits = 0
        state.waiters.clear()
        for place, tick in enumerate(state.restored_ticks):
            if isinstance(tick, EventArrived):
                [(record, number)] = tick.causes
                self.sent((record.id, number), tick.event, tick.recoveries, tick.target)
            else:
                self.outcomes[tick.item.id] = place, tick
        state.restored_ticks = ()

    # --- events -------------------------------------------------------------------------------------------------------

    def unread(self, data: Any) -> Any:
        """Return an event or a value of a record."""
        return Unread(self._codec, data)

    def event_class(self, event: Any) -> type[Event]:
        """Return the class of an event.

        Raises:
            ReplayIncompatible: The class no longer exists.
        """
        if not isinstance(event, Unread):
            return cast("type[Event]", type(event))
        name = event.class_name
        cls = self._classes.get(name)
        if cls is None:
            declared = self.workflow.__batonflow__.declared_types
            found = next((cls for cls in declared if name in names_of(cls)), None) or loaded_class(name)
            if not isinstance(found, type) or not issubclass(found, Event):
                raise ReplayIncompatible(
                    f"The records of the run hold a {name}, and {type(self.workflow).__name__} knows no event class of "
                    "that name: restore it, declare it with Workflow(types=[...]), or translate old records with "
                    "Workflow(version=..., upcasters=...)"
                )
            cls = self._classes[name] = found
        return cls

    def asks(self, event: Any) -> bool:
        """Tell whether an event is a question to a person."""
        return issubclass(self.event_class(event), InputRequiredEvent)

    def came(
        self,
        origin: Origin,
        event: Any,
        stream: Stream | None = None,
        recoveries: Recoveries | None = None,
        target: str | None = None,
    ) -> bool:
        """Add an event for all steps that accept it; return False if no step does."""
        route = self.table.route(self.event_class(event))
        causes: Causes = ((PastRecord(origin[0]), origin[1]),)
        for spec in route.singles:
            if target is None or spec.name == target:
                self.deliver(spec, event, origin, stream, recoveries)
        for spec, slots in route.joins:
            if target is None or spec.name == target:
                queues, held = _queues(self.state.step(spec), 0 if stream is None else stream.id)
                slot = min(slots, key=lambda slot: len(queues[slot]))
                queues[slot].append(event)
                held[slot].extend(causes)
        if stream is not None and target is None:
            for spec in route.collects:
                if spec.name not in stream.released:
                    stream.collected.setdefault(spec.name, []).append(event)
                    stream.collected_causes.setdefault(spec.name, []).extend(causes)
        return route.accepted or route.is_input_required

    def deliver(
        self, spec: StepSpec, event: Any, origin: Origin, stream: Stream | None, recoveries: Recoveries | None
    ) -> None:
        """Add a delivery that no record has begun."""
        causes: Causes = ((PastRecord(origin[0]), origin[1]),)
        self.pending[origin, spec.name] = self._item(spec, event, causes, stream, recoveries)

    def _item(
        self, spec: StepSpec, event: Any, causes: Causes, stream: Stream | None, recoveries: Recoveries | None
    ) -> WorkItem:
        item = WorkItem(0, self.state.step(spec), event, stream, recoveries)
        item.causes = causes
        return item

    def sent(self, origin: Origin, event: Any, recoveries: Recoveries | None, target: str | None) -> None:
        """Add an event from outside of fan-outs; without an accepting step, keep it until a record consumes it."""
        if target == TO_STEPS:
            target = None
        elsewhere = is_address(target) or (target is not None and "." in target and target not in self.table.steps)
        if elsewhere or not self.came(origin, event, None, recoveries, target):
            self.loose[origin] = EventArrived(event, target, recoveries, ((PastRecord(origin[0]), origin[1]),))

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def delivery(self, record: dict[str, Any]) -> WorkItem:
        """Return the delivery that a record belongs to.

        Raises:
            ReplayIncompatible: The step no longer exists, or does not accept the event.
        """
        number, step = record["item"], record["step"]
        self.state.item_seq = max(self.state.item_seq, number)
        known = self.state.items.get(number)
        if known is not None:
            return known
        spec = self.table.steps.get(step)
        if spec is None:
            raise ReplayIncompatible(
                f"Step {step} of {type(self.workflow).__name__} is in the records of the run and not in the code: "
                "restore it, or translate old records with Workflow(version=..., upcasters=...)"
            )
        found = self.state.items[number] = self._begin(spec, record)
        found.id = number
        return found

    def _begin(self, spec: StepSpec, record: dict[str, Any]) -> WorkItem:
        """Remove the events of a delivery from the pending ones."""
        origins = [as_origin(origin) for origin in record.get("origins", ())]
        if spec.config.collect is not None:
            stream = self._streams.get(record["releases"])
            if stream is not None:
                return self._release(stream, spec, origins)
        elif len(spec.slots) > 1:
            for number in list(self.state.step(spec).joins):
                item = self._take_set(spec, number, origins)
                if item is not None:
                    return item
        elif origins and (origins[0], spec.name) in self.pending:
            return self.pending.pop((origins[0], spec.name))
        raise ReplayIncompatible(
            f"The records say that step {spec.name} of {type(self.workflow).__name__} took an event that its code does "
            "not take any more: let the step accept it again, or translate old records with Workflow(version=..., "
            "upcasters=...)"
        )

    def _release(self, stream: Stream, spec: StepSpec, origins: list[Origin]) -> WorkItem:
        """Return the delivery of a stream's collected events to a step."""
        stream.released.add(spec.name)
        events = stream.collected.pop(spec.name, [])
        causes = stream.collected_causes.pop(spec.name, [])
        members = {(record.id, number): event for event, (record, number) in zip(events, causes, strict=True)}
        found = [origin for origin in origins if origin in members]
        item = self._item(spec, None, _causes(origins), stream.parent, stream.recoveries)
        item.inputs = [members[origin] for origin in found]
        item.released_stream = stream.key
        return item

    def _take_set(self, spec: StepSpec, number: int, origins: Sequence[Origin]) -> WorkItem | None:
        """Return the delivery of a complete set of a join, or None without its events in this stream."""
        queues, held = _queues(self.state.step(spec), number)
        taken = [_take(queues, held, origin) for origin in origins]
        inputs = [event for event in taken if event is not None]
        if not inputs or len(inputs) < len(taken):
            return None
        stream = self.state.streams.get(number)
        last = max(range(len(origins)), key=lambda place: origins[place][0])
        item = self._item(spec, inputs[last], _causes(origins), stream, None if stream is None else stream.recoveries)
        item.inputs = tuple(inputs)
        return item

    def take_complete_sets(self) -> None:
        """Make deliveries of the complete sets in the joins that no record has begun."""
        for step in list(self.state.steps.values()):
            for number, queues in list(step.joins.items()):
                while all(queues):
                    origins = [(held[0][0].id, held[0][1]) for held in step.join_causes[number]]
                    item = self._take_set(step.spec, number, origins)
                    assert item is not None
                    self.pending[origins[0], step.spec.name] = item
                if not any(queues):
                    del step.joins[number], step.join_causes[number]

    def open_stream(self, number: int, item: WorkItem) -> Stream:
        """Open the stream of a list fan-out, which the record with this number returned."""
        state = self.state
        state.stream_seq += 1
        stream = Stream(state.stream_seq, item.spec.name, item.stream, item.recoveries)
        stream.key = number
        self._streams[number] = state.streams[stream.id] = stream
        return stream

    def forget(self, item: WorkItem) -> None:
        """Forget a finished delivery."""
        self.state.items.pop(item.id, None)
        self.waits.pop(item.id, None)

    def take_back(self, origin: Origin, step: str) -> None:
        """Remove an event that a wait of the step has taken."""
        self.loose.pop(origin, None)
        self.pending.pop((origin, step), None)
        if (known := self.state.steps.get(step)) is not None:
            for number, queues in known.joins.items():
                _take(queues, known.join_causes[number], origin)

    def stop(self, event: Any) -> None:
        """Stop the workflow, because a step returned the StopEvent."""
        self.stopped = event
        state = self.state
        for held in (state.items, state.streams, self.pending, self.waits, self._streams, self.loose, self.outcomes):
            held.clear()
        for step in state.steps.values():
            step.clear()

    # --- the state ----------------------------------------------------------------------------------------------------

    def write(self, path: str, value: Any) -> None:
        """Add a change of the state, and drop the changes that it replaces."""
        inside = f"{path}."
        for known in [known for known in self.writes if known == path or known.startswith(inside)]:
            del self.writes[known]
        self.writes[path] = None if value is None else self.unread(value)


def _causes(origins: Iterable[Origin]) -> Causes:
    return tuple((PastRecord(number), name) for number, name in origins)


def _queues(step: StepState, number: int) -> tuple[list[deque[Event]], list[deque[Cause]]]:
    """Return the queues of a join in a stream, with the causes of the events in them."""
    queues = step.joins.setdefault(number, [deque() for _ in step.spec.slots])
    return queues, step.join_causes.setdefault(number, [deque() for _ in step.spec.slots])


def _take(queues: list[deque[Event]], held: list[deque[Cause]], origin: Origin) -> Event | None:
    """Remove the event with an origin from the queues of a join, and return it."""
    for events, causes in zip(queues, held, strict=True):
        for place, (record, number) in enumerate(causes):
            if (record.id, number) == origin:
                del causes[place]
                event = events[place]
                del events[place]
                return event
    return None


def _numbers_at(item: WorkItem, number: Any) -> tuple[Numbers, int]:
    """Return the counters for a number in a record, and the number there."""
    progress = item.make_progress()
    if isinstance(number, list | tuple):
        key, inner = cast("list[Any]", number)
        return progress.once_call(key), inner
    return progress, number


class RecordedRun:
    """A run from its records.

    Args:
        workflow: The workflow of the root run.
        stored: The parts that its records refer to; None for records without references.
    """

    def __init__(self, workflow: AnyWorkflow, stored: PartObjects | None = None) -> None:
        self.workflow = workflow
        self.stored = stored
        self.places: dict[str, RecordedWorkflow] = {}
        # Child runs of workflows that are attached later; the calling step starts them again.
        self.unknown: set[str] = set()
        self.questions: list[Question] = []
        # The numbers of questions that were answered before the record of the asking step.
        self.answered: set[int] = set()
        self.elapsed = 0.0
        self.last_record = 0
        self.last_streamed = -1
        # Whether a server started the run or the fork.
        self.served = False

    @property
    def root(self) -> RecordedWorkflow:
        """The run itself."""
        return self.places[""]

    def begin_with(self, payload: dict[str, Any]) -> None:
        """Begin with the snapshot that was written before the records.

        Raises:
            ContextSerdeError: The code of the workflow does not fit the snapshot.
        """
        self.last_record = max(self.last_record, int(payload.get("last_record") or 0))
        self.last_streamed = int(payload.get("last_streamed", -1))
        loaded = load_run(self.workflow, payload, self.workflow.__batonflow__.serializer, is_complete=False)
        self.elapsed, self.served = loaded.state.elapsed, loaded.state.served
        self.questions = list(loaded.state.questions)
        self._place_of_snapshot("", self.workflow, loaded, None)

    def _place_of_snapshot(
        self, path: str, workflow: AnyWorkflow, loaded: LoadedRun, child: dict[str, Any] | None
    ) -> None:
        self.places[path] = RecordedWorkflow(path, workflow, child, self.stored, loaded)
        for saved in loaded.children:
            inner = workflow.__batonflow__.children.get(saved.name)
            if inner is None:
                self.unknown.add(saved.path)
                continue
            own = load_run(inner, saved.payload, inner.__batonflow__.serializer, is_complete=False)
            own.result = saved.result(loaded.serializer) if saved.is_over else None
            about = {"name": saved.name, "call": saved.call, "by_event": saved.by_event}
            self._place_of_snapshot(saved.path, inner, own, about)

    def commit(self, records: Iterable[dict[str, Any]], elapsed: float | None = None) -> None:
        """Add the records of one commit.

        Raises:
            ReplayIncompatible: The code of the workflow does not fit the records.
            StoreError: The records contradict each other.
        """
        for record in records:
            self.last_record = max(self.last_record, record["id"])
            if record["path"] in self.unknown:
                continue
            try:
                _APPLY[record["kind"]](self, record)
            except (KeyError, IndexError, TypeError) as error:
                raise StoreError(f"Record {record.get('id')} of the run cannot be used: {error!r}") from error
        if elapsed is not None:
            self.elapsed = elapsed

    def _place(self, record: dict[str, Any]) -> RecordedWorkflow:
        return self.places[record["path"]]

    def _used_elsewhere(self, record: dict[str, Any]) -> None:
        """Remove an event that another workflow of the tree has taken."""
        for origin in map(as_origin, record.get("origins", ())):
            for place in self.places.values():
                place.loose.pop(origin, None)

    def _restored(self, record: dict[str, Any]) -> None:
        self.begin_with(record["snapshot"])

    def _started(self, record: dict[str, Any]) -> None:
        path: str = record["path"]
        self.served = self.served or bool(record.get("served"))
        workflow, child = self.workflow, record.get("child")
        if child is not None:
            outer = self.places[path.rpartition("/")[0]]
            found = outer.workflow.__batonflow__.children.get(child["name"])
            counts = outer.loaded.counts
            counts[child["name"]] = counts.get(child["name"], 0) + 1
            self._used_elsewhere(record)
            if child["call"] is not None:
                outer.delivery(child["caller"])
            if found is None:
                self.unknown.add(path)
                return
            workflow = found
        place = self.places[path] = RecordedWorkflow(path, workflow, child, self.stored)
        for name, value in record.get("state", ()):
            place.write(name, value)
        place.sent((record["id"], 0), place.unread(record["event"]), None, record.get("target"))

    def _input(self, record: dict[str, Any]) -> None:
        self._used_elsewhere(record)
        place = self._place(record)
        event = place.unread(record["event"])
        target: str | None = record.get("target")
        place.sent((record["id"], 0), event, None, target)
        if is_address(target) and target != TO_STEPS:
            return  # the record of the wait names the question that it closes
        if not place.table.route(place.event_class(event)).takes_human:
            return
        answered = record.get("answers")
        if answered is None and self.questions:
            self.questions.pop(0)
        elif answered:
            left = [question for question in self.questions if question.number != answered]
            if len(left) == len(self.questions):
                self.answered.add(answered)
            self.questions = left

    def _answered(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        for origin in map(as_origin, record.get("origins", ())):
            place.take_back(origin, record["step"])
        item = place.state.items.get(record["item"])
        if item is not None:
            place.waits.get(item.id, {}).pop(record["key"], None)
            event = record.get("event")
            item.make_progress().answers[record["key"]] = None if event is None else place.unread(event)
        self._close_question(place, record["item"])

    def _close_question(self, place: RecordedWorkflow, delivery: int) -> None:
        """Close the oldest question that a delivery has streamed for its own wait."""
        for question in self.questions:
            if question.cause == delivery and question.path == place.path:
                self.questions.remove(question)
                return

    def _dropped(self, record: dict[str, Any]) -> None:
        self._used_elsewhere(record)

    def _edited(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        self.served = self.served or bool(record.get("served"))
        for _, path, value in record["writes"]:
            place.write(path, value)

    def _ended(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        place.stop(place.unread(record["event"]))
        place.ended = place.stopped
        if place.child is not None and place.child["call"] is None:
            self._forget(place.path)

    def _forget(self, path: str) -> None:
        for known in [known for known in self.places if known == path or known.startswith(f"{path}/")]:
            del self.places[known]

    def _forget_calls(self, place: RecordedWorkflow, item: WorkItem) -> None:
        """End the child runs that an attempt has called."""
        for path, inner in list(self.places.items()):
            child = inner.child
            if child is None or child["call"] is None or path.rpartition("/")[0] != place.path:
                continue
            if child["call"][0] == item.id:
                self._forget(path)

    # --- records of attempts ------------------------------------------------------------------------------------------

    def _segment(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        if place.stopped is not None:
            return
        item = place.delivery(record)
        place.outcomes.pop(item.id, None)
        for key in record.get("gave_up", ()):
            place.waits.get(item.id, {}).pop(key, None)
        for number, path, value in record.get("writes", ()):
            place.write(path, value)
            numbers, inner = _numbers_at(item, number)
            numbers.skip_writes = max(numbers.skip_writes, inner)
        for number, event, target in record.get("sends", ()):
            numbers, inner = _numbers_at(item, number)
            numbers.skip_sends = max(numbers.skip_sends, inner)
            place.sent(as_origin((record["id"], number)), place.unread(event), item.recoveries, target)
        kind, *rest = record["outcome"]
        asked = rest[0].get("question") if kind == "waiting" else None
        for number, event, seq, _, *last in record.get("streamed", ()):
            numbers, inner = _numbers_at(item, number)
            numbers.skip_streamed = max(numbers.skip_streamed, inner)
            self.last_streamed = max(self.last_streamed, *last[:1], seq)
            if event is not None and event != asked and place.asks(place.unread(event)):  # the wait keeps its question
                self._ask(place, item, place.unread(event), seq)
        for number, buffer, event, found in record.get("collects", ()):
            self._collect(place, item, number, buffer, event, found)
        _OUTCOMES[kind](self, place, item, record, *rest)

    def _collect(
        self, place: RecordedWorkflow, item: WorkItem, number: Any, name: str, event: Any, found: list[Any] | None
    ) -> None:
        buffers = item.step.buffers
        buffer = buffers.setdefault(name, Buffer())
        if event is not None:
            unread = place.unread(event)
            cls = place.event_class(unread)
            buffer.have.setdefault(cls, deque()).append(unread)
            buffer.keys.setdefault(cls, deque()).append([item.id, number])
        numbers, inner = _numbers_at(item, number)
        results = numbers.collected = numbers.collected or []
        results += [None] * (inner + 1 - len(results))
        results[inner] = None if found is None else [_from_buffer(buffer, as_origin(key)) for key in found]
        if not any(buffer.have.values()):
            del buffers[name]

    def _returned(
        self,
        place: RecordedWorkflow,
        item: WorkItem,
        record: dict[str, Any],
        returned: list[Any] | None = None,
        listed: bool = False,
    ) -> None:
        place.forget(item)
        self._forget_calls(place, item)
        number = record["id"]
        events = list(map(place.unread, returned or ()))
        for event in events:
            if issubclass(place.event_class(event), StopEvent):
                place.stop(event)
                return
        stream = place.open_stream(number, item) if listed else item.stream
        places = [seq for seq, _ in record.get("published", ())]
        places.reverse()
        for index, event in enumerate(events):
            place.came((number, -1 - index), event, stream, item.recoveries)
            if place.asks(event):
                self._ask(place, item, event, places.pop())

    def _ask(self, place: RecordedWorkflow, item: WorkItem, event: Any, seq: int) -> None:
        """Open a question to a person. Its place in the stream gives it its number, as in ``OpenQuestions``."""
        if seq + 1 in self.answered:
            self.answered.discard(seq + 1)
            return
        self.questions.append(Question(event, place.path, item.id, number=seq + 1))

    def _waiting(self, place: RecordedWorkflow, item: WorkItem, record: Any, waiter: dict[str, Any]) -> None:  # noqa: ARG002
        place.waits.setdefault(item.id, {})[waiter["key"]] = waiter

    def _once(self, place: RecordedWorkflow, item: WorkItem, record: dict[str, Any], result: list[Any]) -> None:  # noqa: ARG002
        key, value = result
        progress = item.make_progress()
        progress.once = {**(progress.once or {}), key: place.unread(value)}
        (progress.once_calls or {}).pop(key, None)
        (progress.intents or {}).pop(key, None)

    def _intent(self, place: RecordedWorkflow, item: WorkItem, record: dict[str, Any], intent: list[Any]) -> None:  # noqa: ARG002
        key, about = intent
        progress = item.make_progress()
        progress.intents = {**(progress.intents or {}), key: about}

    def _cancelled(self, place: RecordedWorkflow, item: WorkItem, record: dict[str, Any]) -> None:
        """Reset a cancelled delivery, which starts again in a fork from before the end of the run."""

    def _raised(self, place: RecordedWorkflow, item: WorkItem, record: dict[str, Any], key: str) -> None:  # noqa: ARG002
        (item.make_progress().intents or {}).pop(key, None)

    def _failed(
        self,
        place: RecordedWorkflow,
        item: WorkItem,
        record: dict[str, Any],
        error: dict[str, Any],
        verdict: dict[str, Any] | None = None,
    ) -> None:
        self._forget_calls(place, item)
        self.questions = [
            question for question in self.questions if question.cause != item.id or question.path != place.path
        ]
        then = (verdict or {}).get("then")
        if then == "retry" and verdict is not None:
            count = item.failures.count + 1 if item.failures is not None else 1
            first = float(verdict.get("first_attempt_at") or 0.0)
            item.failures = Failures(count, first, load_exception(error), verdict.get("last_failed_at"))
            item.due = verdict["due"]
            place.waits.pop(item.id, None)
            item.make_progress().begin_again()
        elif then == "recovered" and verdict is not None:
            place.forget(item)
            handler, event = place.table.steps[verdict["step"]], place.unread(verdict["event"])
            place.deliver(handler, event, (record["id"], -1), item.stream, verdict["recoveries"])


def _from_buffer(buffer: Buffer, key: Origin) -> Event:
    """Remove an event from a buffer of ``collect_events``."""
    for cls, keys in buffer.keys.items():
        for place, known in enumerate(keys):
            if as_origin(known) == key:
                del keys[place]
                event = buffer.have[cls][place]
                del buffer.have[cls][place]
                return event
    raise KeyError(key)


_KINDS = ("restored", "started", "input", "segment", "answered", "dropped", "edited", "ended")
_APPLY: dict[str, Any] = {kind: getattr(RecordedRun, f"_{kind}") for kind in _KINDS}

_KINDS_OF_OUTCOMES = ("returned", "waiting", "once", "intent", "cancelled", "raised", "failed")
_OUTCOMES: dict[str, Any] = {kind: getattr(RecordedRun, f"_{kind}") for kind in _KINDS_OF_OUTCOMES}

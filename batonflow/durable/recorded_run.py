"""The state of a run as its records leave it: its unfinished work, found without running the code of its steps.

A record says that a delivery did something; the work that is left is the deliveries that no record has ended. Every
event is named by the record that made it and its number there (its *origin*), and every delivery by the origins of the
events in it. So the result depends on the order of commits only, not on the order of deliveries: an event is pending
for each step that takes it until a record says that it was consumed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.durable.codec import Codec
from batonflow.durable.parts.objects import PartObjects
from batonflow.durable.parts.references import change_values
from batonflow.values.names import loaded_class, names_of
from batonflow.workflow_core.engine.state import TO_STEPS, Origin, as_origin, is_address
from batonflow.workflow_core.errors import ReplayIncompatible, StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec, StepTable

__all__ = ["Delivery", "Numbers", "Occurrence", "RecordedRun", "RecordedStream", "RecordedWorkflow"]

Occurrence = tuple[Origin, Any]
"""An event as data, with its origin."""


@dataclass(slots=True)
class Numbers:
    """The counters of a delivery, or of a call of ``ctx.once`` in it, in the current attempt."""

    sends: int = 0
    writes: int = 0
    streamed: int = 0
    collected: dict[int, list[Any] | None] = field(default_factory=dict[int, list[Any] | None])

    def begin_again(self) -> None:
        """Reset the counters for the next attempt."""
        self.sends = self.writes = self.streamed = 0


@dataclass(slots=True)
class Delivery:
    """An event, or several joined events, for a step.

    Attributes:
        step: The step.
        event: The event as data; None for a step with a list parameter.
        origins: The origins of its events.
        inputs: All events of a join or a collection.
        stream: The number of the record that opened its fan-out; 0 outside of fan-outs.
        recoveries: The number of earlier recoveries by each handler.
        id: Its number in the run, if a record contains it.
        releases: For a collection: the number of the record that opened the stream.
        attempts: The number of failures.
        failure: The data of the last failure.
        due: The time of the next attempt.
        numbers: The counters of its progress.
        calls: The counters of calls of ``ctx.once`` without a result.
        answers: The answers of waits, by key.
        once: The results of ``ctx.once``, by key.
        intents: The intents of effects without a result, by key.
        waits: The open waits, by key.
        outcome: The outcome of the step from the first snapshot of the run, if it is undecided.
    """

    step: str
    event: Any
    origins: list[Origin]
    inputs: list[Any] | None = None
    stream: int = 0
    recoveries: dict[str, int] | None = None
    id: int = 0
    releases: int = 0
    attempts: int = 0
    failure: dict[str, Any] | None = None
    due: float | None = None
    numbers: Numbers = field(default_factory=Numbers)
    calls: dict[str, Numbers] = field(default_factory=dict[str, Numbers])
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    once: dict[str, Any] = field(default_factory=dict[str, Any])
    intents: dict[str, Any] = field(default_factory=dict[str, Any])
    waits: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    outcome: dict[str, Any] | None = None

    def place(self, number: Any) -> tuple[Numbers, int]:
        """Return the counters for a number in a record, and the number there."""
        if isinstance(number, list | tuple):
            key, inner = cast("list[Any]", number)
            return self.calls.setdefault(key, Numbers()), inner
        return self.numbers, number


@dataclass(slots=True)
class RecordedStream:
    """An open list fan-out."""

    producer: str
    parent: int
    recoveries: dict[str, int] | None
    collected: dict[str, list[Occurrence]] = field(default_factory=dict[str, list[Occurrence]])
    released: set[str] = field(default_factory=set[str])


class RecordedWorkflow:
    """The recorded state of one workflow of the tree.

    Args:
        path: The path of the workflow's run; empty for the run itself.
        workflow: The workflow; None if it is unknown, so that its records are ignored.
        child: The data of the child run in its parent.
        stored: The parts that its records refer to.
    """

    def __init__(
        self, path: str, workflow: AnyWorkflow, child: dict[str, Any] | None = None, stored: PartObjects | None = None
    ) -> None:
        self.path = path
        self.workflow = workflow
        options = workflow.__batonflow__
        self.table: StepTable = options.steps.table
        self.codec = Codec(options.serializer, stored=stored)
        self.child = child
        # Deliveries with numbers, and deliveries without a record by the origins of their events.
        self.begun: dict[int, Delivery] = {}
        self.pending: dict[tuple[Origin, str], Delivery] = {}
        # The waiting events of joins: by step, stream and slot.
        self.joins: dict[str, dict[int, list[list[Occurrence]]]] = {}
        # The events of collect_events: by step, buffer and name of the collect.
        self.buffers: dict[str, dict[str, dict[Any, Any]]] = {}
        self.streams: dict[int, RecordedStream] = {}
        # Events that no step accepted; waits or other workflows may have taken them.
        self.loose: dict[Origin, tuple[Any, str | None, dict[str, int] | None]] = {}
        self.base: dict[str, Any] = {}
        self.writes: list[tuple[str, Any]] = []
        self.children: dict[str, int] = {}
        self.stopped: Any = None
        self.ended: Any = None
        self.last_delivery = 0
        self._classes: dict[str, type[Event]] = {
            name: cls for cls in options.declared_types if issubclass(cls, Event) for name in names_of(cls)
        }

    # --- events -------------------------------------------------------------------------------------------------------

    def event_class(self, data: Any) -> type[Event]:
        """Return the class of an event.

        Raises:
            ReplayIncompatible: The class does not exist any more.
        """
        name = self.codec.class_name(data)
        cls = self._classes.get(name)
        if cls is None:
            found = loaded_class(name)
            if not isinstance(found, type) or not issubclass(found, Event):
                raise ReplayIncompatible(
                    f"The records of the run hold a {name}, and {type(self.workflow).__name__} knows no event class of "
                    "that name: restore it, declare it with Workflow(types=[...]), or translate old records with "
                    "Workflow(version=..., upcasters=...)"
                )
            cls = self._classes[name] = found
        return cls

    def came(
        self,
        origin: Origin,
        event: Any,
        stream: int = 0,
        recoveries: dict[str, int] | None = None,
        target: str | None = None,
    ) -> bool:
        """Add an event for all steps that accept it; return False if no step does."""
        route = self.table.route(self.event_class(event))
        for spec in route.singles:
            if target is None or spec.name == target:
                self.pending[origin, spec.name] = Delivery(
                    spec.name, event, [origin], stream=stream, recoveries=recoveries
                )
        for spec, slots in route.joins:
            if target is None or spec.name == target:
                queues = self.joins.setdefault(spec.name, {}).setdefault(stream, [[] for _ in spec.slots])
                queues[min(slots, key=lambda slot: len(queues[slot]))].append((origin, event))
        if stream and target is None:
            for spec in route.collects:
                opened = self.streams[stream]
                if spec.name not in opened.released:
                    opened.collected.setdefault(spec.name, []).append((origin, event))
        return route.accepted or route.is_input_required

    def sent(self, origin: Origin, event: Any, recoveries: dict[str, int] | None, target: str | None) -> None:
        """Add an event from outside of fan-outs; without an accepting step, keep it until a record consumes it."""
        if target == TO_STEPS:
            target = None
        elsewhere = is_address(target) or (target is not None and "." in target and target not in self.table.steps)
        if elsewhere or not self.came(origin, event, 0, recoveries, target):
            self.loose[origin] = event, target, recoveries

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def delivery(self, record: dict[str, Any]) -> Delivery:
        """Return the delivery that a record belongs to.

        Raises:
            ReplayIncompatible: The step does not exist any more, or does not accept the event.
        """
        number, step = record["item"], record["step"]
        self.last_delivery = max(self.last_delivery, number)
        known = self.begun.get(number)
        if known is not None:
            return known
        spec = self.table.steps.get(step)
        if spec is None:
            raise ReplayIncompatible(
                f"Step {step} of {type(self.workflow).__name__} is in the records of the run and not in the code: "
                "restore it, or translate old records with Workflow(version=..., upcasters=...)"
            )
        found = self._begin(spec, record)
        found.id = number
        self.begun[number] = found
        return found

    def _begin(self, spec: StepSpec, record: dict[str, Any]) -> Delivery:
        """Remove the events of a delivery from the pending ones."""
        origins = [as_origin(origin) for origin in record.get("origins", ())]
        if spec.config.collect is not None:
            stream = self.streams.get(record["releases"])
            if stream is not None:
                return self.release(record["releases"], stream, spec, origins)
        elif len(spec.slots) > 1:
            for number, queues in self.joins.get(spec.name, {}).items():
                taken = [_take(queues, origin) for origin in origins]
                inputs = [one for one in taken if one is not None]
                if inputs and len(inputs) == len(origins):
                    return self.joined(spec, inputs, number)
        elif origins and (origins[0], spec.name) in self.pending:
            return self.pending.pop((origins[0], spec.name))
        raise ReplayIncompatible(
            f"The records say that step {spec.name} of {type(self.workflow).__name__} took an event that its code does "
            "not take any more: restore what it accepts, or translate old records with Workflow(version=..., "
            "upcasters=...)"
        )

    def release(self, number: int, stream: RecordedStream, spec: StepSpec, origins: list[Origin]) -> Delivery:
        """Return the delivery of a stream's collected events to a step."""
        stream.released.add(spec.name)
        members = dict(stream.collected.pop(spec.name, ()))
        inputs = [members[origin] for origin in origins if origin in members]
        return Delivery(spec.name, None, origins, inputs, stream.parent, stream.recoveries, releases=number)

    def joined(self, spec: StepSpec, inputs: list[Occurrence], stream: int) -> Delivery:
        """Return the delivery of a complete set."""
        last = max(inputs, key=lambda one: one[0][0])
        opened = self.streams.get(stream)
        return Delivery(
            spec.name,
            last[1],
            [origin for origin, _ in inputs],
            [event for _, event in inputs],
            stream,
            opened.recoveries if opened is not None else None,
        )

    def forget(self, delivery: Delivery) -> None:
        """Forget a finished delivery."""
        self.begun.pop(delivery.id, None)

    def take_back(self, origin: Origin, step: str) -> None:
        """Remove an event that a wait of the step has taken."""
        self.loose.pop(origin, None)
        self.pending.pop((origin, step), None)
        for queues in self.joins.get(step, {}).values():
            _take(queues, origin)

    def stop(self, event: Any) -> None:
        """Stop the workflow, because a step returned the StopEvent."""
        self.stopped = event
        self.begun.clear()
        self.pending.clear()
        self.joins.clear()
        self.buffers.clear()
        self.streams.clear()
        self.loose.clear()

    # --- the state ----------------------------------------------------------------------------------------------------

    def write(self, path: str, value: Any) -> None:
        """Add a change of the state, and drop the changes that it replaces."""
        inside = f"{path}."
        self.writes = [one for one in self.writes if one[0] != path and not one[0].startswith(inside)]
        self.writes.append((path, value))


def _take(queues: list[list[Occurrence]], origin: Origin) -> Occurrence | None:
    for queue in queues:
        for place, occurrence in enumerate(queue):
            if occurrence[0] == origin:
                return queue.pop(place)
    return None


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
        self.questions: list[dict[str, Any]] = []
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

    def commit(self, records: Iterable[dict[str, Any]], elapsed: float | None = None) -> None:
        """Add the records of one commit.

        Raises:
            ReplayIncompatible: The code of the workflow does not fit the records.
            StoreError: The records contradict each other.
        """
        if elapsed is not None:
            self.elapsed = elapsed
        for record in records:
            self.last_record = max(self.last_record, record["id"])
            if record["path"] and self.stored is not None:  # a child run may have another serializer
                change_values(record, self.stored.expanded)
            if record["path"] in self.unknown:
                continue
            try:
                _APPLY[record["kind"]](self, record)
            except (KeyError, IndexError, TypeError) as error:
                raise StoreError(f"Record {record.get('id')} of the run cannot be used: {error!r}") from error

    def _place(self, record: dict[str, Any]) -> RecordedWorkflow:
        return self.places[record["path"]]

    def _used_elsewhere(self, record: dict[str, Any]) -> None:
        """Remove an event that another workflow of the tree has taken."""
        for origin in map(as_origin, record.get("origins", ())):
            for place in self.places.values():
                place.loose.pop(origin, None)

    def _started(self, record: dict[str, Any]) -> None:
        path: str = record["path"]
        self.served = self.served or bool(record.get("served"))
        workflow, child = self.workflow, record.get("child")
        if child is not None:
            outer = self.places[path.rpartition("/")[0]]
            found = outer.workflow.__batonflow__.children.get(child["name"])
            outer.children[child["name"]] = outer.children.get(child["name"], 0) + 1
            self._used_elsewhere(record)
            if child["call"] is not None:
                outer.delivery(child["caller"])
            if found is None:
                self.unknown.add(path)
                return
            workflow = found
        stored = None if path else self.stored
        place = self.places[path] = RecordedWorkflow(path, workflow, child, stored)
        for name, value in record.get("state", ()):
            place.write(name, value)
        place.sent((record["id"], 0), record["event"], None, record.get("target"))

    def _input(self, record: dict[str, Any]) -> None:
        self._used_elsewhere(record)
        place = self._place(record)
        event = record["event"]
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
            left = [question for question in self.questions if question["number"] != answered]
            if len(left) == len(self.questions):
                self.answered.add(answered)
            self.questions = left

    def _answered(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        for origin in map(as_origin, record.get("origins", ())):
            place.take_back(origin, record["step"])
        delivery = place.begun.get(record["item"])
        if delivery is not None:
            delivery.waits.pop(record["key"], None)
            delivery.answers[record["key"]] = record.get("event")
        self._close_question(place, record["item"])

    def _close_question(self, place: RecordedWorkflow, delivery: int) -> None:
        """Close the oldest question that a delivery has streamed for its own wait."""
        for question in self.questions:
            if question["cause"] == delivery and question["path"] == place.path:
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
        place.stop(record["event"])
        place.ended = record["event"]
        if place.child is not None and place.child["call"] is None:
            self._forget(place.path)

    def _forget(self, path: str) -> None:
        for known in [known for known in self.places if known == path or known.startswith(f"{path}/")]:
            del self.places[known]

    def _forget_calls(self, place: RecordedWorkflow, delivery: Delivery) -> None:
        """End the child runs that an attempt has called."""
        for path, inner in list(self.places.items()):
            child = inner.child
            if child is None or child["call"] is None or path.rpartition("/")[0] != place.path:
                continue
            if child["call"][0] == delivery.id:
                self._forget(path)

    # --- records of attempts ------------------------------------------------------------------------------------------

    def _segment(self, record: dict[str, Any]) -> None:
        place = self._place(record)
        if place.stopped is not None:
            return
        delivery = place.delivery(record)
        delivery.outcome = None
        for key in record.get("gave_up", ()):
            delivery.waits.pop(key, None)
        for number, path, value in record.get("writes", ()):
            place.write(path, value)
            numbers, inner = delivery.place(number)
            numbers.writes = max(numbers.writes, inner)
        for number, event, target in record.get("sends", ()):
            numbers, inner = delivery.place(number)
            numbers.sends = max(numbers.sends, inner)
            place.sent(as_origin((record["id"], number)), event, delivery.recoveries, target)
        kind, *rest = record["outcome"]
        asked = rest[0].get("question") if kind == "waiting" else None
        for number, event, seq, _, *last in record.get("streamed", ()):
            numbers, inner = delivery.place(number)
            numbers.streamed = max(numbers.streamed, inner)
            self.last_streamed = max(self.last_streamed, *last[:1], seq)
            if event is not None and event != asked and _asks(place, event):  # the wait keeps its question
                self._ask(place, delivery, event, seq)
        for number, buffer, event, found in record.get("collects", ()):
            self._collect(place, delivery, number, buffer, event, found)
        getattr(self, f"_{kind}")(place, delivery, record, *rest)

    def _collect(
        self, place: RecordedWorkflow, delivery: Delivery, number: Any, buffer: str, event: Any, found: list[Any] | None
    ) -> None:
        held = place.buffers.setdefault(delivery.step, {}).setdefault(buffer, {})
        if event is not None:
            held[as_origin([delivery.id, number])] = event
        numbers, inner = delivery.place(number)
        numbers.collected[inner] = None if found is None else [held.pop(as_origin(key)) for key in found]
        if not held:
            del place.buffers[delivery.step][buffer]

    def _returned(
        self,
        place: RecordedWorkflow,
        delivery: Delivery,
        record: dict[str, Any],
        events: list[Any] | None = None,
        listed: bool = False,
    ) -> None:
        place.forget(delivery)
        self._forget_calls(place, delivery)
        number = record["id"]
        for event in events or ():
            if issubclass(place.event_class(event), StopEvent):
                place.stop(event)
                return
        stream = delivery.stream
        if listed:
            place.streams[number] = RecordedStream(delivery.step, delivery.stream, delivery.recoveries)
            stream = number
        places = [seq for seq, _ in record.get("published", ())]
        places.reverse()
        for index, event in enumerate(events or ()):
            place.came((number, -1 - index), event, stream, delivery.recoveries)
            if _asks(place, event):
                self._ask(place, delivery, event, places.pop())

    def _ask(self, place: RecordedWorkflow, delivery: Delivery, event: Any, seq: int) -> None:
        """A question to a person stands open; its place in the stream gives it its number, as in ``OpenQuestions``."""
        if seq + 1 in self.answered:
            self.answered.discard(seq + 1)
            return
        text = place.codec.text(event)
        self.questions.append({"event": text, "path": place.path, "cause": delivery.id, "number": seq + 1})

    def _waiting(self, place: RecordedWorkflow, delivery: Delivery, record: Any, waiter: dict[str, Any]) -> None:  # noqa: ARG002
        delivery.waits[waiter["key"]] = waiter

    def _once(self, place: RecordedWorkflow, delivery: Delivery, record: dict[str, Any], result: list[Any]) -> None:  # noqa: ARG002
        key, value = result
        delivery.once[key] = value
        delivery.calls.pop(key, None)
        delivery.intents.pop(key, None)

    def _intent(self, place: RecordedWorkflow, delivery: Delivery, record: dict[str, Any], intent: list[Any]) -> None:  # noqa: ARG002
        key, about = intent
        delivery.intents[key] = about

    def _cancelled(self, place: RecordedWorkflow, delivery: Delivery, record: dict[str, Any]) -> None:
        """Reset a cancelled delivery, which starts again in a fork from before the end of the run."""

    def _raised(self, place: RecordedWorkflow, delivery: Delivery, record: dict[str, Any], key: str) -> None:  # noqa: ARG002
        delivery.intents.pop(key, None)

    def _failed(
        self,
        place: RecordedWorkflow,
        delivery: Delivery,
        record: dict[str, Any],
        error: dict[str, Any],
        verdict: dict[str, Any] | None = None,
    ) -> None:
        self._forget_calls(place, delivery)
        self.questions = [
            question
            for question in self.questions
            if question["cause"] != delivery.id or question["path"] != place.path
        ]
        then = (verdict or {}).get("then")
        if then == "retry" and verdict is not None:
            delivery.attempts += 1
            delivery.failure = {**verdict, "error": error}
            delivery.due = verdict["due"]
            delivery.waits.clear()
            delivery.numbers.begin_again()
            for call in delivery.calls.values():
                call.begin_again()
        elif then == "recovered" and verdict is not None:
            place.forget(delivery)
            origin: Origin = (record["id"], -1)
            place.pending[origin, verdict["step"]] = Delivery(
                verdict["step"], verdict["event"], [origin], stream=delivery.stream, recoveries=verdict["recoveries"]
            )


def _asks(place: RecordedWorkflow, event: Any) -> bool:
    return issubclass(place.event_class(event), InputRequiredEvent)


_KINDS = ("started", "input", "segment", "answered", "dropped", "edited", "ended")
_APPLY: dict[str, Any] = {kind: getattr(RecordedRun, f"_{kind}") for kind in _KINDS}

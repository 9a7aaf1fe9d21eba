"""Recovery: recorded runs as snapshots that runs are restored from, and snapshots as recorded runs."""

from typing import Any

from batonflow.durable.parts.objects import PartObjects
from batonflow.durable.parts.references import escaped_texts
from batonflow.durable.recorded_run import Delivery, Numbers, Occurrence, RecordedRun, RecordedStream, RecordedWorkflow
from batonflow.values.payloads import entries, mapping
from batonflow.workflow_core.engine.state import as_origin
from batonflow.workflow_core.events import CollectionReleaseEvent
from batonflow.workflow_core.options import AnyWorkflow

__all__ = ["add_commit", "begin_with_snapshot", "from_snapshot", "snapshot_of"]


# --- from a recorded run to a snapshot --------------------------------------------------------------------------------


def snapshot_of(recorded: RecordedRun, run_id: str) -> dict[str, Any]:
    """Return the snapshot from which a run is restored."""
    payload = _Writer(recorded, recorded.root).payload(run_id)
    payload["questions"] = list(recorded.questions)
    payload["elapsed_alive"] = recorded.elapsed
    payload["last_record"] = recorded.last_record
    payload["last_streamed"] = recorded.last_streamed
    payload["served"] = recorded.served
    return payload


class _Writer:
    """The writer of one workflow of the tree."""

    def __init__(self, recorded: RecordedRun, place: RecordedWorkflow) -> None:
        self._recorded = recorded
        self._place = place
        self._text = place.codec.text
        self._next = place.last_delivery

    def payload(self, run_id: str) -> dict[str, Any]:
        place = self._place
        deliveries = [*place.begun.values(), *place.pending.values()]
        deliveries += self._complete_joins()
        deliveries += self._complete_streams(deliveries)
        for delivery in deliveries:
            if not delivery.id:
                self._next += 1
                delivery.id = self._next
        workers: dict[str, Any] = {name: self._worker(name, deliveries) for name in place.table.steps}
        for delivery in place.pending.values():
            delivery.id = 0  # only a record determines its number
        return {
            "version": 2,
            "state": place.base,
            "writes": [[path, None if value is None else self._text(value)] for path, value in place.writes],
            "is_running": place.ended is None,
            "stopped": None if place.stopped is None else self._text(place.stopped),
            "run_id": run_id,
            "workers": workers,
            "stream_seq": 0,
            "work_item_seq": self._next,
            "waiter_seq": 0,
            "deliveries": [
                {
                    "event": self._text(event),
                    "step_id": target,
                    "recovery_counts": recoveries or {},
                    "scope_path": [],
                    "origins": [origin],
                }
                for origin, (event, target, recoveries) in place.loose.items()
            ],
            "streams": {str(number): self._stream(number, stream) for number, stream in place.streams.items()},
            "elapsed_alive": 0.0,
            "children": {"counts": dict(place.children), "runs": self._children(run_id)},
        }

    def _children(self, run_id: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        for path, inner in self._recorded.places.items():
            child = inner.child
            if child is None or path.rpartition("/")[0] != self._place.path:
                continue
            payload = _Writer(self._recorded, inner).payload(f"{run_id}/{path.rpartition('/')[2]}")
            if inner.ended is not None:
                payload["result"] = inner.codec.text(inner.ended)
            runs.append({**child, "path": path, "payload": payload})
        return runs

    # --- complete joins and collections -------------------------------------------------------------------------------

    def _complete_joins(self) -> list[Delivery]:
        """Remove the complete sets from the joins, and return their deliveries."""
        found: list[Delivery] = []
        place = self._place
        for step, streams in place.joins.items():
            spec = place.table.steps[step]
            for number, queues in streams.items():
                while queues and all(queues):
                    found.append(place.joined(spec, [queue.pop(0) for queue in queues], number))
        return found

    def _complete_streams(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return the deliveries of complete collections, from finished streams or with enough events."""
        place = self._place
        found: list[Delivery] = []
        for number in sorted(place.streams, reverse=True):  # inner streams are opened after outer ones
            stream = place.streams[number]
            for name, members in list(stream.collected.items()):
                spec = place.table.steps[name]
                if spec.take and len(members) >= spec.take and name not in stream.released:
                    origins = [origin for origin, _ in members[: spec.take]]
                    found.append(place.release(number, stream, spec, origins))
            if self._is_open(number, [*deliveries, *found]):
                continue
            bound = list(place.table.bound_collectors(stream.producer))
            bound += [place.table.steps[name] for name in stream.collected if place.table.steps[name] not in bound]
            for spec in bound:
                if spec.name not in stream.released:
                    origins = [origin for origin, _ in stream.collected.get(spec.name, ())]
                    found.append(place.release(number, stream, spec, origins))
            del place.streams[number]
        return found

    def _is_open(self, number: int, deliveries: list[Delivery]) -> bool:
        """Tell whether there is unfinished work in a stream."""
        return (
            any(delivery.stream == number for delivery in deliveries)
            or any(stream.parent == number for stream in self._place.streams.values())
            or any(any(streams.get(number, ())) for streams in self._place.joins.values())
        )

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _worker(self, step: str, deliveries: list[Delivery]) -> dict[str, Any]:
        own = [delivery for delivery in deliveries if delivery.step == step]
        buffers = self._place.buffers.get(step, {})
        joins = self._place.joins.get(step, {})
        return {
            "queue": [],
            "in_progress": [self._delivery(delivery) for delivery in own],
            "collected_events": {
                name: [self._text(event) for event in held.values()] for name, held in buffers.items()
            },
            "collect_keys": {name: list(held) for name, held in buffers.items()},
            "collect_needs": {},
            "static_collect_events": [],
            "joins": {
                str(number): [[self._text(event) for _, event in queue] for queue in queues]
                for number, queues in joins.items()
                if any(queues)
            },
            "join_origins": {
                str(number): [[origin for origin, _ in queue] for queue in queues]
                for number, queues in joins.items()
                if any(queues)
            },
            "collected_waiters": [
                self._waiter(delivery, waiter) for delivery in own for waiter in delivery.waits.values()
            ],
        }

    def _delivery(self, delivery: Delivery) -> dict[str, Any]:
        spec = self._place.table.steps[delivery.step]
        failure = delivery.failure or {}
        bound = None
        if len(spec.slots) > 1 and delivery.inputs is not None:
            names = [slot.name for slot in spec.slots]
            bound = {name: self._text(event) for name, event in zip(names, delivery.inputs, strict=True)}
        return {
            "event": self._event(delivery),
            "bound_events": bound,
            "attempts": delivery.attempts,
            "first_attempt_at": failure.get("first_attempt_at"),
            "last_exception": failure.get("error"),
            "last_failed_at": failure.get("last_failed_at"),
            "recovery_counts": delivery.recoveries or {},
            "not_before": delivery.due,
            "scope_path": self._scope(delivery.stream),
            "work_item_id": f"work_item_{delivery.id}",
            "origins": delivery.origins,
            "releases": delivery.releases,
            "progress": self._progress(delivery),
            **({"outcome": delivery.outcome} if delivery.outcome is not None else {}),
        }

    def _event(self, delivery: Delivery) -> str:
        if delivery.event is not None:
            return self._text(delivery.event)
        codec = self._place.codec
        members = [codec.read(event) for event in delivery.inputs or ()]
        trigger = CollectionReleaseEvent(events=members, stream_id=str(delivery.releases), binding_id=delivery.step)
        return codec.text(codec.event(trigger))

    def _progress(self, delivery: Delivery) -> dict[str, Any]:
        return {
            **self._numbers(delivery.numbers),
            "answers": {
                key: None if answer is None else self._text(answer) for key, answer in delivery.answers.items()
            },
            "once": {key: self._text(value) for key, value in delivery.once.items()},
            "once_calls": {key: self._numbers(numbers) for key, numbers in delivery.calls.items()},
            "intents": delivery.intents,
        }

    def _numbers(self, numbers: Numbers) -> dict[str, Any]:
        collected = [numbers.collected[place] for place in sorted(numbers.collected)]
        return {
            "sends": numbers.sends,
            "writes": numbers.writes,
            "streamed": numbers.streamed,
            "collected": [None if found is None else [self._text(event) for event in found] for found in collected],
        }

    def _waiter(self, delivery: Delivery, waiter: dict[str, Any]) -> dict[str, Any]:
        requirements, question = waiter.get("requirements"), waiter.get("question")
        return {
            **waiter,
            "event": self._event(delivery),
            "bound_events": None,
            "has_requirements": requirements is not None,
            "requirements": None if requirements is None else self._text(requirements),
            "resolved_event": None,
            "scope_path": self._scope(delivery.stream),
            "work_item_id": f"work_item_{delivery.id}",
            "question": None if question is None else self._text(question),
        }

    def _stream(self, number: int, stream: RecordedStream) -> dict[str, Any]:
        return {
            "stream_id": str(number),
            "source_step": stream.producer,
            "scope_path": self._scope(stream.parent),
            "recovery_counts": stream.recoveries or {},
            "collected": {name: [self._text(event) for _, event in found] for name, found in stream.collected.items()},
            "collected_origins": {name: [origin for origin, _ in found] for name, found in stream.collected.items()},
            "released": sorted(stream.released),
            "key": number,
        }

    def _scope(self, stream: int) -> list[str]:
        path: list[str] = []
        while stream:
            path.insert(0, str(stream))
            stream = self._place.streams[stream].parent
        return path


# --- from a snapshot to a recorded run --------------------------------------------------------------------------------


def from_snapshot(workflow: AnyWorkflow, payload: dict[str, Any], stored: PartObjects | None = None) -> RecordedRun:
    """Return the recorded run that a snapshot stands for; later records, which may refer to parts, are added to it."""
    recorded = RecordedRun(workflow, stored)
    begin_with_snapshot(recorded, payload)
    return recorded


def add_commit(recorded: RecordedRun, records: list[dict[str, Any]], elapsed: float | None = None) -> None:
    """Add the records of one commit; the first one may be the snapshot that a run began with.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
        StoreError: The records contradict each other.
    """
    for record in records:
        if record["kind"] == "restored":
            begin_with_snapshot(recorded, record["snapshot"])
    recorded.commit([record for record in records if record["kind"] != "restored"], elapsed)


def begin_with_snapshot(recorded: RecordedRun, payload: dict[str, Any]) -> None:
    """Fill a new recorded run from a snapshot."""
    recorded.questions = entries(payload, "questions")
    recorded.elapsed = float(payload.get("elapsed_alive") or 0.0)
    recorded.last_record = max(recorded.last_record, int(payload.get("last_record") or 0))
    recorded.last_streamed = int(payload.get("last_streamed", -1))
    recorded.served = bool(payload.get("served"))
    _Reader(recorded).place("", recorded.workflow, payload, None)


class _Reader:
    """The reader of the workflows of a tree."""

    def __init__(self, recorded: RecordedRun) -> None:
        self._recorded = recorded

    def place(self, path: str, workflow: AnyWorkflow, payload: dict[str, Any], child: dict[str, Any] | None) -> None:
        stored = None if path else self._recorded.stored
        place = self._recorded.places[path] = RecordedWorkflow(path, workflow, child, stored)
        encoded = place.codec.event_of_text
        place.base = payload["state"] if stored is None else escaped_texts(payload["state"])
        place.writes = [
            (name, None if text is None else place.codec.value_of_text(text))
            for name, text in entries(payload, "writes")
        ]
        place.last_delivery = int(payload["work_item_seq"])
        place.stopped = _maybe(encoded, payload.get("stopped"))
        place.ended = _maybe(encoded, payload.get("result"))
        keys = {name: int(stream.get("key") or 0) for name, stream in payload["streams"].items()}
        for name, stream in payload["streams"].items():
            recorded_run = RecordedStream(
                stream["source_step"], _innermost(keys, stream), stream.get("recovery_counts") or None
            )
            recorded_run.released = set(entries(stream, "released"))
            origins = mapping(stream, "collected_origins")
            for step, events in stream["collected"].items():
                recorded_run.collected[step] = _occurrences(place, origins.get(step), events)
            place.streams[keys[name]] = recorded_run
        for step, worker in payload["workers"].items():
            self._worker(place, step, worker, keys)
        for entry in entries(payload, "deliveries"):
            # Undelivered events: the accepting steps are looked up as at sending.
            origin = as_origin(entry["origins"][0])
            place.sent(origin, encoded(entry["event"]), entry.get("recovery_counts") or None, entry.get("step_id"))
        children = mapping(payload, "children")
        place.children = dict(mapping(children, "counts"))
        for entry in entries(children, "runs"):
            inner = workflow.__batonflow__.children.get(entry["name"])
            if inner is None:
                self._recorded.unknown.add(entry["path"])
                continue
            about = {name: entry[name] for name in ("name", "call", "by_event")}
            self.place(entry["path"], inner, entry["payload"], about)

    def _worker(self, place: RecordedWorkflow, step: str, worker: dict[str, Any], keys: dict[str, int]) -> None:
        found: dict[str, Delivery] = {}
        for entry in [*entries(worker, "in_progress"), *entries(worker, "queue")]:
            found[entry["work_item_id"]] = self._delivery(place, step, entry, keys)
        for waiter in entries(worker, "collected_waiters"):
            delivery = found[waiter["work_item_id"]]
            requirements, question = waiter.get("requirements"), waiter.get("question")
            delivery.waits[waiter["key"]] = {
                "waiter_id": waiter["waiter_id"],
                "key": waiter["key"],
                "waiting_for_event": waiter["waiting_for_event"],
                "requirements": _maybe(place.codec.value_of_text, requirements),
                "due": waiter.get("due"),
                "question": _maybe(place.codec.event_of_text, question),
            }
        for number, queues in mapping(worker, "joins").items():
            origins = worker["join_origins"][number]
            place.joins.setdefault(step, {})[keys.get(number, 0)] = [
                _occurrences(place, names, events) for names, events in zip(origins, queues, strict=True)
            ]
        for name, events in mapping(worker, "collected_events").items():
            names = [as_origin(key) for key in worker["collect_keys"][name]]
            texts = map(place.codec.event_of_text, events)
            place.buffers.setdefault(step, {})[name] = dict(zip(names, texts, strict=True))

    def _delivery(self, place: RecordedWorkflow, step: str, entry: dict[str, Any], keys: dict[str, int]) -> Delivery:
        codec = place.codec
        origins = [as_origin(origin) for origin in entries(entry, "origins")]
        delivery = Delivery(
            step,
            codec.event_of_text(entry["event"]),
            origins,
            stream=_innermost(keys, entry),
            recoveries=entry.get("recovery_counts") or None,
            id=int(entry["work_item_id"].rpartition("_")[2]),
            releases=int(entry.get("releases") or 0),
            attempts=int(entry.get("attempts") or 0),
            due=entry.get("not_before"),
            outcome=entry.get("outcome"),
        )
        if entry.get("bound_events"):
            slots = place.table.steps[step].slots
            delivery.inputs = [codec.event_of_text(entry["bound_events"][slot.name]) for slot in slots]
        if delivery.attempts:
            delivery.failure = {
                "first_attempt_at": entry.get("first_attempt_at"),
                "last_failed_at": entry.get("last_failed_at"),
                "error": entry.get("last_exception"),
            }
        progress: dict[str, Any] | None = entry.get("progress")
        if progress is not None:
            self._progress(place, delivery, progress)
        place.begun[delivery.id] = delivery
        return delivery

    def _progress(self, place: RecordedWorkflow, delivery: Delivery, entry: dict[str, Any]) -> None:
        codec = place.codec
        delivery.numbers = self._numbers(place, entry)
        delivery.calls = {key: self._numbers(place, call) for key, call in mapping(entry, "once_calls").items()}
        delivery.answers = {key: _maybe(codec.event_of_text, answer) for key, answer in entry["answers"].items()}
        delivery.once = {key: codec.value_of_text(value) for key, value in entry["once"].items()}
        delivery.intents = dict(mapping(entry, "intents"))

    def _numbers(self, place: RecordedWorkflow, entry: dict[str, Any]) -> Numbers:
        numbers = Numbers(entry["sends"], entry["writes"], entry["streamed"])
        for index, found in enumerate(entry["collected"]):
            numbers.collected[index] = None if found is None else [place.codec.event_of_text(text) for text in found]
        return numbers


def _maybe(read: Any, text: str | None) -> Any:
    return None if text is None else read(text)


def _innermost(keys: dict[str, int], entry: dict[str, Any]) -> int:
    scope = entry.get("scope_path")
    return keys[scope[-1]] if scope else 0


def _occurrences(place: RecordedWorkflow, origins: list[Any] | None, events: list[str]) -> list[Occurrence]:
    names = origins or []
    return [(as_origin(name), place.codec.event_of_text(text)) for name, text in zip(names, events, strict=True)]

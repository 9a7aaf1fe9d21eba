"""The recorder of a run. It passes records to the lease, never before the records that they build upon.

A run without a store has no recorder; it costs one truth test at each place that would record something.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from operator import is_
from typing import Any, Protocol, cast

from batonflow.clock import current_source
from batonflow.durable.attempt_record import AttemptRecord, amends, check_name, lowest_place, read_again, whole_writes
from batonflow.durable.codec import Codec
from batonflow.durable.parts.writer import PartWriter
from batonflow.durable.state_values import MISSING, StateValues
from batonflow.durable.streamed import streamed_as_data, without_secrets
from batonflow.instrumentation.redaction import redacted
from batonflow.user_warnings import warn_user
from batonflow.values.answer_fields import answer_fields
from batonflow.values.exceptions import dump_exception, traceback_of
from batonflow.values.names import REFERENCE, qualified_name
from batonflow.values.serializers import BaseSerializer
from batonflow.values.state_data import DELETED, KEYS_THAT_MAY_BE_LEFT_OUT, UnserializableKeyWarning
from batonflow.workflow_core.context.state_store import IMMUTABLE, StateCell
from batonflow.workflow_core.engine.state import CAME_IN, Causes, Waiter, WorkItem, current_item, origins_of
from batonflow.workflow_core.errors import StateOutsideContextWarning, StoreError
from batonflow.workflow_core.events import Event, InputRequiredEvent, WorkflowFailedEvent
from batonflow.workflow_core.routing import StepSpec

__all__ = ["RecordSink", "Recorder", "note_model_call"]


class RecordSink(Protocol):
    """The destination of records. It is called on the run's event loop and must not block."""

    def commit(self, group: Sequence[AttemptRecord]) -> None:
        """Take records that form one commit: all become durable, or no record does."""
        ...


class _Shared:
    """The data that the recorders of a tree of workflows share."""

    __slots__ = ("numbers", "open", "writes")

    def __init__(self, first: int) -> None:
        self.numbers: Iterator[int] = count(first)
        self.writes: Iterator[int] = count(1)
        # The open records with their deliveries. A dict, because the order of a set is not repeatable.
        self.open: dict[AttemptRecord, WorkItem] = {}


def _open_record(item: WorkItem) -> AttemptRecord | None:
    segment: Any = item.segment  # of a class below the protocol
    return segment


def note_model_call(call: Any) -> None:
    """Note a call of a model in the open record of the running step. Other calls are not recorded."""
    item = current_item.get()
    segment = None if item is None else _open_record(item)
    if isinstance(segment, AttemptRecord) and not segment.closed and segment.data is None:
        segment.calls = [*(segment.calls or ()), call]


class Recorder:
    """Turns the work of a run into records.

    Args:
        sink: Takes the records.
        serializer: Writes events and values.
        path: Which workflow of the tree this is.
        first: The number of the first record; those of earlier owners come before it.
        keep_streamed: Whether what steps stream is kept for readers of the store.
        parts: Writes messages and long texts once; None to write them whole.
    """

    def __init__(
        self,
        sink: RecordSink,
        serializer: BaseSerializer,
        path: str = "",
        first: int = 1,
        *,
        keep_streamed: bool = True,
        parts: PartWriter | None = None,
    ) -> None:
        self._sink = sink
        self.parts = parts
        self._codec = codec = Codec(serializer, parts)
        self._path = path
        self._keeps_streamed = keep_streamed
        self._shared = _Shared(first)
        self._now = current_source().now
        self._start: Causes = ()
        self._writers: dict[str, AttemptRecord] = {}
        self._values = StateValues(codec)
        # The attributes of the workflow, and their earlier values.
        self._attributes: dict[str, Any] = {}
        self._as_known: dict[str, Any] = {}

    def for_child(self, path: str, serializer: BaseSerializer) -> "Recorder":
        """Return the recorder of a child run."""
        child = Recorder(self._sink, serializer, path, keep_streamed=self._keeps_streamed, parts=self.parts)
        child._shared = self._shared
        return child

    def check_name(self, name: str) -> None:
        """Refuse a name that cannot be written.

        Raises:
            StoreError: The name contains a lone surrogate.
        """
        check_name(name)

    def can_write(self, value: Any) -> bool:
        """Tell whether a value can be recorded."""
        try:
            self._codec.value(value)
        except StoreError:
            return False
        return True

    def watch(self, cell: StateCell) -> None:
        """Record the changes of a state."""
        self._values.watch(cell)
        cell.recorder = self

    def watch_attributes(self, workflow: object) -> None:
        """Warn of changed attributes of the workflow, which are not recorded."""
        self._attributes = vars(workflow)
        self._as_known = dict(self._attributes)

    def _look_at_attributes(self, step: StepSpec) -> None:
        now, known = self._attributes, self._as_known
        if len(now) == len(known) and all(map(is_, now.values(), known.values())):
            return
        self._as_known = dict(now)
        for name, value in now.items():
            # Names that begin with an underscore count as caches.
            if known.get(name, MISSING) is not value and not name.startswith("_"):
                warn_user(
                    f"Step {step.name} changed self.{name}: all runs of the workflow share it, and the store does not "
                    "keep it. Use ctx.store for values of the run", StateOutsideContextWarning, about=step.func,
                )  # fmt: skip
                return

    # --- input --------------------------------------------------------------------------------------------------------

    def started(
        self,
        event: Event,
        target: str | None,
        causes: Causes,
        about: dict[str, Any] | None = None,
        state: Sequence[tuple[str, Any]] = (),
    ) -> Causes:
        """Record the start of the run with an event, which another workflow of the tree may have created.

        Args:
            event: The event.
            target: The only step for the event.
            causes: The causes of the event.
            about: ``child`` with name and call of a child run; ``served`` for a client's input.
            state: The initial values of the state, by name.

        Returns:
            The causes of the deliveries of the event.
        """
        data = dict(about or {})
        if state:
            data["state"] = [
                [name, self._tried(f"State key {name!r}", partial(self._values.as_data, name), value, True)]
                for name, value in state
            ]
        self._start = self._came("started", event, target, causes, data)
        return self._start

    def restored(self, payload: dict[str, Any]) -> None:
        """Record the start of the run from a snapshot."""
        self._put("restored", (), {"snapshot": payload})

    def received(self, event: Event, target: str | None, causes: Causes, answers: int | None = None) -> Causes:
        """Record an event from outside or from another workflow; return the causes of its deliveries."""
        return self._came("input", event, target, causes, {} if answers is None else {"answers": answers})

    def _came(self, kind: str, event: Event, target: str | None, causes: Causes, data: dict[str, Any]) -> Causes:
        data["event"] = self._codec.event(event)
        if target is not None:
            data["target"] = target
        segment = self._put(kind, causes, data, (), event)
        return ((segment, CAME_IN),)

    def answered(self, waiter: Waiter, answer: Event | None, causes: Causes) -> None:
        """Record the answer or the timeout of a wait."""
        item = waiter.item
        data: dict[str, Any] = {"step": item.spec.name, "item": item.id, "key": waiter.key}
        if answer is not None:
            data["event"] = self._codec.event(answer)
        opened = waiter.opened
        segment = self._put("answered", causes, data, () if opened is None else (cast("AttemptRecord", opened),))
        if item.segment is not None:
            item.segment.follows((segment,))

    def gave_up(self, waiter: Waiter) -> None:
        """Note that a step gave up a wait. It counts only if the step goes on; otherwise the step was interrupted."""
        segment = _open_record(waiter.item)
        if segment is not None:
            segment.gave_up = [*(segment.gave_up or ()), waiter.key]

    def dropped(self, causes: Causes) -> None:
        """Record that no step took an event."""
        self._put("dropped", causes, {})

    def edited(self, changes: list[tuple[str, Any]], **about: Any) -> None:
        """Record changes of the state from outside of steps: paths with values."""
        writes = [[0, path, None if value is DELETED else self._values.as_data(path, value)] for path, value in changes]
        keys = dict.fromkeys(path.partition(".")[0] for path, _ in changes)
        for key in keys:
            self._values.forget(key)
            check_name(key)
        writers = [self._writers[key] for key in keys if key in self._writers]
        segment = self._put("edited", (), {"writes": writes, **about}, writers)
        if not segment.committed:
            self._writers.update(dict.fromkeys(keys, segment))

    def ended(self, event: Event, seq: int) -> None:
        """The run is over; its last record comes after the record that brought the end about.

        Args:
            event: The event that ends the run.
            seq: The earliest place of the event in the stream.
        """
        causes = self._start
        ending = [segment for segment in self._shared.open if segment.path == self._path and segment.data is not None]
        data = self._codec.whole_event(event)
        if isinstance(event, WorkflowFailedEvent):
            data = without_secrets(data)  # messages of errors may contain any values
        data = self._codec.lean(data)
        self._put("ended", causes, {"event": data, "seq": seq}, ending, event)

    def _put(
        self,
        kind: str,
        causes: Causes,
        data: dict[str, Any],
        after: Sequence[AttemptRecord] = (),
        event: Event | None = None,
    ) -> AttemptRecord:
        """Create a complete record, which is committed after its dependencies."""
        segment = AttemptRecord(next(self._shared.numbers), kind, self._path, "", consumed=event, causes=causes)
        segment.follows(after)
        segment.data = {"kind": kind, "id": segment.id, "path": self._path, **data}
        segment.written_at = [next(self._shared.writes) for _ in data.get("writes", ())]
        child: dict[str, Any] = data.get("child") or {}
        if causes and child.get("call") is None:
            segment.data["origins"] = origins_of(causes)
        self._finish(segment)
        return segment

    # --- attempts -----------------------------------------------------------------------------------------------------

    def open(self, item: WorkItem, consumed: Event | None) -> None:
        """Open a record for an attempt that starts, or goes on after a suspension."""
        attempt = item.failures.count if item.failures is not None else 0
        causes = item.causes if consumed is not None else ()
        shared = self._shared
        segment = AttemptRecord(
            next(shared.numbers), "segment", self._path, item.spec.name, item.id, attempt, consumed, causes, self._now()
        )
        if item.after is not None:
            segment.follows(item.after)
        if item.segment is not None:  # from an earlier attempt, or from before a suspension
            segment.follows((item.segment,))
        item.segment = segment
        shared.open[segment] = item

    def returned(self, item: WorkItem, result: Any) -> None:
        """Convert the work of a finished step to data, before its result takes effect.

        Raises:
            StoreError: A value cannot be written.
        """
        segment = _open_record(item)
        assert segment is not None
        self._look_at_attributes(item.spec)
        codec = self._codec
        if isinstance(result, Event):
            events, whole = [result], [codec.whole_event(result)]
            outcome = ["returned", [codec.lean(whole[0])]]
        elif result is None:
            events, whole, outcome = [], [], ["returned"]
        else:
            events = list(result)
            whole = list(map(codec.whole_event, events))
            outcome = ["returned", list(map(codec.lean, whole)), True]
        segment.outcome = ("returned", result)
        known = dict(zip(map(id, events), whole, strict=True)) if segment.streamed else None
        self._make(segment, item, outcome, known=known)

    def failed(self, item: WorkItem, error: BaseException) -> None:
        """Record the error of an attempt, with all of its work that can be written."""
        segment = _open_record(item)
        assert segment is not None
        segment.outcome = ("failed", error)
        told = {**dump_exception(error), "traceback": traceback_of(error)}
        self._make(segment, item, ["failed", redacted(told)], strict=False)

    def published(self, item: WorkItem, seq: int, ts: float) -> None:
        """Note the place and time in the stream of an event that a step returned."""
        segment = _open_record(item)
        if segment is not None and segment.data is not None:
            segment.data.setdefault("published", []).append([seq, ts])

    def call_begins(self, item: WorkItem) -> set[str]:
        """Return the values of the state that were changed in place before a call of ``ctx.once``."""
        segment = _open_record(item)
        handed = segment.handed if segment is not None else None
        return set(self._values.changed(handed)) if handed else set()

    def suspend(
        self, item: WorkItem, kind: str, value: Any, changed_before: Collection[str] = ()
    ) -> AttemptRecord | None:
        """End a record with a wait, an intent or the outcome of ``ctx.once``, and begin the next one.

        Args:
            item: The delivery.
            kind: The kind of the end.
            value: The data of the end.
            changed_before: The result of ``call_begins`` for a call of ``ctx.once``. A repeated attempt changes these
                values itself. Other values were changed by the call, which is not repeated.

        Returns:
            The record that ended.

        Raises:
            StoreError: A value cannot be written.
        """
        segment = _open_record(item)
        if segment is None or segment.closed:
            return None
        codec = self._codec
        if kind == "waiting":
            waiter, question = value
            data: Any = self._waiter(waiter, question)
            waiter.opened = segment
        elif kind == "once":
            data = [value[0], codec.value(value[1])]
            self._note_changes(segment, changed_before)
        else:
            data = value
        segment.outcome = (kind, value)
        self._make(segment, item, [kind, data])
        self.close(item)
        self.open(item, None)
        following = _open_record(item)
        assert following is not None
        following.handed = segment.handed
        for key in {path.partition(".")[0] for _, path, value in segment.writes if type(value) not in IMMUTABLE}:
            # The step still holds the value, and may change it in place.
            self._hand_out(following, key, self._values.current(key))
        return segment

    def _waiter(self, waiter: Waiter, question: Event | None) -> dict[str, Any]:
        cls = waiter.event_type
        check_name(waiter.id)
        return {
            "waiter_id": waiter.id,
            "key": waiter.key,
            "waiting_for_event": qualified_name(cls),
            "fields": answer_fields(cls),
            "requirements": self._codec.value(waiter.requirements) if waiter.requirements else None,
            "due": waiter.due,
            "question": None if question is None else self._codec.event(question),
        }

    def close(self, item: WorkItem, verdict: dict[str, Any] | None = None) -> None:
        """Close the record of an attempt; it is committed at once unless it has to wait for another.

        Args:
            item: The delivery.
            verdict: The further processing of the delivery after a failed attempt.
        """
        segment = _open_record(item)
        if segment is None or segment.closed or segment.data is None:
            return
        if verdict is not None:
            handler = verdict.get("event")
            if handler is not None:
                verdict["event"] = self._codec.event(handler)
            segment.data["outcome"].append(verdict)
        self._shared.open.pop(segment, None)
        self._finish(segment)

    def abandon(self, item: WorkItem) -> None:
        """Keep nothing of the last record of an attempt, which was cancelled."""
        segment = _open_record(item)
        if segment is not None:
            self._shared.open.pop(segment, None)

    def cut(self) -> None:
        """Close the open records at the end of the run.

        Other records may build upon cancelled attempts, and upon results that no longer had an effect.
        """
        for segment, item in list(self._shared.open.items()):
            if segment.path == self._path:
                if segment.data is None:
                    self._make(segment, item, ["cancelled"], strict=False)
                self.close(item)

    def last_record(self) -> int:
        """The highest used number."""
        return next(self._shared.numbers)

    def _finish(self, segment: AttemptRecord) -> None:
        segment.number = next(self._shared.numbers)
        segment.closed = True
        self._settle(segment)

    def _make(
        self,
        segment: AttemptRecord,
        item: WorkItem,
        outcome: list[Any],
        *,
        strict: bool = True,
        known: Mapping[int, Any] | None = None,
    ) -> None:
        """Turn all of a record into data; ``known`` has the data of returned events by their identity."""
        data: dict[str, Any] = {
            "kind": "segment", "id": segment.id, "path": self._path, "step": segment.step, "item": segment.item,
            "began": segment.began,
        }  # fmt: skip
        if segment.attempt:
            data["attempt"] = segment.attempt
        if segment.consumed is not None:
            data["origins"] = origins_of(segment.causes)
            if item.spec.config.collect is not None:
                data["releases"] = item.released_stream
        if segment.handed and outcome[0] in ("returned", "failed"):
            # Not earlier, because a repeated attempt would change the value again.
            self._note_changes(segment)
        where = f"of step {segment.step}"
        codec = self._codec
        if segment.writes:
            self._write_later(segment)
            written = [
                (
                    number,
                    path,
                    self._tried(f"State key {path!r} {where}", partial(self._values.as_data, path), value, strict),
                )
                for number, path, value in segment.writes
            ]
            kept = [place for place, one in enumerate(written) if one[2] is not MISSING]
            self._note_written(segment, written)
            data["writes"] = [written[place] for place in kept]
            segment.written_at = [segment.written_at[place] for place in kept]
        if segment.sends:
            # Sent events are delivered, so a failed attempt records them; at the end of the run they are not needed.
            needed = outcome[0] != "cancelled"
            sent = [
                (number, self._tried(f"Sent event {where}", codec.event, event, needed), target)
                for number, event, target in segment.sends
            ]
            data["sends"] = [one for one in sent if one[1] is not MISSING]
        if segment.streamed:

            def write(event: Event) -> Any:
                if known and (data := known.get(id(event))) is not None:
                    return data
                shown = partial(codec.whole_event, is_streamed=not isinstance(event, InputRequiredEvent))
                return self._tried(f"Streamed event {where}", shown, event, strict)

            streamed = streamed_as_data(segment.streamed, write, kept=self._keeps_streamed)
            data["streamed"] = [
                (number, codec.lean(event), *place) for number, event, *place in streamed if event is not MISSING
            ]
        if segment.collects:
            data["collects"] = [
                (number, buffer, None if event is None else codec.event(event), found)
                for number, buffer, event, found in segment.collects
            ]
        if segment.gave_up:
            data["gave_up"] = segment.gave_up
        if segment.calls:
            data["calls"] = list(map(self._call, segment.calls))
        data["outcome"] = outcome
        # Receivers may change sent events until the outcome is decided.
        segment.data = read_again(data) if item.undelivered else data

    def _call(self, call: Any) -> dict[str, Any]:
        """Return a call of a model as data; with its messages if the store keeps these once."""
        parts, data = self.parts, call.as_data()
        if parts is None or not self._codec.keeps_parts:
            return data
        said = call.conversation()
        tools = [{REFERENCE: parts.part(tool)} for tool in redacted(said.pop("tool_specs", []))]
        written = {name: self._codec.shown_messages(items) for name, items in said.items()}
        return {**data, **written, **({"tool_specs": [tools]} if tools else {})}

    def _tried(self, name: str, write: Any, value: Any, strict: bool) -> Any:
        """Return a value as data; for a failed attempt, skip a value that cannot be written."""
        if value is DELETED:
            return None
        try:
            written = write(value)
            if not strict:
                read_again(self._codec.lean(written))  # otherwise the error would come too late
        except StoreError as error:
            if any(name.startswith(f"State key {key!r} ") for key in KEYS_THAT_MAY_BE_LEFT_OUT):
                warn_user(f"{name} was left out of the records: {error}", UnserializableKeyWarning)
                return MISSING
            if strict:
                raise StoreError(f"{name}: {error}") from error
            return MISSING
        return written

    # --- the state ----------------------------------------------------------------------------------------------------

    def read(self, item: WorkItem, key: str | None, value: Any = None) -> None:
        """Note that a step has read a key of the state, or the whole state."""
        segment = _open_record(item)
        if segment is None:
            return
        if key is None:
            segment.follows(list(self._writers.values()))
            return
        self._follow_writer(segment, key)
        if type(value) not in IMMUTABLE:
            self._hand_out(segment, key, value)

    def _follow_writer(self, segment: AttemptRecord, key: str) -> None:
        writer = self._writers.get(key)
        if writer is not None:
            segment.follows((writer,))

    def _hand_out(self, segment: AttemptRecord, key: str, value: Any) -> None:
        self._values.note(key, value)
        if segment.handed is None:
            segment.handed = set()
        segment.handed.add(key)

    def wrote(self, item: WorkItem, path: str, value: Any) -> None:
        """Record that a step has changed a key of the state."""
        segment = _open_record(item)
        if segment is None:
            return
        key = path.partition(".")[0]
        self._follow_writer(segment, key)
        self._writers[key] = segment
        if path == key or not any(key in (other.handed or ()) for other in self._shared.open):
            self._values.forget(key)  # otherwise in-place changes of other parts still have to be found
        check_name(path)
        numbers = item.make_progress().here()
        segment.writes.append((numbers.named(numbers.writes), path, value))
        segment.written_at.append(next(self._shared.writes))

    def _note_changes(self, segment: AttemptRecord, but: Collection[str] = ()) -> None:
        """Record values that a step changed in place as if it had set them, except ``but``."""
        written = {key for key, _ in whole_writes(segment.writes)}
        for key, value in self._values.note_changes(sorted((segment.handed or set()) - written.union(but))):
            self._follow_writer(segment, key)  # the value contains its writes
            self._writers[key] = segment
            segment.writes.append((0, key, value))
            segment.written_at.append(next(self._shared.writes))

    def _write_later(self, segment: AttemptRecord) -> None:
        """Record values at the end of the step, after the writes of other steps."""
        for key, place in whole_writes(segment.writes):
            value = segment.writes[place][2]
            others = self._writers.get(key) is not segment and type(value) not in IMMUTABLE
            if others and self._values.current(key) is value:
                self._follow_writer(segment, key)
                self._writers[key] = segment
                segment.written_at[place] = next(self._shared.writes)

    def _note_written(self, segment: AttemptRecord, written: list[tuple[Any, str, Any]]) -> None:
        for key, place in whole_writes(written):
            number, _, value = segment.writes[place]
            data = written[place][2]
            if data is not MISSING and self._writers.get(key) is segment:
                # A value that the step set has a form that was noted before its last changes. Another step that holds
                # it is compared with that form.
                if number != 0 and not any(
                    key in (one.handed or ()) for one in self._shared.open if one is not segment
                ):
                    self._values.forget(key)
                self._values.note_written(key, value, data)

    # --- committing ---------------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Tell whether all work of the tree is committed, so that state and records agree."""
        return all(
            segment.is_clean
            and all(one.committed for one in segment.after)
            and not any(self._values.changed(segment.handed or ()))
            for segment in self._shared.open
        )

    def lowest_place(self) -> int | None:
        """Return the first place in the stream of uncommitted records."""
        return lowest_place(self._shared.open)

    def _settle(self, segment: AttemptRecord) -> None:
        if not (segment.after or segment.held_up):  # the common case
            segment.committed, segment.causes = True, ()
            self._commit([segment])
            return
        group = segment.group()
        if isinstance(group, AttemptRecord):
            group.hold_up(segment)
            # The values may change before the commit.
            segment.body()
            return
        # Waiting records are committed together with these, because an event and its arrival belong together.
        for one in group:
            one.committed = True
        for member in group:
            for other in member.held_up:
                further = [] if other.committed else other.group()
                if isinstance(further, AttemptRecord):
                    further.hold_up(other)
                    continue
                group += further
                for one in further:
                    one.committed = True
            # Without this the chain of records would reach back to the first one, and keep all in memory.
            member.after, member.held_up, member.causes, member.waits_for = [], [], (), None
        self._commit(group if len(group) == 1 else [*group, *amends(group, self._shared.numbers)])

    def _commit(self, group: list[AttemptRecord]) -> None:
        """Commit records, and drop the ones that later records need not wait for any more."""
        self._sink.commit(group)
        if self._writers:
            self._writers = {key: one for key, one in self._writers.items() if not one.committed}

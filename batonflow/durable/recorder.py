"""The recorder of a run: it hands records to the lease of the run, never before the records that they build upon.

A run without a store has no recorder; it costs one truth test at each place that would record something.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import count
from operator import is_
from typing import Any, Protocol, cast

from batonflow.clock import current_source
from batonflow.durable.attempt_record import (
    AttemptRecord,
    amends,
    check_name,
    lowest_place,
    read_again,
    whole_writes,
)
from batonflow.durable.codec import Codec
from batonflow.durable.state_values import MISSING, StateValues
from batonflow.durable.streamed import streamed_as_data, without_secrets
from batonflow.instrumentation.redaction import redacted
from batonflow.user_warnings import warn_user
from batonflow.values.answer_fields import answer_fields
from batonflow.values.exceptions import dump_exception, traceback_of
from batonflow.values.names import qualified_name
from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core.context.state_store import IMMUTABLE, StateCell
from batonflow.workflow_core.engine.state import CAME_IN, Causes, Waiter, WorkItem, origins_of
from batonflow.workflow_core.errors import StateOutsideContextWarning, StoreError
from batonflow.workflow_core.events import Event, WorkflowFailedEvent
from batonflow.workflow_core.routing import StepSpec
from batonflow.workflow_core.state_data import DELETED, KEYS_THAT_MAY_BE_LEFT_OUT, UnserializableKeyWarning

__all__ = ["RecordSink", "Recorder"]


class RecordSink(Protocol):
    """The destination of records. Called on the loop of the run, so it must not block."""

    def commit(self, group: Sequence[AttemptRecord]) -> None:
        """Take records that belong together: all become durable, or no record does."""
        ...


class _Shared:
    """The shared data of the recorders of a tree of workflows."""

    __slots__ = ("numbers", "open", "writes")

    def __init__(self, first: int) -> None:
        self.numbers: Iterator[int] = count(first)
        self.writes: Iterator[int] = count(1)
        # An ordered set, as Python's own has an order that cannot be repeated; with the deliveries.
        self.open: dict[AttemptRecord, WorkItem] = {}


def _open_record(item: WorkItem) -> AttemptRecord | None:
    return cast("AttemptRecord | None", item.segment)


class Recorder:
    """Turns the work of a run into records.

    Args:
        sink: Takes the records.
        codec: Writes events and values.
        path: Which workflow of the tree this is.
        first: The number of the first record; those of earlier owners come before it.
        keep_streamed: Whether what steps stream is kept for readers of the store.
    """

    def __init__(
        self, sink: RecordSink, codec: Codec, path: str = "", first: int = 1, *, keep_streamed: bool = True
    ) -> None:
        self._sink = sink
        self._codec = codec
        self._path = path
        self._keeps_streamed = keep_streamed
        self._shared = _Shared(first)
        self._now = current_source().now
        self._start: Causes = ()
        self._writers: dict[str, AttemptRecord] = {}
        self._values = StateValues(codec)
        # The workflow's attributes, now and as they were.
        self._attributes: dict[str, Any] = {}
        self._as_known: dict[str, Any] = {}

    def for_child(self, path: str, serializer: BaseSerializer) -> "Recorder":
        """The recorder of a workflow inside this one."""
        child = Recorder(self._sink, Codec(serializer), path, keep_streamed=self._keeps_streamed)
        child._shared = self._shared
        return child

    def check_name(self, name: str) -> None:
        """Refuse a name under which a record would not be found again.

        Raises:
            StoreError: There is half a character in it.
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
        """Record the changes of this state."""
        self._values.watch(cell)
        cell.recorder = self

    def watch_attributes(self, workflow: object) -> None:
        """Warn when a step changes an attribute of the workflow, as no record has it."""
        self._attributes = vars(workflow)
        self._as_known = dict(self._attributes)

    def _look_at_attributes(self, step: StepSpec) -> None:
        now, known = self._attributes, self._as_known
        if len(now) == len(known) and all(map(is_, now.values(), known.values())):
            return
        self._as_known = dict(now)
        for name, value in now.items():
            # A name that begins with an underscore is taken for a cache.
            if known.get(name, MISSING) is not value and not name.startswith("_"):
                warn_user(
                    f"Step {step.name} changed self.{name}: all runs of the workflow share it, and the store does not "
                    "keep it. Use ctx.store for what belongs to the run", StateOutsideContextWarning, about=step.func,
                )  # fmt: skip
                return

    # --- what comes in ------------------------------------------------------------------------------------------------

    def started(
        self,
        event: Event,
        target: str | None,
        causes: Causes,
        about: dict[str, Any] | None = None,
        state: Sequence[tuple[str, Any]] = (),
    ) -> Causes:
        """The run begins with an event, perhaps one that another workflow of the tree made.

        Args:
            event: The event.
            target: The only step that it goes to.
            causes: What made it.
            about: ``child`` with name and call of a workflow inside another one; ``served`` for a client's input.
            state: What the state holds from the beginning, by name.

        Returns:
            The causes of what the event starts.
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
        """The run begins with a snapshot."""
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
        """A wait has its answer, or its time was up."""
        item = waiter.item
        data: dict[str, Any] = {"step": item.spec.name, "item": item.id, "key": waiter.key}
        if answer is not None:
            data["event"] = self._codec.event(answer)
        opened = waiter.opened
        segment = self._put("answered", causes, data, () if opened is None else (cast("AttemptRecord", opened),))
        if item.segment is not None:
            item.segment.follows((segment,))

    def gave_up(self, waiter: Waiter) -> None:
        """A step does not wait any more; that counts when it does something else, else it was only interrupted."""
        segment = _open_record(waiter.item)
        if segment is not None:
            segment.gave_up = [*(segment.gave_up or ()), waiter.key]

    def dropped(self, causes: Causes) -> None:
        """Record that no step took an event."""
        self._put("dropped", causes, {})

    def edited(self, changes: list[tuple[str, Any]], **about: Any) -> None:
        """The state was changed from outside the steps: paths with their values."""
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
            event: The event that ends it.
            seq: From where on it may stand in the stream.
        """
        causes = self._start
        ending = [segment for segment in self._shared.open if segment.path == self._path and segment.data is not None]
        data = self._codec.event(event)
        if isinstance(event, WorkflowFailedEvent):
            data = without_secrets(data)  # messages of errors may quote anything
        self._put("ended", causes, {"event": data, "seq": seq}, ending, event)

    def _put(
        self,
        kind: str,
        causes: Causes,
        data: dict[str, Any],
        after: Sequence[AttemptRecord] = (),
        event: Event | None = None,
    ) -> AttemptRecord:
        """Make a record that is complete at once; it is committed after the records that it builds upon."""
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
        """An attempt begins, or goes on after a suspension."""
        attempt = item.failures.count if item.failures is not None else 0
        causes = item.causes if consumed is not None else ()
        shared = self._shared
        segment = AttemptRecord(
            next(shared.numbers), "segment", self._path, item.spec.name, item.id, attempt, consumed, causes, self._now()
        )
        if item.after is not None:
            segment.follows(item.after)
        if item.segment is not None:  # of an earlier attempt, or the one before a suspension
            segment.follows((item.segment,))
        item.segment = segment
        shared.open[segment] = item

    def returned(self, item: WorkItem, result: Any) -> None:
        """A step came to its end: all that it did becomes data, before anybody acts on it.

        Raises:
            StoreError: Something cannot be written.
        """
        segment = _open_record(item)
        assert segment is not None
        self._look_at_attributes(item.spec)
        codec = self._codec
        outcome: list[Any] = ["returned"]
        if isinstance(result, Event):
            outcome.append([codec.event(result)])
        elif result is not None:
            outcome += [[codec.event(event) for event in result], True]
        segment.outcome = ("returned", result)
        self._make(segment, item, outcome)

    def failed(self, item: WorkItem, error: BaseException) -> None:
        """Record the error of an attempt, with as much of its work as can be written."""
        segment = _open_record(item)
        assert segment is not None
        segment.outcome = ("failed", error)
        told = {**dump_exception(error), "traceback": traceback_of(error)}
        self._make(segment, item, ["failed", redacted(told)], strict=False)

    def published(self, item: WorkItem, seq: int, ts: float) -> None:
        """An event that a step returned is put on the stream, at this place and time."""
        segment = _open_record(item)
        if segment is not None and segment.data is not None:
            segment.data.setdefault("published", []).append([seq, ts])

    def call_begins(self, item: WorkItem) -> set[str]:
        """``ctx.once`` is about to call; gives the values of the state that were changed in place before that."""
        segment = _open_record(item)
        handed = segment.handed if segment is not None else None
        return set(self._values.changed(handed)) if handed else set()

    def suspend(
        self, item: WorkItem, kind: str, value: Any, changed_before: Collection[str] = ()
    ) -> AttemptRecord | None:
        """End a record with a wait, an intent or the outcome of ``ctx.once``, and begin the next one.

        Args:
            item: The delivery.
            kind: What it ends with.
            value: What there is to say of that.
            changed_before: Of a call of ``ctx.once``, what ``call_begins`` gave: the attempt changes these once more
                itself. Others that were changed in place since were changed by the call, which is not made again.

        Returns:
            The record that ended.

        Raises:
            StoreError: Something cannot be written.
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
            # The step still holds the value that it has set, and may change it.
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
            verdict: For a failed attempt: what becomes of the delivery.
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

        Other records may build upon cancelled attempts, and upon results that had no effect any more.
        """
        for segment, item in list(self._shared.open.items()):
            if segment.path == self._path:
                if segment.data is None:
                    self._make(segment, item, ["cancelled"], strict=False)
                self.close(item)

    def last_record(self) -> int:
        """The highest number used so far."""
        return next(self._shared.numbers)

    def _finish(self, segment: AttemptRecord) -> None:
        segment.number = next(self._shared.numbers)
        segment.closed = True
        self._settle(segment)

    def _make(self, segment: AttemptRecord, item: WorkItem, outcome: list[Any], *, strict: bool = True) -> None:
        """Turn all of a record into data."""
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
            # Not before: an attempt that begins again would change the value once more.
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
            # Sent events are delivered, so a failed attempt keeps them; at the end of the run they are not needed.
            needed = outcome[0] != "cancelled"
            sent = [
                (number, self._tried(f"Sent event {where}", codec.event, event, needed), target)
                for number, event, target in segment.sends
            ]
            data["sends"] = [one for one in sent if one[1] is not MISSING]
        if segment.streamed:

            def write(event: Event) -> Any:
                return self._tried(f"Streamed event {where}", codec.event, event, strict)

            streamed = streamed_as_data(segment.streamed, write, kept=self._keeps_streamed)
            data["streamed"] = [one for one in streamed if one[1] is not MISSING]
        if segment.collects:
            data["collects"] = [
                (number, buffer, None if event is None else codec.event(event), found)
                for number, buffer, event, found in segment.collects
            ]
        if segment.gave_up:
            data["gave_up"] = segment.gave_up
        data["outcome"] = outcome
        # Until the outcome is decided, receivers of sent events may change them.
        segment.data = read_again(data) if item.undelivered else data

    def _tried(self, name: str, write: Any, value: Any, strict: bool) -> Any:
        """Write a value; for a failed attempt, leave out a value that cannot be written."""
        if value is DELETED:
            return None
        try:
            written = write(value)
            if not strict:
                read_again(written)  # else it would be found out too late
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
        """A step looked at a key of the state and was given its value, or at all of it."""
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
        """A step changed a key of the state."""
        segment = _open_record(item)
        if segment is None:
            return
        key = path.partition(".")[0]
        self._follow_writer(segment, key)
        self._writers[key] = segment
        if path == key or not any(key in (other.handed or ()) for other in self._shared.open):
            self._values.forget(key)  # else changes in place beside it are still to be found
        check_name(path)
        numbers = item.done().here()
        segment.writes.append((numbers.named(numbers.writes), path, value))
        segment.written_at.append(next(self._shared.writes))

    def _note_changes(self, segment: AttemptRecord, but: Collection[str] = ()) -> None:
        """Values that a step was given and changed in place are written as if it had set them, ``but`` some."""
        written = {key for key, _ in whole_writes(segment.writes)}
        for key, value in self._values.note_changes(sorted((segment.handed or set()) - written.union(but))):
            self._follow_writer(segment, key)  # its writes are part of the value
            self._writers[key] = segment
            segment.writes.append((0, key, value))
            segment.written_at.append(next(self._shared.writes))

    def _write_later(self, segment: AttemptRecord) -> None:
        """Write values as they are at the end of the step, behind writes of other steps meanwhile."""
        for key, place in whole_writes(segment.writes):
            value = segment.writes[place][2]
            others = self._writers.get(key) is not segment and type(value) not in IMMUTABLE
            if others and self._values.current(key) is value:
                self._follow_writer(segment, key)
                self._writers[key] = segment
                segment.written_at[place] = next(self._shared.writes)

    def _note_written(self, segment: AttemptRecord, written: list[tuple[Any, str, Any]]) -> None:
        for key, place in whole_writes(written):
            data = written[place][2]
            if data is not MISSING and self._writers.get(key) is segment:
                self._values.note_written(key, segment.writes[place][2], data)

    # --- committing ---------------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Tell whether all work of the tree is committed, so that live state and records agree."""
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
        if not (segment.after or segment.held_up):  # by far the most common case
            segment.committed, segment.causes = True, ()
            self._sink.commit([segment])
            return
        group = segment.group()
        if isinstance(group, AttemptRecord):
            group.hold_up(segment)
            # Its values may change before it is committed.
            segment.body()
            return
        # Records that waited for these are committed together with them: an event and its arrival are one thing.
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
        self._sink.commit(group if len(group) == 1 else [*group, *amends(group, self._shared.numbers)])

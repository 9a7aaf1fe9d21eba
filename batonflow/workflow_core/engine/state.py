"""The state of a run: plain data that the broker changes in place.

This module neither acts nor decides. ``RunState`` holds the queues of steps, the executions, the streams of list
fan-outs and the waits. Snapshots are written from it.
"""

import asyncio
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from batonflow.workflow_core.events import Event, HumanResponseEvent, StopEvent
from batonflow.workflow_core.routing import StepSpec, StepTable

__all__ = [
    "CAME_IN", "RETURNED", "TO_STEPS", "AttemptRecord", "Buffer", "Cause", "Causes", "Failures", "Number", "Numbers",
    "OnceCall", "Origin", "PastRecord", "Progress", "Question", "RunState", "StepState", "Stream", "Waiter", "Waits",
    "WorkItem", "address_of", "as_origin", "current_call", "current_item", "is_address", "origins_of", "run_in_words",
]  # fmt: skip

K = TypeVar("K")

Number = int | tuple[str, int]
"""A place in an attempt; inside ``ctx.once`` its key and the place within the call."""

CAME_IN = 0
"""The number of an event from outside or another workflow, in the record of its arrival."""

RETURNED = -1
"""The number of the event that a step returned; the further events of a list count on downwards."""


class AttemptRecord(Protocol):
    """The open record of an attempt, in which the engine notes the events that it caused."""

    id: int
    sends: list[tuple[Number, Event, str | None]]
    streamed: list[tuple[Number, Event, int, float]]
    gave_up: list[str] | None
    committed: bool

    def collected(self, number: Number, buffer: str, event: Event | None, found: list[Any] | None) -> None:
        """Note the outcome of ``collect_events``."""
        ...

    def follows(self, causes: "Iterable[Any]") -> None:
        """Commit this record together with other records, or after them."""
        ...


class PastRecord:
    """The committed record of an earlier owner of the run; only its number is known."""

    __slots__ = ("id",)
    committed = True

    def __init__(self, number: int) -> None:
        self.id = number


Cause = tuple[AttemptRecord | PastRecord, Number]
"""The origin of an event: the record of its attempt, and its number in that record."""

Causes = tuple[Cause, ...]
"""The origins of the events of a delivery; empty when no recorder listens."""

Origin = tuple[int, Number]
"""A cause as records name it: the number of the record, and of the event in it."""


def origins_of(causes: Causes) -> list[Any]:
    """Return causes as JSON data."""
    return [[record.id, number] for record, number in causes]


def as_origin(data: Any) -> Origin:
    """Read an origin from data."""
    number, name = data
    return number, cast("Number", tuple(cast("list[Any]", name)) if isinstance(name, list) else name)


class Numbers:
    """The counters of a place: a step, or a call of ``ctx.once``.

    ``sends``, ``writes`` and ``streamed`` count the current attempt. The ``skip_*`` counters hold the numbers that were
    done before a restore and are skipped. Results of collects stay until the place is done.
    """

    __slots__ = (
        "calls", "collected", "collects", "named_calls", "sends", "skip_sends", "skip_streamed", "skip_writes",
        "streamed", "waits", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sends = self.writes = self.streamed = 0
        self.skip_sends = self.skip_writes = self.skip_streamed = 0
        self.collects = 0
        self.collected: list[list[Event] | None] | None = None
        self.waits = self.named_calls = 0  # the second counts maps and questions
        # Child runs that the step called.
        self.calls = 0

    def begin_again(self) -> None:
        """Reset the counters for the next attempt; the results of collects stay."""
        self.sends = self.writes = self.streamed = self.collects = self.waits = self.named_calls = self.calls = 0
        self.skip_sends = self.skip_writes = self.skip_streamed = 0

    def named(self, number: int) -> Number:
        """Return a number of this place as a number of the whole attempt."""
        return number


class OnceCall(Numbers):
    """The counters inside a call of ``ctx.once`` without a record."""

    __slots__ = ("key", "progress")

    def __init__(self, key: str, progress: "Progress") -> None:
        super().__init__()
        self.key = key
        self.progress = progress

    def named(self, number: int) -> Number:
        """Return a number of this call as a number of the whole attempt."""
        return self.key, number


class Progress(Numbers):
    """The progress of a delivery: its counters, the open calls of ``ctx.once``, and the recorded results.

    Answers of waits and records of ``once`` stay until the delivery ends.
    """

    __slots__ = ("_answers", "begun", "intents", "once", "once_calls", "unreturned")

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[str, Event | None] | None = None
        self.once: dict[str, Any] | None = None
        # Effects with an unknown outcome, begun by an earlier owner of the run, by key.
        self.intents: dict[str, Any] | None = None
        # Recorded calls in this process, by key: intents, and results that are not returned yet.
        self.begun: dict[str, Any] = {}
        self.unreturned: dict[str, Any] = {}
        # None until the first call, so that steps without calls skip the lookup.
        self.once_calls: dict[str, OnceCall] | None = None

    def begin_again(self) -> None:
        """Reset the counters for the next attempt, also in failed calls of ``ctx.once``."""
        super().begin_again()
        for call in (self.once_calls or {}).values():
            call.begin_again()

    @property
    def answers(self) -> dict[str, Event | None]:
        """The answers of waits, by key."""
        if self._answers is None:
            self._answers = {}
        return self._answers

    @property
    def has_called(self) -> bool:
        """Tell whether the step may have called child runs in this attempt."""
        return self.calls > 0 or self.once_calls is not None

    def once_call(self, key: str) -> OnceCall:
        """Return the counters of a call; they continue after a failure or a restore."""
        if self.once_calls is None:
            self.once_calls = {}
        call = self.once_calls.get(key)
        if call is None:
            call = self.once_calls[key] = OnceCall(key, self)
        return call

    def here(self) -> Numbers:
        """Return the counters of the place that is running."""
        if self.once_calls is None:
            return self
        call = current_call.get()
        # The call may belong to another delivery, which runs this workflow inside of it.
        return call if call is not None and call.progress is self else self


current_call: ContextVar[OnceCall | None] = ContextVar("batonflow_once", default=None)
"""The call of ``ctx.once`` that is running here."""


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None: ...


Recoveries = dict[str, int]
"""Runs of each ``@catch_error`` handler in the lineage of an event; shared, never changed in place."""


@dataclass(slots=True)
class Failures:
    """The failed attempts of one delivery. Times are wall-clock seconds."""

    count: int
    first_attempt_at: float
    last_error: BaseException | None = None
    last_failed_at: float | None = None


class WorkItem:
    """The delivery of an event to a step, from arrival to end, over all attempts and waits."""

    __slots__ = (
        "after", "answered", "at_end", "away", "causes", "context", "due", "event", "failures", "id", "inputs",
        "open_waits", "progress", "recoveries", "released_stream", "run", "segment", "spec", "started_at",
        "step", "stream", "suspended", "task", "timer", "undelivered", "worker", "writer",
    )  # fmt: skip

    def __init__(
        self, item_id: int, step: "StepState", event: Event, stream: "Stream | None", recoveries: Recoveries | None
    ) -> None:
        self.id = item_id
        self.step = step
        self.spec = step.spec
        self.event = event
        self.stream = stream
        self.recoveries = recoveries
        self.inputs: Sequence[Event] | None = None
        self.progress: Progress | None = None
        self.failures: Failures | None = None
        self.due: float | None = None
        self.worker = -1
        self.open_waits = 0
        # Answered waits of a suspended attempt that is queued for a worker.
        self.answered: list[Waiter] | None = None
        self.undelivered = 0
        self.started_at = 0.0
        self.suspended = False
        # Whether the attempt is suspended in a wait.
        self.away = False
        self.causes: Causes = ()
        self.segment: AttemptRecord | None = None
        # For a step with a list parameter: the key of the stream in records, and the records of the work in it.
        self.released_stream = 0
        self.after: list[AttemptRecord | PastRecord] | None = None
        # The run and the context of the running attempt, for code that the step calls.
        self.run: Any = None
        self.context: Any = None
        # The fast path to the stream, see ``Run.show``: publish, clock, origin of the events, and thread.
        self.writer: tuple[Any, Any, tuple[str, str, int], int] | None = None
        # Checks to make at the end of the attempt.
        self.at_end: list[partial[None]] | None = None
        # For the runner: the task of the attempt, and the timer of its timeout or retry.
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None

    def as_cause(self, number: Number = RETURNED) -> Causes:
        """Return the cause for events of this attempt; empty without a recorder."""
        return ((self.segment, number),) if self.segment is not None else ()

    def make_progress(self) -> Progress:
        """Return the progress; create it at first use."""
        if self.progress is None:
            self.progress = Progress()
        return self.progress

    def look_at_end(self) -> None:
        """Make the checks for the end of the attempt."""
        looks, self.at_end = self.at_end or (), None
        for look in looks:
            look()

    def __repr__(self) -> str:
        return f"<{self.spec.name}#{self.id}>"


class Question:
    """A question to a person: the streamed event, and the wait for the answer if there is one.

    ``path`` and ``cause`` identify the workflow and the delivery that asked. ``number`` identifies a question without
    a wait.
    """

    __slots__ = ("answered", "cause", "event", "number", "path", "run", "waiter")

    def __init__(self, event: Event, path: str, cause: int, waiter: "Waiter | None" = None, *, number: int = 0) -> None:
        self.event = event
        self.path = path
        self.cause = cause
        self.number = number
        self.waiter = waiter
        self.answered = False
        # The run that asks; set when open questions are looked up.
        self.run: Any = None


class Waiter:
    """An open ``wait_for_event``: event type, requirements and delivery. ``due`` is in wall-clock seconds."""

    __slots__ = (
        "asked", "due", "event_type", "explicit_id", "futures", "item", "key", "opened", "question", "requirements",
        "timer", "unknown_requirements",
    )  # fmt: skip

    def __init__(
        self,
        waiter_id: str | None,
        key: str,
        event_type: type[Event],
        requirements: dict[str, Any],
        item: WorkItem,
        due: float | None,
    ) -> None:
        self.explicit_id = waiter_id
        self.key = key
        self.event_type = event_type
        self.requirements = requirements
        self.item = item
        self.due = due
        # Whether the step has reached the wait since a restore.
        self.asked = False
        self.question: Question | None = None
        # The record that ended with this wait; None without a recorder.
        self.opened: AttemptRecord | None = None
        # Whether the requirements were lost in a restore; the wait accepts no event until the step asks again.
        self.unknown_requirements = False
        # For the runner: the futures of the answer, and the timer for ``due``.
        self.futures: list[asyncio.Future[None]] = []
        self.timer: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """The id given by the step, or an id made from the place of the wait."""
        return self.explicit_id or f"waiter_{self.key.partition(':')[2]}_{self.item.id}_{self.key.partition(':')[0]}"

    def is_for_the_same(self, other: "Waiter") -> bool:
        """Tell whether two waits have the same explicit id and requirements, and so the same answer."""
        named = self.explicit_id is not None and self.explicit_id == other.explicit_id
        return named and bool(self.requirements) and self.requirements == other.requirements

    def wants(self, event: Event) -> bool:
        """Tell whether an event has the awaited type and meets all requirements."""
        if self.unknown_requirements:
            return False
        if type(event) is not self.event_type and not (self.item.spec.wide and isinstance(event, self.event_type)):
            return False
        return all(getattr(event, name, None) == value for name, value in self.requirements.items())


_FEW = 8

TO_STEPS = "@"
"""The address of the steps of a run; waits take nothing that is sent there."""


def address_of(waiter: Waiter) -> str:
    """Return the address of a wait, unique within the run."""
    return f"@{waiter.item.id}/{waiter.key}"


def _requirements_of(waiter: Waiter) -> int:
    return len(waiter.requirements)


def is_address(target: str | None) -> bool:
    """Tell whether a target is an address, not the name of a step."""
    return target is not None and target.startswith("@")


class Waits:
    """The open waits, in the order of opening.

    An event is compared only with the waits for its type, and for its base classes where steps accept subclasses.
    The cost of opening and closing a wait does not depend on their number.
    """

    __slots__ = ("_index", "all")

    def __init__(self) -> None:
        # Values are places in the order of opening. A plain attribute, because it is read for every event.
        self.all: dict[Waiter, int] = {}
        # Most runs have few open waits; checking each takes less memory than an index.
        self._index: _Index | None = None

    def add(self, waiter: Waiter) -> None:
        """Open a wait."""
        self.all[waiter] = next(reversed(self.all.values()), 0) + 1
        if self._index is not None:
            self._index.add(waiter)
        elif len(self.all) > _FEW:
            self._index = _Index()
            for one in self.all:
                self._index.add(one)

    def remove(self, waiter: Waiter) -> None:
        """Close a wait."""
        del self.all[waiter]
        if self._index is not None:
            self._index.remove(waiter)

    def clear(self) -> None:
        """Close all waits."""
        self.all.clear()
        self._index = None

    def of(self, item: WorkItem) -> list[Waiter]:
        """Return the open waits of a delivery."""
        if self._index is None:
            return [waiter for waiter in self.all if waiter.item.id == item.id]
        return list(self._index.by_item.get(item.id, ()))

    def wanting(self, event: Event) -> Iterator[Waiter]:
        """Return the open waits that accept an event."""
        if self._index is None:
            return (waiter for waiter in list(self.all) if waiter.wants(event))
        found = self._index.of_type(type(event))
        if self._index.wide:
            found.sort(key=self.all.__getitem__)
        return (waiter for waiter in found if waiter.wants(event))

    def takers(self, event: Event, target: str | None = None, besides: Container[Waiter] = ()) -> list[Waiter]:
        """Return the open waits that an event answers.

        Only one wait of those that ask a person gets the answer, because the person has answered one question. It is
        the wait with the most requirements; among equals, the oldest.
        """
        if is_address(target):
            found = self.at(cast("str", target))
            return [found] if found is not None and found not in besides and found.wants(event) else []
        takers: list[Waiter] = []
        asks_person: list[Waiter] = []
        for waiter in self.wanting(event):
            if (target is None or waiter.item.spec.name == target) and waiter not in besides:
                asks = waiter.question is not None or isinstance(event, HumanResponseEvent)
                (asks_person if asks else takers).append(waiter)
        if asks_person:
            several = len(asks_person) > 1
            takers.append(max(asks_person, key=_requirements_of) if several else asks_person[0])
        return takers

    def at(self, address: str) -> "Waiter | None":
        """Return the open wait with an address."""
        item_id, _, key = address.removeprefix("@").partition("/")
        if self._index is None:
            waits = [waiter for waiter in self.all if str(waiter.item.id) == item_id]
        else:
            waits = list(self._index.by_item.get(int(item_id), ())) if item_id.isdecimal() else []
        return next((waiter for waiter in waits if waiter.key == key), None)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.all

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self.all))

    def __len__(self) -> int:
        return len(self.all)


class _Index:
    """An index of open waits by delivery and by event type."""

    __slots__ = ("by_item", "exact", "wide")

    def __init__(self) -> None:
        self.by_item: dict[int, dict[Waiter, None]] = {}
        self.exact: dict[type[Event], dict[Waiter, None]] = {}
        self.wide: dict[type[Event], dict[Waiter, None]] = {}

    def add(self, waiter: Waiter) -> None:
        self.by_item.setdefault(waiter.item.id, {})[waiter] = None
        self._of_its_kind(waiter).setdefault(waiter.event_type, {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        _take_out(self.by_item, waiter.item.id, waiter)
        _take_out(self._of_its_kind(waiter), waiter.event_type, waiter)

    def of_type(self, cls: type[Event]) -> list[Waiter]:
        found = list(self.exact.get(cls, ()))
        if self.wide:
            found += [waiter for base in cls.__mro__ for waiter in self.wide.get(base, ())]
        return found

    def _of_its_kind(self, waiter: Waiter) -> dict[type[Event], dict[Waiter, None]]:
        return self.wide if waiter.item.spec.wide else self.exact


def _take_out(index: dict[K, dict[Waiter, None]], key: K, waiter: Waiter) -> None:
    found = index[key]
    del found[waiter]
    if not found:
        del index[key]


class Buffer:
    """The events that ``collect_events`` has put aside, by type, until the expected set is complete."""

    __slots__ = ("causes", "count", "expected", "have", "keys", "needs")

    def __init__(self) -> None:
        self.expected: list[type[Event]] = []
        self.needs: dict[type[Event], int] = {}
        self.have: dict[type[Event], deque[Event]] = {}
        # The origins of the events in ``have``, in the same order: delivery and number of the collect.
        self.keys: dict[type[Event], deque[list[Any]]] = {}
        self.count = 0
        self.causes: list[AttemptRecord | PastRecord] = []

    def lacks(self) -> list[str]:
        """Return the names of the missing types, with their numbers."""
        missing: list[str] = []
        for cls, need in self.needs.items():
            short = need - len(self.have.get(cls, ()))
            if short > 0:
                missing.append(cls.__name__ if short == 1 else f"{short} {cls.__name__}")
        return missing


class Stream:
    """The stream of a list fan-out; it is open while there is work in it."""

    __slots__ = (
        "causes", "collected", "collected_causes", "id", "key", "live", "parent", "producer", "recoveries", "released",
    )  # fmt: skip

    def __init__(self, stream_id: int, producer: str, parent: "Stream | None", recoveries: Recoveries | None) -> None:
        self.id = stream_id
        self.producer = producer
        self.parent = parent
        self.recoveries = recoveries
        self.live = 0
        self.collected: dict[str, list[Event]] = {}
        self.released: set[str] = set()
        # For records: the key of the stream, the records of the work in it, and the origin of each member.
        self.key = 0
        self.causes: list[AttemptRecord | PastRecord] = []
        self.collected_causes: dict[str, list[Cause]] = {}


class StepState:
    """The state of a step: its queue, workers, joins and buffers."""

    __slots__ = (
        "_buffers", "_free_workers", "_join_causes", "_joins", "active", "produced", "queue", "received", "spec",
        "workers",
    )  # fmt: skip

    def __init__(self, spec: StepSpec) -> None:
        self.spec = spec
        self.active = 0
        self.workers = 0
        # The numbers of received and produced events by type, for drawings.
        self.received: dict[type[Event], int] = {}
        self.produced: dict[type[Event], int] = {}
        # Deliveries that wait for a worker, in order, also answered waits. Created at first use.
        self.queue: deque[WorkItem] | None = None
        self._free_workers: list[int] | None = None
        self._buffers: dict[str, Buffer] | None = None
        self._joins: dict[int, list[deque[Event]]] | None = None
        self._join_causes: dict[int, list[deque[Cause]]] | None = None

    def occupy(self, item: WorkItem) -> None:
        """Give a delivery the worker that was freed last, or a new one. If all are free, it gets the first one."""
        if self.active == 0:
            self.workers, self._free_workers = 1, None
            item.worker = 0
        elif self._free_workers:
            item.worker = self._free_workers.pop()
        else:
            item.worker = self.workers
            self.workers += 1
        self.active += 1

    def release(self, item: WorkItem) -> None:
        """Free the worker of a delivery, if it has one."""
        if item.worker >= 0:
            self.active -= 1
            if self.active:
                if self._free_workers is None:
                    self._free_workers = []
                self._free_workers.append(item.worker)
            item.worker = -1

    # Created at first use.

    @property
    def buffers(self) -> dict[str, Buffer]:
        """The buffers of ``collect_events``, by name."""
        if self._buffers is None:
            self._buffers = {}
        return self._buffers

    @property
    def joins(self) -> dict[int, list[deque[Event]]]:
        """The queues of joins, one for each parameter, by open stream (0 outside of streams)."""
        if self._joins is None:
            self._joins = {}
        return self._joins

    @property
    def join_causes(self) -> dict[int, list[deque[Cause]]]:
        """The causes of the events in ``joins``, in the same order; empty without a recorder."""
        if self._join_causes is None:
            self._join_causes = {}
        return self._join_causes

    def enqueue(self, item: WorkItem) -> None:
        """Put a delivery last in the queue."""
        if self.queue is None:
            self.queue = deque()
        self.queue.append(item)

    def clear(self) -> None:
        """Drop all queued, held and executing work; the counts stay."""
        self.active = self.workers = 0
        self._free_workers = self.queue = self._buffers = self._joins = self._join_causes = None


class RunState:
    """The state of a run. Times are in wall-clock seconds."""

    __slots__ = (
        "busy", "cancelled", "child_counts", "delayed", "elapsed", "item_seq", "items", "question_seq", "questions",
        "restored_ticks", "run_id", "running", "served", "steps", "stopped", "stream_seq", "streams", "table",
        "waiter_seq", "waiters",
    )  # fmt: skip

    def __init__(self, run_id: str, table: StepTable) -> None:
        self.run_id = run_id
        self.table = table
        self.steps: dict[str, StepState] = {}
        # Unfinished deliveries by number: queued, executing, waiting or timed.
        self.items: dict[int, WorkItem] = {}
        self.streams: dict[int, Stream] = {}
        self.waiters = Waits()
        self.delayed: dict[int, WorkItem] = {}
        # Deliveries that are queued, executing or timed; waiting ones do not count.
        self.busy = 0
        self.item_seq = self.stream_seq = self.waiter_seq = self.question_seq = 0
        self.running = False
        # Whether the restored run was cancelled; it may still continue.
        self.cancelled = False
        # Whether a server started the run, with input of a client.
        self.served = False
        # Undecided ticks of a snapshot: events, and outcomes of steps that waited for their own sends.
        self.restored_ticks: Sequence[Any] = ()
        # The seconds of the timeout that were used before this process.
        self.elapsed = 0.0
        # The StopEvent of a restored run with finished steps and unfinished child runs.
        self.stopped: StopEvent | None = None
        # Streamed questions to people without a wait; kept at the root of a tree.
        self.questions: Sequence[Question] = ()
        # The counts of ended child runs, by the name of the workflow.
        self.child_counts: dict[str, Any] | None = None

    def step(self, spec: StepSpec) -> StepState:
        """Return the state of a step; create it at first use."""
        state = self.steps.get(spec.name)
        if state is None:
            state = self.steps[spec.name] = StepState(spec)
        return state

    def items_by_step(self) -> dict[str, list[WorkItem]]:
        """Return the unfinished deliveries by step; steps without deliveries are left out."""
        found: dict[str, list[WorkItem]] = {}
        for item in self.items.values():
            found.setdefault(item.spec.name, []).append(item)
        return found


current_item: ContextVar[WorkItem | None] = ContextVar("batonflow_step", default=None)
"""The delivery of the step that is running here."""


def run_in_words() -> str:
    """Return the names of the running workflow and run, with a blank before them; empty outside of steps."""
    if (item := current_item.get()) is None or (run := item.run) is None:
        return ""
    return f" (workflow {run.workflow.__batonflow__.workflow_name}, run {run.root.state.run_id})"

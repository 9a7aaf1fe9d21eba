"""The broker keeps its books whatever happens in whatever order: random steps, random ticks."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonflow.workflow_core.context.collecting import collect
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.state import RunState, Waiter, WorkItem
from batonflow.workflow_core.engine.ticks import (
    Command,
    EventArrived,
    Finish,
    ResumeWait,
    RetryDue,
    SetRetryTimer,
    StartStep,
    StepFailed,
    StepReturned,
    Tick,
    WaitOpened,
    WaitTimedOut,
)
from batonflow.workflow_core.events import CollectionReleaseEvent, Event, StartEvent, StepFailedEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from batonflow.workflow_core.routing import StepTable
from batonflow.workflow_core.step import catch_error, step


class A(Event):
    pass


class B(Event):
    pass


class C(Event):
    pass


class Answer(Event):
    pass


EVENTS = (A, B, C)
RETRYING = retry_policy(wait=wait_fixed(1), stop=stop_after_attempt(2))


def _step(name: str, annotations: dict[str, Any], num_workers: int) -> Any:
    async def body(self: object, ev: Event) -> None: ...

    async def joining(self: object, ev: Event, other: Event) -> None: ...

    function = joining if "other" in annotations else body
    function.__name__ = name
    function.__qualname__ = f"Random.{name}"
    function.__annotations__ = {**annotations, "return": annotations.get("return", A | B | C | list[A] | None)}
    return step(num_workers=num_workers, retry_policy=RETRYING)(function)


async def _rescue(self: object, ev: StepFailedEvent) -> A | None: ...


_rescue.__qualname__ = "Random.rescue"


@st.composite
def tables(draw: st.DrawFn) -> StepTable:
    """Steps that take one event each (or a join, or the lists that others return), with one to three workers."""
    functions: dict[str, Any] = {}
    workers = st.integers(1, 3)
    for number in range(draw(st.integers(1, 3))):
        # All take the start event: what cannot be reached from one, the step table does not bind to any stream.
        taken = draw(st.sampled_from((A, B, C, A | B))) | StartEvent
        functions[f"s{number}"] = _step(f"s{number}", {"ev": taken}, draw(workers))
    if draw(st.booleans()):
        functions["join"] = _step("join", {"ev": B, "other": C}, draw(workers))
    if draw(st.booleans()):
        functions["collector"] = _step("collector", {"ev": list[A], "return": B | None}, draw(workers))
    functions["rescue"] = catch_error(max_recoveries=1000)(_rescue)
    return StepTable("Random", functions)


@dataclass
class Books:
    """What must be true of a run, kept apart from it.

    Attributes:
        running: Deliveries whose code runs, by their number.
        waiting: Open waits.
        delayed: Deliveries whose retry timer is set.
        owed: How many deliveries each step of a single event must get, from the events so far.
        given: How many it got.
        released: (stream, step) of every released collection.
    """

    state: RunState
    broker: Broker
    running: dict[int, WorkItem] = field(default_factory=dict)
    waiting: list[Waiter] = field(default_factory=list)
    delayed: list[WorkItem] = field(default_factory=list)
    owed: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    started: set[tuple[int, int]] = field(default_factory=set)
    released: list[tuple[str, str]] = field(default_factory=list)
    numbers: int = 0

    def owe(self, event: Event) -> None:
        for spec in self.state.table.route(type(event)).singles:
            self.owed[spec.name] += 1

    def feed(self, tick: Tick) -> None:
        for command in self.broker.decide(tick):
            self._take(command)
        self.check()

    def _take(self, command: Command) -> None:
        assert not isinstance(command, Finish), f"the run ended: {command.error!r}"
        if isinstance(command, StartStep):
            item = command.item
            attempt = (item.id, item.failures.count if item.failures is not None else 0)
            assert attempt not in self.started, "an attempt was started twice"
            self.started.add(attempt)
            if attempt[1] == 0:
                self.given[item.spec.name] += 1
                if isinstance(item.event, CollectionReleaseEvent):
                    self.released.append((item.event.stream_id, item.spec.name))
            self.running[item.id] = item
        elif isinstance(command, ResumeWait):
            self.waiting.remove(command.waiter)
            self.running[command.waiter.item.id] = command.waiter.item
        elif isinstance(command, SetRetryTimer):
            self.delayed.append(command.item)

    def check(self) -> None:
        state = self.state
        executing: set[int] = set()
        busy = 0
        items = state.items_by_step()
        for step_state in state.steps.values():
            of_step = items.get(step_state.spec.name, [])
            at_work = [item for item in of_step if item.worker >= 0]
            assert step_state.active == len(at_work) <= step_state.spec.num_workers
            workers = [item.worker for item in at_work]
            assert len(set(workers)) == len(workers)
            assert all(worker < step_state.spec.num_workers for worker in workers)
            queued = len(step_state.queue or ())
            assert queued == 0 or len(at_work) == step_state.spec.num_workers, "a worker is free and work is queued"
            executing |= {item.id for item in at_work}
            busy += sum(not item.suspended for item in of_step)
        assert executing == set(self.running)
        assert state.busy == busy
        assert {item.id for item in self.delayed} == set(state.delayed)
        for stream in state.streams.values():
            assert stream.live > 0, "a stream is open although nothing is in it"

    def finish(self, item: WorkItem, tick: Tick) -> None:
        del self.running[item.id]
        self.feed(tick)


class Chance:
    """Lets the next thing happen to a run, whatever may happen to it now.

    Args:
        books: The run.
        draw: Decides.
    """

    def __init__(self, books: Books, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.books = books
        self.draw = draw
        self.fan_outs = 0

    def take_turn(self) -> None:
        books = self.books
        actions: list[Callable[[], None]] = [self.arrive]
        actions += [self.give_back, self.fan_out, self.fail, self.wait] if books.running else []
        actions += [self.retry] if books.delayed else []
        actions += [self.answer, self.time_out] if books.waiting else []
        self.draw(st.sampled_from(actions))()

    def _running(self) -> WorkItem:
        return self.draw(st.sampled_from(list(self.books.running.values())))

    def arrive(self) -> None:
        event = self.draw(st.sampled_from(EVENTS))()
        self.books.owe(event)
        self.books.feed(EventArrived(event))

    def retry(self) -> None:
        delayed = self.books.delayed
        self.books.feed(RetryDue(delayed.pop(self.draw(st.integers(0, len(delayed) - 1)))))

    def answer(self) -> None:
        self.books.feed(EventArrived(Answer()))

    def time_out(self) -> None:
        self.books.feed(WaitTimedOut(self.draw(st.sampled_from(self.books.waiting))))

    def give_back(self) -> None:
        item = self._running()
        cls = self.draw(st.sampled_from((None, *EVENTS)))
        event = cls() if cls is not None else None
        if event is not None:
            self.books.owe(event)
        self.books.finish(item, StepReturned(item, event, 0.0))

    def fan_out(self) -> None:
        item = self._running()
        if not item.spec.fans_out:
            return
        members = [cls() for cls in self.draw(st.lists(st.sampled_from(EVENTS), max_size=3))]
        for member in members:
            self.books.owe(member)
        self.fan_outs += 1
        self.books.finish(item, StepReturned(item, members, 0.0))

    def fail(self) -> None:
        item = self._running()
        if item.spec.name == "rescue":
            return
        if item.failures is not None and item.failures.count == 1:
            self.books.owed["rescue"] += 1
        self.books.finish(item, StepFailed(item, ValueError(), 0.0))

    def wait(self) -> None:
        item = self._running()
        self.books.numbers += 1
        waiter = Waiter(None, f"{self.books.numbers}:Answer", Answer, {}, item, None)
        self.books.waiting.append(waiter)
        self.books.finish(item, WaitOpened(waiter))


@given(table=tables(), data=st.data())
def test_every_delivery_starts_once_and_the_counts_are_right_after_every_tick(table, data):
    books = Books(state := RunState("run", table), Broker(state))
    state.running = True
    chance = Chance(books, data.draw)
    for _ in range(data.draw(st.integers(1, 40))):
        chance.take_turn()
    _drain(books)
    for name, count in books.owed.items():
        assert books.given[name] == count, f"step {name} was owed {count} deliveries"
    assert state.busy == 0
    assert len(set(books.released)) == len(books.released), "a collection was released twice"
    if "join" in table.steps:
        return  # it may hold one half for ever, and with it the stream of that half
    assert state.streams == {}
    if "collector" in table.steps:
        assert len(books.released) == chance.fan_outs


def _drain(books: Books) -> None:
    """Let everything end, with no new events."""
    while books.running or books.delayed or books.waiting:
        if books.running:
            item = next(iter(books.running.values()))
            books.finish(item, StepReturned(item, None, 0.0))
        elif books.delayed:
            books.feed(RetryDue(books.delayed.pop()))
        else:
            books.feed(WaitTimedOut(books.waiting[0]))


@given(
    expected=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5),
    arrivals=st.lists(st.sampled_from(EVENTS), max_size=30),
)
def test_collect_gives_the_oldest_of_each_type_in_the_order_asked_for(expected, arrivals):
    table = StepTable("Gather", {"gather": _step("gather", {"ev": A | B | C}, 1)})
    broker = Broker(state := RunState("run", table))
    state.running = True
    run: Any = SimpleNamespace(thread_id=get_ident())
    held: list[Event] = []
    for cls in arrivals:
        event = cls()
        (start,) = broker.decide(EventArrived(event))
        found = collect(run, start.item, event, expected, "default")
        if sum(type(other) is cls for other in held) < expected.count(cls):
            held.append(event)
        wanted: list[Event] | None = None
        if len(held) == len(expected):
            wanted = []
            for wanted_type in expected:
                oldest = next(event for event in held if type(event) is wanted_type)
                held.remove(oldest)
                wanted.append(oldest)
        assert (found is None) == (wanted is None)
        assert found is None or all(one is other for one, other in zip(found, wanted or [], strict=True))
        broker.decide(StepReturned(start.item, None, 0.0))

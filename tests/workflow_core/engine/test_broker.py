"""The broker alone: ticks in, commands out. It decides without a clock, a loop or any randomness."""

import inspect
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.workflow_core import Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.engine import broker as broker_module
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.state import RunState, WorkItem
from batonflow.workflow_core.engine.ticks import (
    Command,
    Enqueued,
    EventArrived,
    Finish,
    Idle,
    RunIdle,
    Stalled,
    StartStep,
    StepFailed,
    StepReturned,
    Unrouted,
)


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Nobody(Event):
    pass


class Flow(Workflow):
    @step
    async def start(self, ev: StartEvent) -> list[A]: ...

    @step(num_workers=2)
    async def work(self, ev: A) -> B | A: ...

    @step
    async def join(self, found: list[B]) -> StopEvent: ...


def new_broker() -> tuple[Broker, RunState]:
    state = RunState("run", Flow().step_table)
    state.running = True
    return Broker(state), state


def started(commands: list[Command]) -> list[WorkItem]:
    return [command.item for command in commands if isinstance(command, StartStep)]


def test_an_event_starts_the_step_that_takes_it():
    broker, state = new_broker()
    [command] = broker.decide(EventArrived(StartEvent()))
    assert isinstance(command, StartStep)
    assert command.item.spec.name == "start"
    assert state.busy == 1


def test_surplus_work_is_queued_and_started_when_a_worker_is_free():
    broker, _ = new_broker()
    [start] = started(broker.decide(EventArrived(StartEvent())))
    commands = broker.decide(StepReturned(start, [A(n=n) for n in range(4)], 0.0))
    first, second = started(commands)
    assert sum(isinstance(command, Enqueued) for command in commands) == 2
    [third] = started(broker.decide(StepReturned(first, B(n=0), 0.0)))
    assert [item.event.n for item in (first, second, third)] == [0, 1, 2]
    assert third.worker == first.worker if first.worker >= 0 else third.worker >= 0


def test_an_event_that_nobody_takes():
    broker, _ = new_broker()
    [command] = broker.decide(EventArrived(Nobody()))
    assert isinstance(command, Unrouted)


def test_idle_and_stalled():
    broker, _ = new_broker()
    idle, stalled = broker.decide(RunIdle(expecting=False))
    assert isinstance(idle, Idle)
    assert isinstance(stalled, Stalled)
    assert [type(command) for command in broker.decide(RunIdle(expecting=True))] == [Idle]


def test_a_failure_without_policy_or_handler_finishes_the_run():
    broker, state = new_broker()
    [start] = started(broker.decide(EventArrived(StartEvent())))
    error = ValueError("boom")
    [finish] = broker.decide(StepFailed(start, error, 5.0))
    assert isinstance(finish, Finish)
    assert finish.error is error
    assert state.running is False
    assert state.busy == 0


def test_it_reads_no_clock_and_makes_no_ids():
    source = inspect.getsource(broker_module)
    for name in ("import time", "import random", "import asyncio", "uuid", "import os", "datetime.now"):
        assert name not in source


def play(count: int, choices: list[int]) -> tuple[list[str], dict[str, Any]]:
    """Drive a run of ``count`` members to its end, always ending the running execution that ``choices`` picks."""
    broker, state = new_broker()
    log: list[str] = []
    running = started(broker.decide(EventArrived(StartEvent())))
    handled: list[int] = []
    most = 0
    joined: list[int] | None = None
    finished = 0
    for turn in range(10_000):
        if not running:
            break
        item = running.pop(choices[turn % len(choices)] % len(running))
        name = item.spec.name
        if name == "start":
            result: Any = [A(n=n) for n in range(count)]
        elif name == "work":
            handled.append(item.event.n)
            # every third member goes round once more before it is done
            result = (
                A(n=item.event.n + 1000) if item.event.n % 3 == 0 and item.event.n < 1000 else B(n=item.event.n % 1000)
            )
        else:
            joined = sorted(member.n for member in item.inputs or ())
            result = StopEvent()
        tick = StepReturned(item, result, 0.0)
        log.append(str(tick))
        commands = broker.decide(tick)
        log.extend(type(command).__name__ for command in commands)
        finished += sum(isinstance(command, Finish) for command in commands)
        running.extend(started(commands))
        most = max(most, sum(item.spec.name == "work" for item in running))
    return log, {"handled": handled, "most": most, "joined": joined, "finished": finished, "busy": state.busy}


@settings(max_examples=60)
@given(st.integers(0, 12), st.lists(st.integers(0, 7), min_size=1, max_size=20))
def test_in_any_order_each_delivery_is_handled_once_and_the_join_gets_all(count: int, choices: list[int]):
    log, seen = play(count, choices)
    again = [n + 1000 for n in range(count) if n % 3 == 0]
    assert sorted(seen["handled"]) == sorted([*range(count), *again])
    assert seen["joined"] == sorted(n % 1000 for n in range(count))
    assert seen["most"] <= 2
    assert (seen["finished"], seen["busy"]) == (1, 0)
    assert play(count, choices)[0] == log, "the same ticks give the same commands"


def test_the_price_of_a_tick_does_not_grow_with_the_queue():
    """Counted in commands, not in seconds: a tick on a long queue gives as few as on a short one."""
    for length in (10, 5000):
        broker, _ = new_broker()
        [start] = started(broker.decide(EventArrived(StartEvent())))
        first, _second = started(broker.decide(StepReturned(start, [A(n=n) for n in range(length)], 0.0)))
        commands = broker.decide(StepReturned(first, B(), 0.0))
        assert [type(command) for command in commands] == [StartStep]

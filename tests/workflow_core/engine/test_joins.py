"""Routing, queues, joins of several parameters, list fan-outs and list joins."""

import asyncio
import logging
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.workflow_core import (
    Collect,
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Take,
    Workflow,
    WorkflowRuntimeError,
    WorkflowValidationError,
    catch_error,
    step,
)
from batonflow.workflow_core.events import WorkflowFailedEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed, wait_none
from tests.contract import contract
from tests.workflow_core.flows import resume, saved, streamed, until


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class C(Event):
    n: int = 0


class D(Event):
    n: int = 0


# --- routing and queues -----------------------------------------------------------------------------------------------


@contract("3.1.1")
async def test_an_event_goes_to_every_step_that_accepts_it():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> A:
            return A(n=1)

        @step
        async def one(self, ev: A) -> B:
            return B(n=1)

        @step
        async def other(self, ev: A) -> B:
            return B(n=2)

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent | None:
            found = ctx.collect_events(ev, [B, B])
            return StopEvent(result=[b.n for b in found]) if found else None

    assert await Flow().run() == [1, 2]


@contract("3.1.1")
@pytest.mark.parametrize("workers", [1, 2, 4])
async def test_no_more_executions_at_once_than_workers_and_in_order(workers: int):
    running: list[int] = []
    started: list[int] = []
    most: list[int] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in range(10):
                ctx.send_event(A(n=n))

        @step(num_workers=workers)
        async def work(self, ev: A) -> B:
            started.append(ev.n)
            running.append(ev.n)
            most.append(len(running))
            await asyncio.sleep(0.001)
            running.remove(ev.n)
            return B(n=ev.n)

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [B] * 10) else None

    await Flow().run()
    assert started == list(range(10))
    assert max(most) == workers


@contract("3.1.1")
async def test_a_started_step_reaches_its_first_pause_before_the_next_event_arrives():
    order: list[str] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in range(3):
                ctx.send_event(A(n=n))

        @step
        async def work(self, ev: A) -> StopEvent | None:
            order.append(f"in {ev.n}")
            await asyncio.sleep(0)
            order.append(f"out {ev.n}")
            return StopEvent() if ev.n == 2 else None

    await Flow().run()
    assert [line for line in order if line.startswith("in")] == ["in 0", "in 1", "in 2"]


@contract("3.1.1")
async def test_each_step_has_a_queue_of_its_own():
    gate = asyncio.Event()

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B | None:
            for n in range(3):
                ctx.send_event(A(n=n))
            ctx.send_event(B())

        @step(num_workers=1)
        async def slow(self, ev: A) -> None:
            await gate.wait()

        @step(num_workers=1)
        async def quick(self, ev: B) -> StopEvent:
            gate.set()
            return StopEvent(result="not held up")

    assert await Flow().run() == "not held up"


# --- joins of several parameters --------------------------------------------------------------------------------------


@contract("3.1.2")
async def test_a_join_fires_once_for_each_complete_set_oldest_first():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B | None:
            for event in (A(n=1), A(n=2), B(n=3), A(n=4), B(n=5)):
                ctx.send_event(event)

        @step(num_workers=1)
        async def join(self, ctx: Context, b: B, a: A) -> C:
            return C(n=10 * a.n + b.n)

        @step
        async def end(self, ctx: Context, ev: C) -> StopEvent | None:
            found = ctx.collect_events(ev, [C, C])
            return StopEvent(result=[c.n for c in found]) if found else None

    assert await Flow().run() == [13, 25]


@contract("3.1.2")
async def test_the_slots_of_a_join_lie_on_one_stream_level():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> list[A]: ...

        @step
        async def make(self, ev: StartEvent) -> B: ...

        @step
        async def join(self, a: A, b: B) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="common stream level"):
        Flow().validate()


@contract("3.1.2")
async def test_a_join_inside_a_stream_joins_within_each_stream():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step
        async def split(self, ev: A) -> list[B | C]:
            return [B(n=ev.n), C(n=ev.n)]

        @step
        async def join(self, b: B, c: C) -> D:
            assert b.n == c.n
            return D(n=b.n)

        @step
        async def inner(self, ds: list[D]) -> D2:
            return D2(n=sum(d.n for d in ds))

        @step
        async def outer(self, ds: list[D2]) -> StopEvent:
            return StopEvent(result=sorted(d.n for d in ds))

    assert await Flow().run() == [1, 2]


class D2(Event):
    n: int = 0


@contract("3.1.2")
async def test_a_failing_join_names_the_event_that_completed_the_set():
    seen: list[Event] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B | None:
            ctx.send_event(B(n=1))
            ctx.send_event(A(n=2))

        @step
        async def join(self, a: A, b: B) -> StopEvent:
            raise ValueError("boom")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            seen.append(ev.input_event)
            return StopEvent()

    await Flow().run()
    assert seen == [A(n=2)]


# --- list fan-out and list joins --------------------------------------------------------------------------------------


def doubling(work_num_workers: int = 4) -> type[Workflow]:
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in ev.numbers]

        @step(num_workers=work_num_workers)
        async def work(self, ev: A) -> B | None:
            return B(n=ev.n * 2) if ev.n >= 0 else None

        @step
        async def join(self, found: list[B]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    return Flow


@contract("3.1.3")
async def test_a_list_join_gets_everything_once():
    assert await doubling()().run(numbers=[1, 2, 3]) == [2, 4, 6]


@contract("3.1.3")
@given(st.lists(st.integers(-5, 5), max_size=12), st.integers(1, 5))
def test_a_list_join_gets_the_results_of_exactly_the_members(numbers: list[int], workers: int):
    assert sorted(doubling(workers)().run_sync(numbers=numbers)) == sorted(n * 2 for n in numbers if n >= 0)


@contract("3.1.3")
async def test_an_empty_list_opens_and_closes_at_once():
    assert await doubling()().run(numbers=[]) == []


@contract("3.1.3")
async def test_members_that_return_nothing_leave():
    assert await doubling()().run(numbers=[-1, 5, -2]) == [10]
    assert await doubling()().run(numbers=[-1]) == []


@contract("3.1.3")
async def test_none_in_place_of_a_list_opens_nothing():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A] | None:
            return None

        @step
        async def join(self, found: list[A]) -> StopEvent:
            return StopEvent(result="joined")

        @step
        async def other(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result="not joined")

    handler = Flow().run()
    await asyncio.sleep(0.002)
    assert not handler.is_done()
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == "not joined"


@contract("3.1.3")
async def test_results_come_in_the_order_of_their_arrival():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=3), A(n=1), A(n=2)]

        @step
        async def work(self, ev: A) -> B:
            await asyncio.sleep(ev.n * 0.004)
            return B(n=ev.n)

        @step
        async def join(self, found: list[B]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    assert await Flow().run() == [1, 2, 3]


@contract("3.1.3")
async def test_two_list_joins_of_one_stream_fire_both():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step
        async def sums(self, found: list[A]) -> C:
            return C(n=sum(a.n for a in found))

        @step
        async def counts(self, found: list[A]) -> D:
            return D(n=len(found))

        @step
        async def end(self, c: C, d: D) -> StopEvent:
            return StopEvent(result=(c.n, d.n))

    assert await Flow().run() == (3, 2)


@contract("3.1.3")
async def test_nested_fan_outs_nest():
    class Flow(Workflow):
        @step
        async def outer(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in (1, 2, 0)]

        @step
        async def inner(self, ev: A) -> list[B]:
            return [B(n=ev.n * 10 + i) for i in range(ev.n)]

        @step
        async def join_inner(self, found: list[B]) -> C:
            return C(n=sum(b.n for b in found))

        @step
        async def join_outer(self, found: list[C]) -> StopEvent:
            return StopEvent(result=sorted(c.n for c in found))

    assert await Flow().run() == [0, 10, 41]


@contract("3.1.3")
async def test_the_chain_inside_a_stream_may_be_long():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(5)]

        @step
        async def one(self, ev: A) -> B:
            await asyncio.sleep(0)
            return B(n=ev.n)

        @step
        async def two(self, ev: B) -> B | C:
            return B(n=ev.n - 2) if ev.n > 1 else C(n=ev.n)

        @step
        async def join(self, found: list[C]) -> StopEvent:
            return StopEvent(result=sorted(c.n for c in found))

    assert await Flow().run() == [0, 0, 0, 1, 1]


@contract("3.1.3")
@pytest.mark.parametrize(("n", "expected"), [(1, 1), (3, 3), (5, 5), (9, 5)])
async def test_take_fires_at_the_nth_arrival_or_at_the_end_with_fewer(n: int, expected: int):
    fired: list[int] = []

    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=i) for i in range(5)]

        @step(num_workers=1)
        async def work(self, ev: A) -> B:
            return B(n=ev.n)

        @step
        async def some(self, found: Annotated[list[B], Collect(Take(n))]) -> C:
            fired.append(len(found))
            return C(n=len(found))

        @step
        async def every(self, found: list[B]) -> D:
            return D(n=len(found))

        @step
        async def end(self, c: C, d: D) -> StopEvent:
            return StopEvent(result=(c.n, d.n))

    assert await Flow().run() == (expected, 5)
    assert fired == [expected]


@contract("3.1.3")
async def test_take_does_not_wait_for_the_slow_ones():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(3)]

        @step
        async def work(self, ev: A) -> B:
            if ev.n == 1:
                await asyncio.sleep(100)
            return B(n=ev.n)

        @step
        async def some(self, found: Annotated[list[B], Collect(Take(2))]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    assert await Flow().run() == [0, 2]


@contract("3.1.3")
async def test_a_member_that_is_no_event_fails_the_run():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(), "text"]  # type: ignore[list-item]

        @step
        async def join(self, found: list[A]) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowRuntimeError, match="Step function fan returned a list whose member 1 is str"):
        await Flow().run()


@contract("3.1.3", "10.3")
async def test_a_list_join_needs_a_list():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> A: ...

        @step
        async def join(self, found: list[A]) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="returned-list producer"):
        Flow().validate()


@contract("3.1.3")
@pytest.mark.parametrize("delay", [0, 0.005])
async def test_a_retry_keeps_its_stream_open(delay: float):
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step(retry_policy=retry_policy(wait=wait_fixed(delay), stop=stop_after_attempt(3)))
        async def work(self, ctx: Context, ev: A) -> B:
            if ev.n == 2 and ctx.retry_info().retry_number < 2:
                raise ValueError("again")
            return B(n=ev.n)

        @step
        async def join(self, found: list[B]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    assert await Flow().run() == [1, 2]


@contract("3.1.3")
async def test_a_wait_keeps_its_stream_open():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step
        async def work(self, ctx: Context, ev: A) -> B:
            if ev.n == 1:
                await ctx.wait_for_event(HumanResponseEvent)
            return B(n=ev.n)

        @step
        async def join(self, found: list[B]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    handler = Flow().run()
    await asyncio.sleep(0.002)
    assert not handler.is_done()
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == [2, 1]


@contract("3.1.3")
async def test_a_handler_of_failures_keeps_the_stream_open():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step
        async def work(self, ev: A) -> B:
            if ev.n == 1:
                raise ValueError("boom")
            return B(n=ev.n)

        @catch_error
        async def repair(self, ev: StepFailedEvent) -> B:
            await asyncio.sleep(0.002)
            return B(n=-1)

        @step
        async def join(self, found: list[B]) -> StopEvent:
            return StopEvent(result=[b.n for b in found])

    assert await Flow().run() == [2, -1]


@contract("3.1.3")
async def test_what_is_sent_cannot_join_a_stream(caplog: pytest.LogCaptureFixture):
    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> list[A]:
            return [A(n=1)]

        @step
        async def work(self, ctx: Context, ev: A) -> A2:
            ctx.send_event(A2(n=99))
            await asyncio.sleep(0)
            return A2(n=1)

        @step
        async def join(self, found: list[A2]) -> StopEvent:
            return StopEvent(result=[a.n for a in found])

    with caplog.at_level(logging.WARNING):
        assert await Flow().run() == [1]
    assert "sent outside any collection stream" in caplog.text


class A2(Event):
    n: int = 0


@contract("3.1.3")
async def test_sending_to_a_list_join_by_name_fails_the_run():
    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> list[A]:
            ctx.send_event(A(n=1), step="join")
            return [A(n=1)]

        @step
        async def join(self, found: list[A]) -> StopEvent:
            return StopEvent()

    handler = Flow().run()
    with pytest.raises(WorkflowRuntimeError, match="targeted events"):
        await handler
    assert isinstance((await streamed(handler))[-1], WorkflowFailedEvent)


@contract("3.1.3")
async def test_a_stream_that_can_never_close_fails_the_run():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A | B]:
            return [A(n=1), A(n=2), B(n=1)]

        @step
        async def pair(self, a: A, b: B) -> C:
            return C()

        @step
        async def join(self, found: list[C]) -> StopEvent:
            return StopEvent(result=len(found))

    with pytest.raises(
        WorkflowRuntimeError, match=r"stream 1 of step fan never ended: step pair \(join\) lacks B for 'b'"
    ):
        await Flow().run()


@contract("3.1.3")
async def test_streams_survive_a_snapshot():
    class Flow(Workflow):
        @step
        async def outer(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        @step
        async def inner(self, ev: A) -> list[B]:
            return [B(n=ev.n * 10 + i) for i in range(2)]

        @step(num_workers=1)
        async def work(self, ctx: Context, ev: B) -> C:
            if ev.n == 11:
                await ctx.wait_for_event(HumanResponseEvent)
            return C(n=ev.n)

        @step
        async def join_inner(self, found: list[C]) -> D:
            return D(n=sum(c.n for c in found))

        @step
        async def join_outer(self, found: list[D]) -> StopEvent:
            return StopEvent(result=sorted(d.n for d in found))

    flow = Flow()
    handler = flow.run()
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    assert await again == [21, 41]


@contract("3.1.3")
async def test_many_members_share_few_workers():
    assert sorted(await doubling(2)().run(numbers=list(range(500)))) == [n * 2 for n in range(500)]


async def test_a_stop_event_in_a_list_ends_the_run():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A | StopEvent]:
            return [A(n=1), StopEvent(result="from the list")]

        @step
        async def work(self, ev: A) -> None: ...

    handler = Flow().run()
    assert [type(event) for event in await streamed(handler)] == [StopEvent]
    assert await handler == "from the list"


async def test_a_join_waits_while_only_some_of_it_is_there():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> A:
            return A(n=1)

        @step
        async def join(self, a: A, b: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=(a.n, b.n))

    flow = Flow()
    handler = flow.run()
    await until(lambda: saved(handler)["workers"]["join"]["static_collect_events"])
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent(n=2))
    assert await again == (1, 2)


async def test_a_retried_fan_out_opens_one_stream():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def fan(self, ctx: Context, ev: StartEvent) -> list[A]:
            if not ctx.retry_info().retry_number:
                raise ValueError("again")
            return [A(n=1)]

        @step
        async def join(self, found: list[A]) -> StopEvent:
            return StopEvent(result=len(found))

    assert await Flow().run() == 1


async def test_slots_of_one_type_are_filled_by_different_events():
    class Flow(Workflow):
        @step
        async def send(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in range(4):
                ctx.send_event(A(n=n))

        @step
        async def pair(self, ctx: Context, first: A, second: A) -> StopEvent | None:
            ctx.write_event_to_stream(Event(pair=(first.n, second.n)))
            return StopEvent() if second.n == 3 else None

    assert [event.pair for event in (await streamed(Flow().run()))[:-1]] == [(0, 1), (2, 3)]

"""Forms that earlier versions documented: they still work."""

import asyncio
from typing import Any

import pytest

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from tests.contract import contract
from tests.workflow_core.flows import names


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Chain(Workflow):
    @step
    async def first(self, ctx: Context, ev: StartEvent) -> A:
        await ctx.set("seen", ["first"])
        return A(n=ev.n)

    @step
    async def second(self, ctx: Context, ev: A) -> B:
        await ctx.set("seen", [*(await ctx.get("seen")), "second"])
        return B(n=ev.n + 1)

    @step
    async def third(self, ctx: Context, ev: B) -> StopEvent:
        return StopEvent(result=(ev.n, await ctx.get("seen")))


@contract("17.t1")
async def test_get_and_set_of_the_context():
    async def use(ctx: Context) -> list[Any]:
        await ctx.set("a.b", 1)
        return [await ctx.get("a.b"), await ctx.get("missing", None), await ctx.get("missing", default=3)]

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = await use(ctx)
            with pytest.raises(ValueError, match="missing"):
                await ctx.get("missing")
            return StopEvent(result=found)

    handler = Flow().run()
    assert await handler == [1, None, 3]
    assert await handler.ctx.get("a") == {"b": 1}


@contract("17.t7")
async def test_get_item_and_attribute_access_of_events():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(ev.get("x"), ev["x"], ev.x, ev.get("y", 2)))

    assert await Flow().run(x=1) == (1, 1, 1, 2)
    assert await Flow().run(start_event=StartEvent(x=3)) == (3, 3, 3, 2)


@contract("17.t3")
async def test_a_stepwise_run_hands_out_what_each_step_produced():
    handler = Chain().run(stepwise=True, n=1)
    produced: list[list[str]] = []
    while (events := await handler.run_step()) is not None:
        produced.append(names(events))
        for event in events:
            handler.ctx.send_event(event)
    assert produced == [["A"], ["B"]]
    assert await handler == (2, ["first", "second"])


@contract("17.t3")
async def test_a_stepwise_run_does_nothing_between_the_steps():
    handler = Chain().run(stepwise=True, n=1)
    await asyncio.sleep(0.002)
    assert await handler.ctx.get("seen", None) is None
    [event] = await handler.run_step() or []
    await asyncio.sleep(0.002)
    assert await handler.ctx.get("seen") == ["first"]
    event.n = 10
    handler.ctx.send_event(event)
    await handler.run_step()
    assert await handler.ctx.get("seen") == ["first", "second"]
    handler.ctx.send_event(B(n=99))
    assert await handler.run_step() is None
    assert (await handler)[0] == 99


@contract("17.t3")
async def test_a_stepwise_run_hands_out_sent_and_listed_events_too():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> list[A]:
            ctx.send_event(B(n=1))
            return [A(n=1), A(n=2)]

        @step
        async def take_b(self, ev: B) -> None: ...

        @step
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            return StopEvent(result="joined") if ctx.collect_events(ev, [A, A]) else None

    handler = Flow(disable_validation=True).run(stepwise=True)
    events = await handler.run_step() or []
    assert names(events) == ["B", "A", "A"]
    for event in events:
        handler.ctx.send_event(event)
    steps = 1
    while await handler.run_step() is not None:
        steps += 1
    assert steps == 3
    assert await handler == "joined"


@contract("17.t3")
async def test_a_failing_step_ends_a_stepwise_run():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("boom")

    handler = Flow().run(stepwise=True)
    assert await handler.run_step() is None
    with pytest.raises(ValueError, match="boom"):
        await handler


@contract("17.t3")
async def test_a_stepwise_run_can_be_cancelled():
    handler = Chain().run(stepwise=True, n=1)
    await handler.run_step()
    await handler.cancel_run()
    assert await handler.run_step() is None


@contract("17.t3")
async def test_a_wait_inside_a_stepwise_run():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A:
            reply = await ctx.wait_for_event(HumanResponseEvent)
            return A(n=reply.n)

        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent(result=ev.n)

    handler = Flow().run(stepwise=True)
    task = asyncio.create_task(handler.run_step())
    await asyncio.sleep(0.002)
    handler.ctx.send_event(HumanResponseEvent(n=7))
    events = await asyncio.wait_for(task, 30) or []
    assert names(events) == ["A"]
    handler.ctx.send_event(events[0])
    assert await handler.run_step() is None
    assert await handler == 7

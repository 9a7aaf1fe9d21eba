"""A tree of workflows stopped and resumed at any moment."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from tests.workflow_core.flows import resume, saved


class Order(Event):
    n: int


class Receipt(Event):
    n: int
    total: int


class Price(Workflow):
    """Called by a step of the desk; pauses and perhaps asks a person."""

    @step
    async def look_up(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(ev.n % 3):
            await asyncio.sleep(0)
        if ev.n % 2:
            await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=ev.n * 10)


class Desk(Workflow, entry=[Order]):
    """Started by an order; answers with a receipt and ends."""

    @step
    async def take(self, ctx: Context, ev: Order, price: Price) -> StopEvent | Receipt:
        total = await price.run(n=ev.n)
        ctx.send_event(Receipt(n=ev.n, total=total))
        await asyncio.sleep(0)
        return StopEvent()


class Market(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Order | None:
        await ctx.store.set("count", ev.count)
        for n in range(ev.count):
            ctx.send_event(Order(n=n))
            await asyncio.sleep(0)

    @step(num_workers=1)
    async def collect(self, ctx: Context, ev: Receipt) -> StopEvent | None:
        found = ctx.collect_events(ev, [Receipt] * await ctx.store.get("count"))
        return StopEvent(result=sorted(receipt.total for receipt in found)) if found else None


@settings(max_examples=60)
@given(st.integers(1, 4), st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_a_tree_stopped_and_resumed_at_any_moment_loses_and_doubles_nothing(count: int, turns: list[int]):
    async def scenario() -> Any:
        flow = Market(workflows={"desk": Desk(workflows={"price": Price()})}, timeout=20)
        handler = flow.run(count=count)
        for pause in turns:
            for _ in range(pause):
                await asyncio.sleep(0)
            if handler.is_done():
                break
            payload = saved(handler)
            await handler.cancel_run()
            handler = resume(flow, payload)
        async with asyncio.timeout(1):
            while not handler.is_done():
                if handler.get_stop_event() is None and handler.ctx.is_running:
                    handler.ctx.send_event(HumanResponseEvent())
                for _ in range(3):
                    await asyncio.sleep(0)
        assert await handler == [n * 10 for n in range(count)]

    asyncio.run(scenario())

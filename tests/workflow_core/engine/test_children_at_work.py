"""What a run knows of the workflows inside it: while they wait, while they work, and after a restore."""

import asyncio
from typing import Any

import pytest

from batonflow.testing import run_virtual
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    PickleSerializer,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import WorkflowTimeoutError
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.workflow_core.flows import resume, saved


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Word(HumanResponseEvent):
    n: int = 0


class Station(Workflow, entry=[A]):
    @step
    async def pack(self, ctx: Context, ev: A) -> B | StopEvent:
        word = await ctx.wait_for_event(Word)
        ctx.send_event(B(n=word.n))
        return StopEvent()


class Client(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> A:
        return A()

    @step
    async def finish(self, ev: B) -> StopEvent:
        return StopEvent(result=ev.n)


async def test_a_run_whose_child_waits_is_not_stalled():
    handler = Client(on_stall="raise", workflows={"station": Station(on_stall="raise")}).run()
    await asyncio.sleep(0.01)
    handler.ctx.send_event(Word(n=3))
    assert await handler == 3


async def test_a_cancelled_run_is_saved_with_its_children():
    handler = Client(workflows={"station": Station()}).run()
    await asyncio.sleep(0.01)
    await handler.cancel_run()
    again = resume(Client(workflows={"station": Station()}), saved(handler))
    await asyncio.sleep(0.01)
    again.ctx.send_event(Word(n=4))
    assert await again == 4


class Cost(StartEvent):
    n: int


class Pricing(Workflow):
    started = 0

    @step
    async def price(self, ev: Cost) -> StopEvent:
        self.started += 1
        if ev.n < 0:
            raise ValueError(f"no price for {ev.n}")
        return StopEvent(result=10 * ev.n)


class Basket(StartEvent):
    broken: bool = False


class Shop(Workflow):
    """Runs a child twice in one step, catches the failure of a third run, and pauses before it goes on."""

    def __init__(self) -> None:
        super().__init__(timeout=None)
        self.pricing = Pricing(timeout=None)
        self.add_workflows(pricing=self.pricing)

    @step(retry_policy=retry_policy(wait=wait_fixed(100), stop=stop_after_attempt(2)))
    async def quote(self, ctx: Context, ev: Basket, pricing: Pricing) -> StopEvent:
        attempt = ctx.retry_info().retry_number
        prices = [await pricing.run(n=n + attempt) for n in (1, 2)]
        try:
            await pricing.run(n=-1)
        except ValueError as error:
            prices.append(str(error))
        await asyncio.sleep(10)
        if ev.broken and not attempt:
            raise ConnectionError
        return StopEvent(result=prices)


def test_a_restored_step_is_given_the_results_and_errors_of_the_runs_that_it_had_awaited():
    async def run() -> Any:
        handler = Shop().run()
        await asyncio.sleep(5)
        payload = saved(handler)
        await handler.cancel_run()
        other = Shop()
        return await resume(other, payload), other.pricing.started

    assert run_virtual(run()) == ([10, 20, "no price for -1"], 0)


def test_a_retry_after_a_restore_runs_the_children_anew():
    async def run() -> Any:
        handler = Shop().run(broken=True)
        await asyncio.sleep(50)
        payload = saved(handler)
        await handler.cancel_run()
        assert payload["children"]["runs"] == [], "nobody asks for the results of a failed attempt"
        other = Shop()
        return await resume(other, payload), other.pricing.started

    assert run_virtual(run()) == ([20, 30, "no price for -1"], 3)


class SlowPricing(Workflow):
    @step
    async def price(self, ev: Cost) -> StopEvent:
        await asyncio.sleep(60 if ev.n == 1 else 1)
        return StopEvent(result=10 * ev.n)


class TwoAtOnce(Workflow):
    @step
    async def quote(self, ctx: Context, ev: StartEvent, pricing: SlowPricing) -> StopEvent:
        slow, quick = pricing.run(n=1), pricing.run(n=2)
        return StopEvent(result=[await slow, await quick])


def test_each_call_of_a_restored_step_is_given_its_own_run_also_when_the_second_ended_first():
    async def run() -> Any:
        handler = TwoAtOnce(timeout=None, workflows={"pricing": SlowPricing(timeout=None)}).run()
        await asyncio.sleep(30)
        payload = saved(handler)
        await handler.cancel_run()
        return await resume(TwoAtOnce(timeout=None, workflows={"pricing": SlowPricing(timeout=None)}), payload)

    assert run_virtual(run()) == [10, 20]


class BusyStation(Workflow, entry=[A]):
    @step
    async def pack(self, ctx: Context, ev: A) -> B | StopEvent:
        await asyncio.sleep(20)
        ctx.send_event(B())
        return StopEvent()


class OpenClient(Client):
    """May also be told something from outside, so that when idle it would wait for that."""

    @step
    async def hear(self, ev: Word) -> None:
        return None


@pytest.mark.parametrize("client", [Client, OpenClient])
def test_a_run_whose_child_works_does_not_wait(client):
    async def run() -> Any:
        station = BusyStation(timeout=None, disable_validation=True)
        return await client(timeout=10, timeout_excludes_waiting=True, workflows={"station": station}).run()

    with pytest.raises(WorkflowTimeoutError):
        run_virtual(run())


class Collects(Workflow):
    """Keeps what JSON has no words for, as its parent does."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("seen", {"child"})
        word = await ctx.wait_for_event(Word)
        return StopEvent(result=await ctx.store.get("seen") | {word.n})


class Around(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent, inner: Collects) -> StopEvent:
        found = await inner.run()
        if await ctx.store.get("more", default=False):
            await ctx.wait_for_event(Word)
        return StopEvent(result=found)


@pytest.mark.parametrize("child_is_over", [False, True])
async def test_a_serializer_given_for_a_snapshot_writes_and_reads_its_children_too(child_is_over: bool):
    flow = Around(workflows={"inner": Collects()}, timeout=5)
    ctx: Context = Context(flow)
    await ctx.store.set("more", child_is_over)
    handler = flow.run(ctx=ctx)
    await asyncio.sleep(0.01)
    if child_is_over:
        handler.ctx.send_event(Word(n=1))
        await asyncio.sleep(0.01)
    payload = handler.ctx.to_dict(PickleSerializer())
    await handler.cancel_run()
    restored: Context = Context.from_dict(flow, payload, PickleSerializer())
    with pytest.raises(ValueError, match="write it with the serializer it was read with, not with JsonSerializer"):
        restored.to_dict(JsonSerializer())
    again = flow.run(ctx=Context.from_dict(flow, restored.to_dict(), PickleSerializer()))
    await asyncio.sleep(0.01)
    again.ctx.send_event(Word(n=1))
    assert await again == {"child", 1}

"""ctx.send_to: events to other runs, sent once for a delivery; and services that wait for them."""

import asyncio
import logging
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    MemoryStore,
    StartEvent,
    StopEvent,
    StoreError,
    Workflow,
    WorkflowRuntimeError,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import until


class Paid(Event):
    order: int


class Close(Event):
    pass


class Ledger(Workflow):
    """A service: it takes events, and gives none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(timeout=None, on_stall="wait", **options)
        self.booked: list[int] = []

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("paid", [])

    @step
    async def book(self, ctx: Context, ev: Paid) -> None:
        self.booked.append(ev.order)
        await ctx.store.set("paid", [*await ctx.store.get("paid"), ev.order])

    @step
    async def close(self, ctx: Context, ev: Close) -> StopEvent:
        return StopEvent(result=await ctx.store.get("paid"))


class Shop(Workflow):
    @step(retry_policy=retry_policy(stop=stop_after_attempt(2), wait=wait_none()))
    async def sell(self, ctx: Context, ev: StartEvent) -> StopEvent:
        sent = await ctx.send_to(ev.to, Paid(order=ev.order), step=ev.get("step"))
        if ev.get("fails") and not ctx.retry_info().retry_number:
            raise ConnectionError("after the event")
        return StopEvent(result=sent)


def flows(stored: bool) -> tuple[Ledger, Shop]:
    store = MemoryStore()
    return (Ledger().with_store(store), Shop().with_store(store)) if stored else (Ledger(), Shop())


@pytest.mark.parametrize("stored", [False, True])
async def test_an_event_reaches_another_run(stored: bool) -> None:
    ledger, shop = flows(stored)
    service = ledger.run(run_id="ledger")
    await service.started()
    assert await shop.run(to="ledger", order=1) is True
    assert await shop.run(to="ledger", order=2, step="book") is True
    await until(lambda: ledger.booked == [1, 2])
    await service.send_event(Close())
    assert await service == [1, 2]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_repeated_attempt_does_not_send_the_same_event_again(stored: bool) -> None:
    ledger, shop = flows(stored)
    service = ledger.run(run_id="ledger")
    await service.started()
    assert await shop.run(to="ledger", order=1, fails=True) is True
    await until(lambda: ledger.booked)
    await asyncio.sleep(0.1)  # a second event would follow at once
    await service.send_event(Close())
    assert await service == [1]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_that_does_not_exist_or_is_over_is_a_store_error(stored: bool) -> None:
    ledger, shop = flows(stored)
    with pytest.raises(StoreError, match="nowhere"):
        await shop.run(to="nowhere", order=1)
    service = ledger.run(run_id="ledger")
    await service.started()
    await service.send_event(Close())
    await service
    with pytest.raises(StoreError, match="ledger"):
        await shop.run(to="ledger", order=1)


async def test_a_live_run_refuses_a_step_that_it_does_not_have() -> None:
    ledger, shop = flows(stored=False)
    service = ledger.run(run_id="ledger")
    with pytest.raises(WorkflowRuntimeError, match="Step nobody does not exist"):
        await shop.run(to="ledger", order=1, step="nobody")
    await service.cancel_run()


async def test_a_step_that_is_taken_up_does_not_send_again() -> None:
    store, gate = MemoryStore(), asyncio.Event()
    sent: list[bool] = []

    class Slow(Workflow):
        @step
        async def sell(self, ctx: Context, ev: StartEvent) -> StopEvent:
            sent.append(await ctx.send_to("ledger", Paid(order=1)))
            await gate.wait()
            return StopEvent(result="sold")

    ledger = Ledger().with_store(store)
    service = ledger.run(run_id="ledger")
    first = Slow().with_store(store).run(run_id="shop")
    await until(lambda: sent)
    await first.interrupt()
    gate.set()
    assert await Slow().with_store(store).resume("shop") == "sold"
    assert sent == [True, True]  # the recorded result
    await until(lambda: ledger.booked)
    await asyncio.sleep(0.1)  # a second event would follow at once
    await service.send_event(Close())
    assert await service == [1]


async def test_a_service_waits_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        service = Ledger().run()
        await asyncio.sleep(0.05)
        await service.send_event(Close())
        assert await service == []
    assert not caplog.records

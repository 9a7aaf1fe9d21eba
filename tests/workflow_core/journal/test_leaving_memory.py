"""Runs that leave memory while they wait (``idle_release``), and runs that are stopped here to go on elsewhere."""

import asyncio
import gc
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    RunInterruptedError,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.journal.store import RunStore


class Ask(InputRequiredEvent):
    text: str


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(text="go on?"), timeout=None)
        return StopEvent(result=reply.response)


class Greets(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="hello")


def waits(store: RunStore) -> Waits:
    return Waits(store=store, timeout=None, idle_release=0)


async def asleep(flow: Workflow, store: RunStore) -> WorkflowHandler:
    """A run that left memory."""
    handler = flow.run(run_id="r")
    async with asyncio.timeout(10):
        while await status(store) != "waiting":  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
    return handler


async def status(store: RunStore) -> str:
    info = await store.info("r")
    return "" if info is None else info.status


async def test_an_answer_brings_it_back(store: RunStore):
    flow = waits(store)
    handler = await asleep(flow, store)
    await flow.send_to_run("r", HumanResponseEvent(response="yes"))
    assert await handler == "yes"


@pytest.mark.parametrize("how", ["resume", "run"])
async def test_its_id_gives_a_second_handler_on_it(store: RunStore, how: str):
    flow = waits(store)
    handler = await asleep(flow, store)
    second = flow.resume("r") if how == "resume" else flow.run(run_id="r")
    second.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await second == await handler == "yes"


async def test_the_store_learns_that_it_was_cancelled(store: RunStore):
    handler = await asleep(waits(store), store)
    await handler.cancel_run()
    assert await status(store) == "cancelled"
    with pytest.raises(WorkflowCancelledByUser):
        await handler


async def test_one_that_is_interrupted_stays_in_the_store_and_does_not_come_back_here(store: RunStore):
    flow = waits(store)
    handler = await asleep(flow, store)
    await handler.interrupt()
    with pytest.raises(RunInterruptedError):
        await handler
    await flow.send_to_run("r", HumanResponseEvent(response="yes"))
    assert await status(store) == "ready"
    (recovered,) = await flow.recover()
    assert await recovered == "yes"


@pytest.mark.parametrize("before", [False, True])
async def test_one_that_is_interrupted_while_it_leaves_does_not_come_back_here(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, *, before: bool
):
    leaving, go_on, park = asyncio.Event(), asyncio.Event(), store.park

    async def slowly(*given: Any) -> bool:
        parked = False if before else await park(*given)
        leaving.set()
        await go_on.wait()
        return await park(*given) if before else parked

    monkeypatch.setattr(store, "park", slowly)
    flow = waits(store)
    handler = flow.run(run_id="r")
    await leaving.wait()
    await handler.interrupt()
    go_on.set()
    with pytest.raises(RunInterruptedError):
        await handler
    await asyncio.sleep(0.01)
    await flow.send_to_run("r", HumanResponseEvent(response="yes"))
    await asyncio.sleep(0.05)
    assert await status(store) == "ready"
    (recovered,) = await flow.recover()
    assert await recovered == "yes"


async def test_an_interrupted_run_is_free_for_others_at_once_and_leaves_nothing_behind(store: RunStore):
    handler = Waits(store=store).run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    assert handler.is_done()
    assert await status(store) == "ready"
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("batonflow")] == []


async def test_an_interrupted_run_that_nobody_awaits_is_no_failure(store: RunStore, caplog: pytest.LogCaptureFixture):
    handler = Waits(store=store).run(run_id="r")
    await anext(handler.inputs())
    await handler.interrupt()
    del handler
    gc.collect()
    assert caplog.records == []


async def test_a_run_that_is_over_cannot_be_interrupted(store: RunStore):
    handler = Greets(store=store).run(run_id="r")
    await handler
    await handler.interrupt()
    assert await handler == "hello"
    assert await status(store) == "completed"


async def test_without_a_store_an_interrupted_run_is_cancelled():
    handler = Waits().run()
    await anext(handler.inputs())
    await handler.interrupt()
    with pytest.raises(WorkflowCancelledByUser):
        await handler

"""Runs that leave memory while they wait (``idle_release``), and runs that are stopped here to go on elsewhere."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from batonflow.durable import connection
from batonflow.durable.store_protocol import RunStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    RunInterruptedError,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    WorkflowHandler,
    WorkflowTimeoutError,
    step,
)
from tests.workflow_core.flows import until


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


class Maps(Workflow):
    """Asks for one item, and works on the others for longer than a run stays in memory."""

    begun: list[int]

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        async def call(number: int) -> Any:
            if number == 0:
                return await ctx.ask("Go on?", str)
            self.begun.append(number)
            await asyncio.sleep(0.3)
            return number

        return StopEvent(result=await ctx.map(call, [0, 1, 2], workers=2))


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


async def test_recover_leaves_it_to_its_handler_and_its_stream_has_no_gap(store: RunStore):
    flow = waits(store)
    handler = await asleep(flow, store)
    events = asyncio.create_task(_types(handler))
    await asyncio.gather(flow.send_to_run("r", HumanResponseEvent(response="yes")), *(flow.recover() for _ in range(3)))
    assert await asyncio.wait_for(handler, 10) == "yes"
    assert await events == ["Ask", "StopEvent"]


class Note(Event):
    text: str


class Talks(Workflow):
    """A workflow that asks a question and streams the answer."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(text="go on?"), timeout=None)
        ctx.write_event_to_stream(Note(text="one"))
        await until(lambda: goes_on)
        ctx.write_event_to_stream(Note(text="two"))
        return StopEvent(result=reply.response)


goes_on: list[bool] = []


def talks(store: RunStore) -> Talks:
    return Talks(store=store, timeout=None, idle_release=0)


async def test_one_that_another_process_takes_stays_released_and_gets_its_stream_and_its_end(
    store: RunStore, other: RunStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "SECONDS_BETWEEN_LOOKS", 0.01)
    goes_on.clear()
    handler = await asleep(talks(store), store)
    live = asyncio.create_task(_types(handler))
    # This one is not released itself, so that it keeps the run until its end.
    elsewhere = Talks(store=other, timeout=None).resume("r")
    await elsewhere.started()
    await handler.workflow.send_to_run("r", HumanResponseEvent(response="yes"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(live), 0.1)
    await until(lambda: handler.is_released)  # between its looks at whether it may come back
    goes_on.append(True)
    assert await asyncio.wait_for(handler, 10) == await elsewhere == "yes"
    seen = [type(item.event).__name__ async for item in handler.subscribe()]
    assert await live == seen == ["Ask", "Note", "Note", "StopEvent"]
    numbers = [item.seq async for item in handler.subscribe()]
    assert numbers == sorted(set(numbers))


async def test_one_that_another_process_took_and_left_comes_back(
    store: RunStore, other: RunStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "SECONDS_BETWEEN_LOOKS", 0.01)
    goes_on[:] = [True]
    handler = await asleep(talks(store), store)
    elsewhere = Talks(store=other, timeout=None).resume("r")
    await elsewhere.started()
    await store.append("r", "a message for the other process", b"null")
    await asyncio.sleep(0.05)
    await elsewhere.interrupt()
    await handler.workflow.send_to_run("r", HumanResponseEvent(response="yes"))
    assert await asyncio.wait_for(handler, 10) == "yes"


async def _types(handler: WorkflowHandler) -> list[str]:
    return [type(event).__name__ async for event in handler.stream_events()]


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
    interrupting = asyncio.create_task(handler.interrupt())
    await asyncio.sleep(0.01)
    go_on.set()
    await interrupting
    with pytest.raises(RunInterruptedError):
        await handler
    await flow.send_to_run("r", HumanResponseEvent(response="yes"))
    await asyncio.sleep(0.05)
    assert await status(store) == "ready"
    (recovered,) = await flow.recover()
    assert await recovered == "yes"


async def test_an_answer_that_comes_while_an_interrupted_run_leaves_is_not_its_end(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
):
    held: list[tuple[Any, Any]] = []
    commit_soon = store.commit_soon
    with monkeypatch.context() as patched:
        patched.setattr(store, "commit_soon", lambda commits, done: held.append((commits, done)))
        handler = waits(store).run(run_id="r")
        await until(lambda: held)
        await asyncio.sleep(0.01)  # it is about to leave, as soon as its wait is written
        interrupting = asyncio.create_task(handler.interrupt())
        await asyncio.sleep(0.01)
        handler.ctx.send_event(HumanResponseEvent(response="yes"))
    for commits, done in held:
        commit_soon(commits, done)
    await interrupting
    if await status(store) != "completed":  # the answer was quicker, or the interruption
        handler = waits(store).resume("r")
        (await anext(handler.inputs())).respond("yes")
    assert await handler == "yes"


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_the_store_learns_of_an_end_that_comes_while_the_run_leaves(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, *, how: str, written: bool
):
    leaving, go_on, park = asyncio.Event(), asyncio.Event(), store.park

    async def slowly(*given: Any) -> bool:
        parked = await park(*given) if written else False
        leaving.set()
        await go_on.wait()
        return parked if written else await park(*given)

    timeout = None if how == "cancelled" else 0.1
    flow = Waits(store=store, timeout=timeout, timeout_excludes_waiting=False, idle_release=0)
    handler = flow.run(run_id="r")
    with monkeypatch.context() as patched:
        patched.setattr(store, "park", slowly)
        await leaving.wait()
    ending = asyncio.create_task(handler.cancel_run() if how == "cancelled" else asyncio.sleep(0.2))
    await asyncio.sleep(0.01)
    if how == "out of time":
        await ending
    go_on.set()
    await ending
    with pytest.raises(WorkflowCancelledByUser if how == "cancelled" else WorkflowTimeoutError):
        await handler
    assert await status(store) == ("cancelled" if how == "cancelled" else "failed")


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


def test_a_store_used_on_one_loop_after_another_keeps_only_the_last_one(store: RunStore):
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await Greets(store=store).run()

    for _ in range(4):
        asyncio.run(run())
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, True, False]


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


async def test_calls_of_a_map_end_before_it_leaves(store: RunStore):
    flow = Maps(store=store, timeout=None, idle_release=0)
    flow.begun = []
    handler = flow.run(run_id="r")
    async with asyncio.timeout(10):
        while await status(store) != "waiting":  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
    assert flow.begun == [1, 2]
    async for request in handler.inputs():
        request.respond("yes")
        break
    assert await handler == ["yes", 1, 2]
    assert flow.begun == [1, 2]

"""Runs whose caller leaves: the block of a handler, and tasks that are cancelled while they await or read a run."""

import asyncio
from typing import Any

import pytest

from batonflow.agents import FunctionAgent
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.workflow_core import (
    MemoryStore,
    RunInterruptedError,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    step,
)
from tests.workflow_core.flows import until


class World:
    """An agent with a slow model and a tool, and what they did."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.noted: list[str] = []
        self.begun = asyncio.Event()
        self.llm = ScriptedLLM([self._first, tool_call("note", text="late"), "Done."])
        self.agent = FunctionAgent(llm=self.llm, tools=[self.note], store=store, **options)

    async def _first(self, _: Any) -> Any:
        self.begun.set()
        await asyncio.sleep(0.2)
        return tool_call("note", text="first")

    async def note(self, text: str) -> str:
        """Note a text."""
        self.noted.append(text)
        return "noted"


async def left(world: World, work: Any) -> None:
    """Cancel a task as soon as the model works."""
    task = asyncio.ensure_future(work)
    await world.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_an_agent_stops_its_run() -> None:
    world = World()
    handler = world.agent.run("Go.")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await handler
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    await asyncio.sleep(0.3)
    assert (world.noted, len(world.llm.requests)) == ([], 1)


async def test_a_stored_run_is_interrupted_and_resumed_with_each_effect_once() -> None:
    store = MemoryStore()
    world = World(store)
    handler = world.agent.run("Go.", run_id="a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await handler
    with pytest.raises(RunInterruptedError):
        await handler
    await asyncio.sleep(0.3)
    assert (world.noted, len(world.llm.requests)) == ([], 1)
    again = World(store)
    assert str(await again.agent.resume("a")) == "Done."
    assert again.noted == ["first", "late"]


async def test_a_cancelled_reader_stops_the_run_too() -> None:
    world = World()
    handler = world.agent.run("Go.")

    async def read() -> None:
        async for _ in handler.stream_events():
            pass

    await left(world, read())
    with pytest.raises(WorkflowCancelledByUser):
        await handler


async def test_a_run_that_somebody_else_awaits_goes_on() -> None:
    world = World()
    handler = world.agent.run("Go.")
    other = asyncio.create_task(handler.stop_event_result())
    await left(world, handler.stop_event_result())
    await other
    assert world.noted == ["first", "late"]


async def test_a_shielded_handler_and_a_closed_reader_stop_nothing() -> None:
    world = World()
    handler = world.agent.run("Go.")
    shielded = asyncio.shield(handler)
    await left(world, shielded)
    async for _ in handler.stream_events():
        break
    await handler
    assert world.noted == ["first", "late"]


async def test_on_abandon_says_what_happens() -> None:
    world = World(on_abandon="continue")
    handler = world.agent.run("Go.")
    await left(world, handler.stop_event_result())
    await handler
    assert world.noted == ["first", "late"]


class Plain(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0.05)
        return StopEvent(result="done")


async def test_a_plain_workflow_goes_on_unless_it_says_otherwise() -> None:
    handler = Plain().run()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await handler
    assert await handler == "done"
    stopped = Plain(on_abandon="stop").run()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stopped
    with pytest.raises(WorkflowCancelledByUser):
        await stopped


async def test_the_end_of_the_block_stops_a_run() -> None:
    async with Plain().run() as handler:
        pass
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    async with Plain().run() as ended:
        assert await ended == "done"
    async with Plain(store=MemoryStore()).run() as kept:
        await kept.started()
    with pytest.raises(RunInterruptedError):
        await kept


async def test_an_agent_inside_of_a_step_stops_with_the_step() -> None:
    world = World()

    class Outer(Workflow):
        @step
        async def call(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await world.agent.run("Go.")))

    handler = Outer().run()
    await world.begun.wait()
    await handler.cancel_run()
    await asyncio.sleep(0.3)
    assert world.noted == []
    await until(lambda: True)


async def test_a_stored_run_that_is_abandoned_while_it_opens_can_go_on() -> None:
    world = World(MemoryStore())
    handler = world.agent.run("Go.", run_id="one")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await handler
    with pytest.raises(RunInterruptedError):
        await asyncio.wait_for(handler, 5)
    assert str(await asyncio.wait_for(world.agent.resume("one"), 5)) == "Done."


async def test_a_stored_run_that_is_abandoned_is_free_for_recover_at_once() -> None:
    store = MemoryStore()
    world = World(store)
    handler = world.agent.run("Go.", run_id="one")
    await left(world, _awaited(handler))
    await until(lambda: not world.agent.live_handlers())
    info = await store.info("one")
    assert info is not None
    assert (info.status, info.owner) == ("ready", None)
    [again] = await world.agent.recover()
    assert str(await again) == "Done."


async def _awaited(handler: Any) -> None:
    await handler


async def test_a_reader_that_works_on_an_event_keeps_the_run() -> None:
    world = World()
    handler = world.agent.run("Go.")
    reading = handler.stream_events()
    await anext(reading)
    await left(world, _awaited(handler))
    assert str(await handler) == "Done."
    await reading.aclose()


async def test_a_cancelled_reader_of_questions_leaves_the_run() -> None:
    world = World()
    handler = world.agent.run("Go.")
    await left(world, anext(handler.inputs()))
    assert str(await handler) == "Done."


async def _awaited(handler: Any) -> Any:
    return await handler

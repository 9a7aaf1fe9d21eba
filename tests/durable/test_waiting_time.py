"""With a store, waiting for a person uses up no time of the run, unless the workflow says otherwise."""

import asyncio

import pytest

from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowTimeoutError,
    step,
)


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, InputRequiredEvent())
        return StopEvent(result=answer.response)


async def late(flow: Workflow) -> str:
    handler = flow.run()
    async for request in handler.inputs():
        await asyncio.sleep(0.4)
        if request.is_open:
            request.respond("yes")
    return await handler


async def test_waiting_uses_up_no_time_of_a_stored_run() -> None:
    assert await late(Asks(timeout=0.2, store=MemoryStore())) == "yes"
    assert await late(Asks(timeout=0.2).with_store(MemoryStore())) == "yes"


async def test_it_does_without_a_store_or_if_the_workflow_says_so() -> None:
    with pytest.raises(WorkflowTimeoutError):
        await late(Asks(timeout=0.2))
    with pytest.raises(WorkflowTimeoutError):
        await late(Asks(timeout=0.2, timeout_excludes_waiting=False, store=MemoryStore()))

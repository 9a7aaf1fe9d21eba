"""Time limits that stand still during a wait, and the last moments of a run."""

import asyncio
from typing import Any

import pytest

from batonflow.testing import run_virtual
from batonflow.workflow_core import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import StepTimeoutError, WorkflowTimeoutError


class Word(HumanResponseEvent):
    n: int = 0


class Working(Workflow):
    """Works for six seconds before and after its wait."""

    async def work(self, ctx: Context) -> StopEvent:
        await asyncio.sleep(6)
        await ctx.wait_for_event(Word)
        await asyncio.sleep(6)
        return StopEvent(result="done")


class StepLimit10(Working):
    @step(timeout=10)
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return await self.work(ctx)


class StepLimit13(Working):
    @step(timeout=13)
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return await self.work(ctx)


class NoLimit(Working):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return await self.work(ctx)


async def _answered_late(workflow: Workflow) -> Any:
    handler = workflow.run()
    await asyncio.sleep(1000)
    handler.ctx.send_event(Word())
    return await handler


def test_the_time_limit_of_a_step_goes_on_after_a_wait_where_it_stood():
    assert run_virtual(_answered_late(StepLimit13(timeout=None))) == "done"
    with pytest.raises(StepTimeoutError):
        run_virtual(_answered_late(StepLimit10(timeout=None)))


def test_a_timeout_that_leaves_out_waiting_goes_on_after_a_wait_where_it_stood():
    assert run_virtual(_answered_late(NoLimit(timeout=13, timeout_excludes_waiting=True))) == "done"
    with pytest.raises(WorkflowTimeoutError):
        run_virtual(_answered_late(NoLimit(timeout=10, timeout_excludes_waiting=True)))


class CleansUp(Workflow):
    cleaned = False

    @step
    async def stop(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

    @step
    async def work(self, ev: StartEvent) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            self.cleaned = True


async def test_a_result_is_given_out_after_the_other_steps_have_cleaned_up():
    workflow = CleansUp()
    await workflow.run()
    assert workflow.cleaned

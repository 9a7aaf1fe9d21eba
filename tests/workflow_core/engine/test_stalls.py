"""When a run goes on idling, and when it says that it can no longer move; also after it has waited before."""

import asyncio

import pytest

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import WorkflowStalledError, WorkflowTimeoutError
from batonflow.workflow_core.events import WorkflowIdleEvent
from tests.workflow_core.flows import names, streamed, until


class Order(Event):
    pass


class Receipt(Event):
    pass


class GivesUp(Workflow):
    """Waits for an event in vain, and returns nothing."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
        try:
            await ctx.wait_for_event(Order, timeout=0.01)
        except TimeoutError:
            await asyncio.sleep(0.001)


async def test_a_run_whose_last_wait_ran_out_is_stalled():
    with pytest.raises(WorkflowStalledError):
        await GivesUp(timeout=5, on_stall="raise").run()


async def test_a_run_whose_step_gave_its_wait_up_is_stalled():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await ctx.wait_for_event(Order)

    with pytest.raises(WorkflowStalledError):
        await Flow(timeout=5, on_stall="raise").run()


async def test_each_time_a_run_becomes_idle_is_told():
    handler = GivesUp(timeout=1).run()
    assert names(await streamed(handler, internal=True)).count(WorkflowIdleEvent.__name__) == 2
    with pytest.raises(WorkflowTimeoutError):
        await handler


class Asks(Workflow, entry=[Order]):
    """A child that an event starts, and that ends without an answer."""

    @step
    async def go(self, ctx: Context, ev: Order) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent()


async def test_a_run_is_stalled_when_its_child_has_waited_and_ends_without_an_answer():
    class Shop(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Order:
            return Order()

        @step
        async def close(self, ev: Receipt) -> StopEvent:
            return StopEvent()

    shop = Shop(timeout=5, on_stall="raise", disable_validation=True, workflows={"asks": Asks()})
    handler = shop.run()
    await until(lambda: handler.ctx.to_dict()["children"]["runs"])
    handler.ctx.send_event(HumanResponseEvent())
    with pytest.raises(WorkflowStalledError):
        await handler


class Nothing(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent | None:
        return None


@pytest.mark.parametrize("workflow", [Nothing, GivesUp])
async def test_a_timeout_that_leaves_out_waiting_still_ends_a_run_that_waits_for_nobody(workflow: type[Workflow]):
    handler = workflow(timeout=0.05, timeout_excludes_waiting=True).run()
    with pytest.raises(WorkflowTimeoutError):
        await asyncio.wait_for(handler.stop_event_result(), 30)


class Question(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent)
        await asyncio.sleep(reply.seconds)
        return StopEvent(result="answered")


class Caller(Workflow):
    @step
    async def call(self, ev: StartEvent, question: Question) -> StopEvent:
        return StopEvent(result=await question.run())


async def test_a_timeout_that_leaves_out_waiting_stands_still_while_a_called_child_waits():
    caller = Caller(timeout=0.05, timeout_excludes_waiting=True, workflows={"question": Question()})
    handler = caller.run()
    await asyncio.sleep(0.1)
    handler.ctx.send_event(HumanResponseEvent(seconds=0))
    assert await handler == "answered"


async def test_that_timeout_goes_on_when_the_child_works_again():
    caller = Caller(timeout=0.05, timeout_excludes_waiting=True, workflows={"question": Question()})
    handler = caller.run()
    await asyncio.sleep(0)
    await until(lambda: handler.ctx.to_dict()["children"]["runs"])
    handler.ctx.send_event(HumanResponseEvent(seconds=20))
    with pytest.raises(WorkflowTimeoutError):
        await asyncio.wait_for(handler.stop_event_result(), 30)

"""WorkflowTestRunner: run a workflow to its end and look at everything it streamed."""

import pytest

from batonflow.testing import WorkflowTestResult, WorkflowTestRunner
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.events import StepState, StepStateChanged
from tests.contract import contract


class Progress(Event):
    percent: int


class Topic(StartEvent):
    name: str = "tides"


class Essay(Workflow):
    @step
    async def write(self, ctx: Context, ev: Topic) -> StopEvent:
        if ev.name == "nothing":
            raise LookupError("nothing to write about")
        for percent in (50, 100):
            ctx.write_event_to_stream(Progress(percent=percent))
        await ctx.store.set("drafts", await ctx.store.get("drafts", 0) + 1)
        return StopEvent(result=f"on {ev.name}")


@contract("13.1")
async def test_the_result_holds_the_events_in_order_their_counts_the_result_and_the_context():
    outcome = await WorkflowTestRunner(Essay()).run(Topic(name="sand"), expose_internal=False)
    assert isinstance(outcome, WorkflowTestResult)
    assert [type(event) for event in outcome.collected] == [Progress, Progress, StopEvent]
    assert [event.percent for event in outcome.collected[:2]] == [50, 100]
    assert outcome.event_types == {Progress: 2, StopEvent: 1}
    assert outcome.result == "on sand"
    assert await outcome.ctx.store.get("drafts") == 1


@contract("13.1")
async def test_internal_events_are_collected_too_unless_switched_off():
    outcome = await WorkflowTestRunner(Essay()).run(Topic())
    states = [event.step_state for event in outcome.collected if isinstance(event, StepStateChanged)]
    assert states == [StepState.RUNNING, StepState.NOT_RUNNING]
    without = await WorkflowTestRunner(Essay()).run(Topic(), expose_internal=False)
    assert StepStateChanged not in without.event_types


@contract("13.1")
async def test_excluded_classes_are_left_out_exactly():
    outcome = await WorkflowTestRunner(Essay()).run(
        Topic(), expose_internal=False, exclude_events=[Progress, StartEvent, Event]
    )
    assert [type(event) for event in outcome.collected] == [StopEvent]
    assert outcome.event_types == {StopEvent: 1}


@contract("13.1")
async def test_a_context_carries_state_from_one_run_into_the_next():
    workflow = Essay()
    first = await WorkflowTestRunner(workflow).run(Topic())
    second = await WorkflowTestRunner(workflow).run(Topic(), ctx=first.ctx)
    assert await second.ctx.store.get("drafts") == 2


class Hello(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="hello")


async def test_without_a_start_event_a_plain_one_starts_the_run():
    assert (await WorkflowTestRunner(Hello()).run()).result == "hello"


async def test_the_error_of_a_run_is_raised():
    with pytest.raises(LookupError, match="nothing to write about"):
        await WorkflowTestRunner(Essay()).run(Topic(name="nothing"))

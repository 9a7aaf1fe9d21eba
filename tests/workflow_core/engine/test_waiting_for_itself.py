"""A run that waits for a turn which its own caller holds is told of with the remedy: it may wait for ever."""

import asyncio
import re

import pytest

from batonflow.workflow_core import MemoryStore, StartEvent, StopEvent, Workflow, WorkflowCancelledByUser, step
from tests.workflow_core.flows import until

REMEDY = (
    r"may wait for ever: num_concurrent_runs={}, and every active run waits in a step .* "
    r"Give {}\(\.\.\.\) a larger num_concurrent_runs"
)


class Countdown(Workflow):
    """Each run waits for the next one."""

    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1 + await self.run(left=ev.left - 1) if ev.left else 0)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_run_that_its_own_callers_leave_no_turn(
    limit: int, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore() if kept else None
    flow = Countdown(num_concurrent_runs=limit, timeout=None, workflow_name="countdown", store=store)
    assert await flow.run(left=limit - 1) == limit - 1
    assert "may wait for ever" not in caplog.text
    handler = flow.run(left=limit)
    await until(lambda: re.search(r"countdown \(run .*" + REMEDY.format(limit, "Countdown"), caplog.text) is not None)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert await flow.run(left=0) == 0, "no turn is lost"


async def test_a_way_round_over_another_workflow_is_found(caplog: pytest.LogCaptureFixture) -> None:
    class Through(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await back.run(inner=True))

    class Back(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="done" if ev.get("inner") else await through.run())

    through, back = Through(timeout=None), Back(num_concurrent_runs=1, timeout=None)
    handler = back.run()
    await until(lambda: re.search(REMEDY.format(1, "Back"), caplog.text) is not None)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert await back.run(inner=True) == "done"


async def test_a_run_that_only_has_to_wait_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    others = []

    class Starts(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            if ev.get("inner"):
                return StopEvent(result="later")
            others.append(self.run(inner=True))
            await asyncio.sleep(0.01)
            return StopEvent(result="first")

    assert await Starts(num_concurrent_runs=1).run() == "first"
    assert await others[0] == "later"
    assert "may wait for ever" not in caplog.text


async def test_a_step_that_gives_up_waiting_goes_on() -> None:
    class Patient(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            if ev.get("inner"):
                return StopEvent(result="inner")
            inner = self.run(inner=True)
            try:
                return StopEvent(result=await asyncio.wait_for(asyncio.shield(inner), 0.01))
            except TimeoutError:
                others.append(inner)
                return StopEvent(result="gave up")

    others = []
    assert await Patient(num_concurrent_runs=1, timeout=None).run() == "gave up"
    assert await others[0] == "inner"

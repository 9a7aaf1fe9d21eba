"""A run that waits for a turn which its own caller holds fails with the remedy, instead of hanging."""

import asyncio

import pytest

from batonflow.workflow_core import MemoryStore, StartEvent, StopEvent, Workflow, WorkflowRuntimeError, step

REMEDY = (
    r"num_concurrent_runs={}, and every active run waits in a step .* Give {}\(\.\.\.\) a larger num_concurrent_runs"
)


class Countdown(Workflow):
    """Each run waits for the next one."""

    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1 + await self.run(left=ev.left - 1) if ev.left else 0)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_run_that_its_own_callers_leave_no_turn_fails(limit: int, kept: bool) -> None:
    store = MemoryStore() if kept else None
    flow = Countdown(num_concurrent_runs=limit, timeout=None, workflow_name="countdown", store=store)
    with pytest.raises(
        WorkflowRuntimeError, match=r"of countdown would wait for ever: " + REMEDY.format(limit, "Countdown")
    ):
        await flow.run(left=limit)
    assert await flow.run(left=limit - 1) == limit - 1, "no turn is lost"


async def test_a_way_round_over_another_workflow_is_found() -> None:
    class Through(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await back.run())

    class Back(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await through.run())

    through, back = Through(timeout=None), Back(num_concurrent_runs=1, timeout=None)
    with pytest.raises(WorkflowRuntimeError, match=REMEDY.format(1, "Back")):
        await back.run()


async def test_two_runs_that_hold_all_turns_do_not_wait_for_one_another() -> None:
    begun = 0
    both = asyncio.Event()

    class Pair(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            nonlocal begun
            if ev.get("inner"):
                return StopEvent(result="done")
            begun += 1
            if begun == 2:
                both.set()
            await both.wait()
            return StopEvent(result=await self.run(inner=True))

    flow = Pair(num_concurrent_runs=2, timeout=None)
    found = await asyncio.gather(flow.run(), flow.run(), return_exceptions=True)
    assert sorted(type(one).__name__ for one in found) == ["WorkflowRuntimeError", "str"]


async def test_a_run_that_only_has_to_wait_is_left_alone() -> None:
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

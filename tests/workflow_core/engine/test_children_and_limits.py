"""What holds for a run of its own holds for one inside another: limits, contexts, clean ends, numbered sends."""

import asyncio
from typing import Annotated

import pytest

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import ContextSerdeError
from batonflow.workflow_core.resource import Resource
from tests.workflow_core.flows import resume, saved, until


class Job(Event):
    n: int = 0


class Worker(Workflow, entry=[Job]):
    """Counts how many of its runs work at once, and what they were given."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.working = self.most = 0
        self.jobs: list[int] = []

    @step
    async def work(self, ev: Job) -> StopEvent:
        self.working += 1
        self.most = max(self.most, self.working)
        self.jobs.append(ev.n)
        await asyncio.sleep(0.005)
        self.working -= 1
        return StopEvent()


class Boss(Workflow):
    @step
    async def give(self, ctx: Context, ev: StartEvent) -> Job | StopEvent:
        for n in range(4):
            ctx.send_event(Job(n=n))
        await asyncio.sleep(0.002)
        return StopEvent()


async def test_num_concurrent_runs_holds_for_children():
    worker = Worker(num_concurrent_runs=2)
    await Boss(timeout=5, workflows={"worker": worker}).run()
    assert worker.most == 2
    assert worker.jobs == [0, 1, 2, 3]


async def test_children_that_wait_for_their_turn_are_saved_and_cancelled_like_others():
    first = Worker(num_concurrent_runs=1)
    handler = Boss(timeout=5, workflows={"worker": first}).run()
    await until(lambda: first.jobs)
    await until(lambda: len(handler.ctx.to_dict()["children"]["runs"]) == 4)
    payload = saved(handler)
    await handler.cancel_run()
    second = Worker(num_concurrent_runs=1)
    await resume(Boss(timeout=5, workflows={"worker": second}), payload)
    assert sorted(second.jobs) == [0, 1, 2, 3]
    assert second.most == 1


async def test_a_run_that_waits_for_its_turn_can_be_saved_and_sent_to():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(ev.n, (await ctx.wait_for_event(HumanResponseEvent)).n))

    flow = Flow(num_concurrent_runs=1)
    first, second = flow.run(n=1), flow.run(n=2)
    payload = saved(second)
    second.ctx.send_event(HumanResponseEvent(n=2))
    await asyncio.sleep(0.01)
    assert not first.is_done()
    await second.cancel_run()
    await first.cancel_run()
    third = resume(Flow(), payload)
    third.ctx.send_event(HumanResponseEvent(n=3))
    assert tuple(await third) == (2, 3)


async def test_a_run_waits_for_its_children_to_clean_up():
    cleaned: list[str] = []

    class Slow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append("slow")
            return StopEvent()

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, slow: Slow) -> StopEvent:
            return await slow.run()

    handler = Flow(workflows={"slow": Slow()}).run()
    await until(lambda: handler.ctx.to_dict()["children"]["runs"])
    await handler.cancel_run()
    assert cleaned == ["slow"]


async def test_a_called_child_starts_with_the_context_that_it_is_given():
    class Reads(Workflow):
        @step
        async def read(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("seen", True)
            return StopEvent(result=await ctx.store.get("word"))

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, reads: Reads) -> StopEvent:
            ctx = Context(reads)
            await ctx.store.set("word", "tides")
            return StopEvent(result=(await reads.run(ctx=ctx), await ctx.store.get("seen")))

    assert await Flow(workflows={"reads": Reads()}).run() == ("tides", True)


class Targets(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Job | StopEvent:
        ctx.send_event(Job(n=1), step="worker.work")
        await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent()


async def test_a_repeated_step_does_not_send_to_a_childs_step_twice():
    first, second = Worker(), Worker()
    handler = Targets(workflows={"worker": first}).run()
    await until(lambda: first.jobs)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(Targets(workflows={"worker": second}), payload)
    again.ctx.send_event(HumanResponseEvent())
    await again
    assert second.jobs == [1]  # the child's own step, which was under way, and nothing from the repeated one


async def test_a_child_started_by_a_targeted_event_is_heard(capsys: pytest.CaptureFixture[str]):
    handler = Targets(workflows={"worker": Worker(verbose=True)}).run()
    handler.ctx.send_event(HumanResponseEvent())
    await until(lambda: "[work:0] complete" in capsys.readouterr().out)
    await handler.cancel_run()


async def test_a_snapshot_whose_child_is_not_attached_any_more_says_so():
    class Asks(Workflow, entry=[Job]):
        @step
        async def ask(self, ctx: Context, ev: Job) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    def make() -> Asks:
        return Asks()

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, asks: Annotated[Asks, Resource(make)]) -> Job | StopEvent:
            return Job()

    handler = Flow(disable_validation=True).run()
    await until(lambda: handler.ctx.to_dict().get("children", {}).get("runs"))
    payload = saved(handler)
    await handler.cancel_run()
    with pytest.raises(ContextSerdeError, match=r"add_workflows\(asks=\.\.\.\)"):
        resume(Flow(disable_validation=True), payload)
    attached = Flow(disable_validation=True, workflows={"asks": Asks()})
    again = resume(attached, payload)
    await until(lambda: again.ctx.to_dict()["children"]["runs"])
    await again.cancel_run()

"""What a run id means to a workflow with a store."""

import asyncio
import signal
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.errors import (
    RunInputMismatchError,
    RunInterruptedError,
    RunInUseError,
    WorkflowCancelledByUser,
)
from batonflow.workflow_core.plugins import BasicRuntime
from tests.durable.listening import Listener, history
from tests.workflow_core.flows import until


class Hello(Workflow):
    calls = 0

    @step
    async def greet(self, ctx: Context, ev: StartEvent) -> StopEvent:
        Hello.calls += 1
        return StopEvent(result=f"hello {ev.name}")


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=reply.get("text"))


async def test_the_id_of_a_live_run_gives_a_second_handler_on_it():
    journal = Listener()
    flow = Waits(store=journal)
    first = flow.run(run_id="r1")
    second = flow.run(run_id="r1")
    assert second is not first
    await until(lambda: len(journal.segments()) == 1)
    second.ctx.send_event(HumanResponseEvent(text="one answer"))
    assert await first == await second == "one answer"
    assert [record["kind"] for record in journal.records()].count("started") == 1


async def test_the_id_of_a_finished_run_gives_its_recorded_result_and_nothing_runs(store: RunStore):
    flow = Hello(store=store)
    await flow.run(run_id="r2", name="Ann")
    before = await history(store, "r2")
    calls = Hello.calls
    again = flow.run(run_id="r2", name="Ann")
    assert await again == "hello Ann"
    assert again.is_done()
    assert await Hello(store=store).run(run_id="r2", name="Ann") == "hello Ann"
    assert Hello.calls == calls
    assert await history(store, "r2") == before


async def test_a_failed_run_fails_again_in_the_same_way_without_running(store: RunStore):
    class Fails(Workflow):
        calls = 0

        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            Fails.calls += 1
            raise ValueError("no disk")

    for _ in range(2):
        with pytest.raises(ValueError, match="no disk"):
            await Fails(store=store).run(run_id="r")
    assert Fails.calls == 1


async def test_other_input_under_the_id_of_a_finished_run_is_refused(store: RunStore):
    flow = Hello(store=store)
    await flow.run(run_id="r3", name="Ann")
    with pytest.raises(RunInputMismatchError, match=r"Run 'r3' was started with other input.*another run_id"):
        await flow.run(run_id="r3", name="Bob")
    assert await flow.run(run_id="r4", name="Bob") == "hello Bob"
    assert await flow.run(run_id="r3", name="Ann") == "hello Ann"


async def test_other_input_under_the_id_of_a_live_run_is_refused_at_once():
    journal = Listener()
    flow = Waits(store=journal)
    handler = flow.run(run_id="r", n=1)
    with pytest.raises(RunInputMismatchError, match=r"Run 'r' was started with other input"):
        flow.run(run_id="r", n=2)
    await until(lambda: len(journal.segments()) == 1)
    handler.ctx.send_event(HumanResponseEvent(text="unharmed"))
    assert await handler == "unharmed"


async def test_the_order_of_the_arguments_is_no_other_input(store: RunStore):
    flow = Hello(store=store)
    await flow.run(run_id="r", name="Ann", title={"a": 1, "b": 2})
    assert await flow.run(run_id="r", title={"b": 2, "a": 1}, name="Ann") == "hello Ann"


async def test_a_run_that_another_process_drives_is_in_use(store: RunStore, other: RunStore):
    handler = Waits(store=store).run(run_id="r")
    await until(lambda: handler.open_inputs() or handler.execution_counts.executions)
    with pytest.raises(RunInUseError, match="r"):
        await Waits(store=other, runtime=BasicRuntime()).run(run_id="r")
    await handler.cancel_run()


@pytest.mark.parametrize("stops", [1, 2])
def test_a_run_whose_loop_ended_goes_on_under_its_id(stops: int):
    """It is not cancelled: nobody said so."""
    journal = Listener()
    flow = Waits(store=journal)

    async def until_it_waits() -> None:
        flow.run(run_id="r")
        await until(lambda: len(journal.segments()) == 1)

    async def to_the_end() -> str:
        handler = flow.run(run_id="r")
        handler.ctx.send_event(HumanResponseEvent(text="after all"))
        return await handler

    for _ in range(stops):
        asyncio.run(until_it_waits())
    assert [record["kind"] for record in journal.records()] == ["started", "segment"]
    assert asyncio.run(to_the_end()) == "after all"


def test_a_run_of_which_no_step_ran_when_its_loop_ended_goes_on_too():
    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent()

        @step
        async def answer(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.text)

    journal = Listener()
    flow = Asks(store=journal)

    async def until_it_asks() -> None:
        flow.run(run_id="r")
        await until(lambda: journal.segments())

    async def to_the_end() -> str:
        handler = flow.run(run_id="r")
        handler.ctx.send_event(HumanResponseEvent(text="after all"))
        return await handler

    asyncio.run(until_it_asks())
    assert asyncio.run(to_the_end()) == "after all"
    assert [record["kind"] for record in journal.records()].count("started") == 1


class Queued(Workflow):
    began: ClassVar[list[int]] = []
    cancels: ClassVar[set[int]] = set()
    quick = False

    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        Queued.began.append(ev.n)
        if ev.n in Queued.cancels:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0 if Queued.quick else 100)
        return StopEvent(result=ev.n)


@pytest.fixture
def queued() -> type[Queued]:
    Queued.began, Queued.cancels, Queued.quick = [], set(), False
    return Queued


@pytest.mark.parametrize("kept", [True, False], ids=["in a store", "without a store"])
@pytest.mark.parametrize("by", ["returning", "an interrupt"])
def test_what_waits_for_its_turn_when_the_loop_ends_does_not_begin(
    queued: type[Queued], caplog: pytest.LogCaptureFixture, kept: bool, by: str
):
    store = MemoryStore() if kept else None
    flow = Queued(store=store, num_concurrent_runs=2, timeout=None)
    handlers: list[WorkflowHandler] = []

    async def until_two_have_begun() -> None:
        handlers.extend(flow.run(n=n, run_id=f"r{n}") for n in range(6))
        await until(lambda: len(queued.began) == 2)
        if by == "an interrupt":
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(100)

    with pytest.raises(KeyboardInterrupt) if by == "an interrupt" else nullcontext():
        asyncio.run(until_two_have_begun())
    assert queued.began == [0, 1]
    error = RunInterruptedError if kept else WorkflowCancelledByUser
    assert [type(handler.stopped_by) for handler in handlers] == [error] * 6
    assert not caplog.records
    queued.quick = True

    async def again() -> list[Any]:
        assert [await flow.run(n=n, run_id=f"r{n}") for n in (6, 7)] == [6, 7], "the queue goes on in another loop"
        if store is None:
            return []
        assert {info.status for info in await store.list_runs() if info.run_id < "r6"} == {"running"}
        return [await flow.resume(f"r{n}") for n in range(6)]

    assert asyncio.run(again()) == (list(range(6)) if kept else [])


async def test_the_next_one_begins_when_the_steps_of_one_are_cancelled_from_elsewhere(
    queued: type[Queued], store: RunStore
):
    queued.cancels, queued.quick = {0, 1}, True
    flow = queued(store=store, num_concurrent_runs=1)
    handlers = [flow.run(n=n, run_id=f"r{n}") for n in range(3)]
    for handler in handlers[:2]:
        with pytest.raises(RunInterruptedError):
            await handler
    assert await handlers[2] == 2
    assert queued.began == [0, 1, 2]
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))  # as programs do that leave in good order
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "batonflow-queue"]


async def test_whoever_awaits_a_run_whose_steps_are_cancelled_from_elsewhere_is_told_how_to_go_on():
    journal = Listener()

    class Slow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("task", 1)
            if Slow.cancels:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(100)
            return StopEvent(result="gone on")

    Slow.cancels = True
    with pytest.raises(RunInterruptedError, match=r"Run 'r' was interrupted.*resume\('r'\)"):
        await Slow(store=journal).run(run_id="r")
    assert [record["kind"] for record in journal.records()] == ["started"]
    Slow.cancels = False
    assert await Slow(store=journal).run(run_id="r") == "gone on"


@pytest.mark.parametrize("begun", [True, False], ids=["while it waits", "before it began"])
async def test_a_cancelled_run_stays_cancelled(store: RunStore, begun: bool):
    flow = Waits(store=store)
    handler = flow.run(run_id="r")
    if begun:
        await until(lambda: handler.execution_counts.executions)
    await handler.cancel_run()
    info = await store.info("r")
    assert info is not None
    assert info.status == "cancelled"
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    with pytest.raises(WorkflowCancelledByUser):
        await flow.run(run_id="r")
    kinds = [record["kind"] for record in await history(store, "r")]
    assert (kinds[0], kinds[-1], kinds.count("ended")) == ("started", "ended", 1)


async def test_two_workflows_may_share_a_store(store: RunStore):
    await Hello(store=store).run(run_id="x", name="Ann")
    await Hello(store=store).run(run_id="y", name="Bob")
    assert len(await history(store, "x")) == len(await history(store, "y")) == 3
    assert await history(store, "z") == []


async def test_the_id_of_another_workflows_run_is_refused(store: RunStore):
    await Hello(store=store).run(run_id="x", name="Ann")
    with pytest.raises(RunInputMismatchError, match=r"Run 'x' belongs to workflow .*\.Hello, not to Greeting: choose"):
        await Hello(store=store, workflow_name="Greeting").run(run_id="x", name="Ann")


async def test_without_a_store_nothing_is_kept():
    assert Hello().run_store is None
    assert await asyncio.gather(Hello().run(name="a"), Hello().run(name="b")) == ["hello a", "hello b"]

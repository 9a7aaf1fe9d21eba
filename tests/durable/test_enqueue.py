"""Runs that a program stores for whichever process takes them up."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import Context, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import RunInputMismatchError, StoreError, WorkflowRuntimeError
from tests.durable.conftest import Stores
from tests.durable.runs import known


class Doubles(Workflow):
    bodies: list[int]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.bodies = []

    @step
    async def double(self, ev: StartEvent) -> StopEvent:
        self.bodies.append(ev.n)
        return StopEvent(result=2 * ev.n)


async def test_a_run_is_stored_and_left_to_whichever_process_takes_it_up(stores: Stores):
    here, there = Doubles(store=stores.open()), Doubles(store=stores.open())
    run_id = await here.enqueue(n=21)
    assert here.run_store is not None
    info = await known(here.run_store, run_id)
    assert (info.status, info.owner, info.seq) == ("ready", None, 1)
    assert here.live_handlers() == []
    [handler] = await there.recover()
    assert (handler.run_id, await handler) == (run_id, 42)
    assert (here.bodies, there.bodies) == ([], [21])


async def test_a_start_event_and_the_place_of_a_run_are_given(store: RunStore):
    flow = Doubles(store=store)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert await flow.enqueue(StartEvent(n=1), run_id="r", queue="gpu", priority=7, not_before=later) == "r"
    info = await known(store, "r")
    assert (info.queue, info.priority) == ("gpu", 7)
    assert await flow.recover() == []


async def test_the_run_of_an_id_is_enqueued_once(store: RunStore):
    flow = Doubles(store=store)
    for _ in range(2):
        assert await flow.enqueue(n=1, run_id="r") == "r"
    with pytest.raises(RunInputMismatchError, match="'r' was started with other input"):
        await flow.enqueue(n=2, run_id="r")
    assert await flow.resume("r") == 2
    assert await flow.enqueue(n=1, run_id="r") == "r"
    assert (await known(store, "r")).status == "completed"


async def test_an_agents_run_is_enqueued_with_its_options(store: RunStore):
    agent = FunctionAgent(llm=ScriptedLLM(["High water is at six."]), store=store, timeout=None)
    run_id = await agent.enqueue("When is high water?", instructions="Be short.", metadata={"user": "ann"})
    assert [info.run_id for info in await store.list_runs(metadata={"user": "ann"})] == [run_id]
    [handler] = await agent.recover()
    assert str(await handler) == "High water is at six."


async def test_a_context_goes_with_a_run(store: RunStore):
    class Counts(Workflow):
        @step
        async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
            count = await ctx.store.get("count", default=0) + 1
            await ctx.store.set("count", count)
            return StopEvent(result=count)

    flow = Counts(store=store)
    ctx = Context(flow)
    assert await flow.run(ctx=ctx) == 1
    run_id = await flow.enqueue(ctx=ctx)
    assert await flow.resume(run_id) == 2


async def test_dependencies_are_those_of_the_process_that_takes_it_up():
    made: list[str] = []

    def make(run: Any) -> str:
        made.append(run.run_id)
        return "there"

    agent = FunctionAgent(llm=ScriptedLLM(["Done."]), deps_type=str, deps_for=make, store=MemoryStore(), timeout=None)
    run_id = await agent.enqueue("Go.")
    assert made == []
    [handler] = await agent.recover()
    assert (str(await handler), made) == ("Done.", [run_id])


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"priority": 10_000}, StoreError, "priority=10000: give a whole number from -1000 to 1000"),
        ({"queue": "a b"}, StoreError, "queue='a b': give a name"),
        ({"not_before": 3}, TypeError, "not_before must be a datetime, not 3"),
        ({"stepwise": True}, ValueError, "leave stepwise out"),
        ({"session": "s"}, ValueError, "leave session out"),
        ({"run_id": "a b"}, StoreError, "'a b'"),
    ],
)
async def test_wrong_arguments_are_named(given: dict[str, Any], error: type[Exception], said: str):
    store = MemoryStore()
    with pytest.raises(error, match=said):
        await Doubles(store=store).enqueue(n=1, **given)
    assert await store.list_runs() == []


async def test_a_workflow_without_a_store_cannot_enqueue():
    with pytest.raises(WorkflowRuntimeError, match=r"Doubles.enqueue\(\) needs a store"):
        await Doubles().enqueue(n=1)


async def test_a_step_may_enqueue_a_workflow_that_is_not_a_part_of_it():
    store = MemoryStore()
    other = Doubles(store=store)

    class Begins(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await other.enqueue(n=4))

    run_id = await Begins().run()
    assert await other.resume(run_id) == 8
    with pytest.raises(WorkflowRuntimeError, match=r"leave out enqueue\(\), and call run\(\)"):
        await Begins(workflows={"other": other}).run()


async def test_a_run_that_cannot_be_stored_is_an_error(stores: Stores):
    if stores.kind != "sqlite":
        pytest.skip("a store in memory cannot be locked")
    store = stores.open()
    await Doubles(store=store).enqueue(n=1)
    await store.aclose()
    with pytest.raises(StoreError, match="is closed"):
        await Doubles(store=store).enqueue(n=1)
    with closing(sqlite3.connect(stores.path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


async def test_many_are_enqueued_at_once(store: RunStore):
    flow = Doubles(store=store)
    ids = await asyncio.gather(*(flow.enqueue(n=number) for number in range(50)))
    handlers = await flow.recover()
    assert sorted(handler.run_id for handler in handlers) == sorted(ids)
    assert sum(await asyncio.gather(*handlers)) == 2 * sum(range(50))

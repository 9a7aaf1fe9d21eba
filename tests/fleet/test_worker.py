"""Workers: they take up runs of their store up to their slots, and give them back when they stop."""

import asyncio
from typing import Any

import pytest

from batonflow import FunctionAgent, ReActAgent, ScriptedLLM
from batonflow.durable.store_protocol import RunStore
from batonflow.fleet import Worker
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.durable.conftest import Stores
from tests.durable.runs import known
from tests.server.conftest import eventually


class Gate(Workflow):
    """Waits in a step until it may go on."""

    def __init__(self, open_: asyncio.Event, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.open_ = open_

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        await self.open_.wait()
        return StopEvent(result=ev.n)


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Go on?"))
        return StopEvent(result=answer.get("response"))


async def ended(store: RunStore, *ids: str) -> list[Any]:
    async def over() -> bool:
        return all([(await known(store, run_id)).is_over for run_id in ids])

    await asyncio.wait_for(eventually(over), 20)
    return [(await known(store, run_id)).status for run_id in ids]


async def test_a_worker_drives_the_runs_that_others_have_stored(stores: Stores) -> None:
    gate = asyncio.Event()
    gate.set()
    here, there = stores.open(), stores.open()
    ids = [await Gate(gate, store=here).enqueue(n=n) for n in range(5)]
    worker = Worker(Gate(gate), store=there)
    running = asyncio.create_task(worker.run())
    assert await ended(here, *ids) == ["completed"] * 5
    later = await Gate(gate, store=here).enqueue(n=9)
    assert await ended(here, later) == ["completed"]
    worker.stop()
    await running


async def test_a_slot_that_is_free_again_is_used_at_once(stores: Stores) -> None:
    gate = asyncio.Event()
    gate.set()
    store = stores.open()
    flow = Gate(gate, store=store)
    ids = [await flow.enqueue(n=n) for n in range(100)]
    worker = Worker(flow, concurrency=2)
    running = asyncio.create_task(worker.run())
    assert await ended(store, *ids) == ["completed"] * 100  # not two a second
    worker.stop()
    await running


async def test_no_run_is_claimed_beyond_the_free_slots(stores: Stores) -> None:
    gate = asyncio.Event()
    store = stores.open()
    flow = Gate(gate, store=store)
    ids = [await flow.enqueue(n=n) for n in range(8)]
    worker = Worker(flow, concurrency=3)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(eventually(lambda: _returned(worker.runs == 3)), 10)
    await asyncio.sleep(0.3)
    statuses = [(await known(store, run_id)).status for run_id in ids]
    assert (statuses.count("running"), statuses.count("ready")) == (3, 5)
    gate.set()
    await ended(store, *ids)
    worker.stop()
    await running
    assert (await flow.recover(), worker.runs) == ([], 0)


async def _returned(value: bool) -> bool:
    return value


async def test_the_bound_of_a_workflow_holds_for_all_workers(stores: Stores) -> None:
    gate, store = asyncio.Event(), stores.open()
    ids = [await Gate(gate, store=store).enqueue(n=n) for n in range(9)]
    workers = [Worker(Gate(gate, num_concurrent_runs=3), store=one, concurrency=2) for one in (store, stores.open())]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.wait_for(eventually(lambda: _returned(sum(worker.runs for worker in workers) == 3)), 10)
    await asyncio.sleep(0.3)
    statuses = [(await known(store, run_id)).status for run_id in ids]
    assert (statuses.count("running"), statuses.count("ready")) == (3, 6)
    gate.set()
    assert await ended(store, *ids) == ["completed"] * 9
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)


async def test_the_next_run_begins_as_soon_as_one_ends_below_the_bound_of_its_workflow(stores: Stores) -> None:
    gate, store = asyncio.Event(), stores.open()
    gate.set()
    ids = [await Gate(gate, store=store).enqueue(n=n) for n in range(12)]
    worker = Worker(Gate(gate, num_concurrent_runs=1), store=store)
    running = asyncio.create_task(worker.run())
    began = asyncio.get_running_loop().time()
    assert await ended(store, *ids) == ["completed"] * 12
    assert asyncio.get_running_loop().time() - began < 6, "it does not wait a second for each run"
    worker.stop()
    await running


async def test_a_run_that_waits_for_a_person_leaves_its_slot_to_others(stores: Stores) -> None:
    store = stores.open()
    asking = Asking(store=store)
    ids = [await asking.enqueue() for _ in range(3)]
    worker = Worker(asking, concurrency=1, idle_release=0.0)
    running = asyncio.create_task(worker.run())

    async def waiting() -> bool:
        return all([(await known(store, run_id)).status == "waiting" for run_id in ids])

    await asyncio.wait_for(eventually(waiting), 20)
    for run_id in ids:
        await asking.send_to_run(run_id, HumanResponseEvent(response="yes"))
    assert await ended(store, *ids) == ["completed"] * 3
    worker.stop()
    await running


async def test_runs_end_while_a_worker_drains_and_no_further_one_begins(stores: Stores) -> None:
    gate = asyncio.Event()
    store = stores.open()
    flow = Gate(gate, store=store)
    first = await flow.enqueue(n=1)
    worker = Worker(flow, drain=20)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(eventually(lambda: _returned(worker.runs == 1)), 10)
    worker.stop()
    second = await flow.enqueue(n=2)
    await asyncio.sleep(0.3)
    gate.set()
    await running
    assert [(await known(store, run_id)).status for run_id in (first, second)] == ["completed", "ready"]


async def test_runs_that_do_not_end_in_time_are_given_back(stores: Stores) -> None:
    gate = asyncio.Event()
    store = stores.open()
    run_id = await Gate(gate, store=store).enqueue(n=1)
    worker = Worker(Gate(gate), store=store, drain=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(eventually(lambda: _returned(worker.runs == 1)), 10)
    worker.stop()
    await running
    assert (await known(store, run_id)).status == "ready"
    gate.set()
    other = Worker(Gate(gate), store=stores.open())
    running = asyncio.create_task(other.run())
    assert await ended(store, run_id) == ["completed"]
    other.stop()
    await running


async def test_a_worker_of_a_queue_leaves_the_runs_of_others(stores: Stores) -> None:
    gate = asyncio.Event()
    gate.set()
    store = stores.open()
    flow = Gate(gate, store=store)
    other = await flow.enqueue(n=1)
    mine = await flow.enqueue(n=2, queue="gpu")
    worker = Worker(flow, queues=["gpu"])
    running = asyncio.create_task(worker.run())
    await ended(store, mine)
    await asyncio.sleep(0.2)
    assert (await known(store, other)).status == "ready"
    worker.stop()
    await running


def test_bad_arguments_are_named() -> None:
    gate = asyncio.Event()
    with pytest.raises(ValueError, match="needs a workflow"):
        Worker()
    with pytest.raises(ValueError, match="does not have a store: pass store="):
        Worker(Gate(gate))
    with pytest.raises(ValueError, match="two workflows have the name"):
        Worker(Gate(gate), Gate(gate), store="memory:")
    with pytest.raises(ValueError, match="concurrency must be a whole number, 1 or more, not 0"):
        Worker(Gate(gate), store="memory:", concurrency=0)
    with pytest.raises(TypeError, match="takes workflows, agents and teams, not 'flow'"):
        Worker("flow", store="memory:")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"such as \['gpu'\]"):
        Worker(Gate(gate), store="memory:", queues="gpu")


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
def test_an_agent_without_a_name_is_refused_because_it_would_drive_runs_of_others(kind: Any, stores: Stores) -> None:
    store = stores.open()
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(workflow_name=...\)"):
        Worker(kind(llm=ScriptedLLM([]), store=store))
    assert Worker(kind(llm=ScriptedLLM([]), store=store, workflow_name="clerk")).runs == 0

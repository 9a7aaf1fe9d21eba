"""When commits are written: at once if something waits for them, else together with those of the next milliseconds."""

import asyncio
from collections.abc import Sequence

import pytest

from batonflow.durable import connection
from batonflow.durable.store_protocol import CommitDone, RunCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from tests.workflow_core.flows import until


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits that nothing waits for wait longer than a test lasts."""
    monkeypatch.setattr(connection, "SECONDS_TO_GATHER", 600.0)


class Batches(MemoryStore):
    """Counts the runs of each batch of commits."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        self.batches.append(sum(len(entry.commits) for entry in batch))
        super().commit_soon(batch, done)


class Step(Event):
    n: int


class Walks(Workflow):
    """Takes some steps, and lets others work between them."""

    @step
    async def begin(self, ev: StartEvent) -> Step:
        return Step(n=0)

    @step
    async def walk(self, ctx: Context, ev: Step) -> Step | StopEvent:
        await asyncio.sleep(0)
        if ev.n == 3 and self.uses_effect:
            await ctx.effect("pay", int)
        return Step(n=ev.n + 1) if ev.n < 6 else StopEvent(result=ev.n)

    uses_effect = False


async def test_commits_that_nothing_waits_for_are_written_with_the_end():
    store = Batches()
    assert await Walks(store=store).run() == 6
    assert len(store.batches) == 1


async def test_commits_of_several_runs_are_written_together():
    store = Batches()
    flow = Walks(store=store)
    await asyncio.gather(*(flow.run() for _ in range(5)))
    assert len(store.batches) == 1


async def test_an_effect_waits_for_its_intent_and_its_outcome_alone():
    store = Batches()
    flow = Walks(store=store)
    flow.uses_effect = True
    assert await flow.run() == 6
    assert len(store.batches) == 3


@pytest.mark.parametrize(("seconds", "stored"), [(600.0, 1), (0.001, 2)])
async def test_the_others_are_written_some_milliseconds_later(
    monkeypatch: pytest.MonkeyPatch, seconds: float, stored: int
):
    class Lasts(Walks):
        @step
        async def walk(self, ctx: Context, ev: Step) -> StopEvent:
            begun.append(ev)
            await gate.wait()
            return StopEvent()

    monkeypatch.setattr(connection, "SECONDS_TO_GATHER", seconds)
    begun, gate, store = list[Step](), asyncio.Event(), Batches()
    handler = Lasts(store=store).run(run_id="r")
    await until(lambda: bool(begun))
    await until(lambda: len(store.batches) + 1 >= stored)
    assert len(await store.read("r")) == stored
    gate.set()
    await handler


async def test_a_question_is_written_at_once():
    class Asks(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            question = InputRequiredEvent(prefix="Which harbour?")
            reply = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question, timeout=None)
            return StopEvent(result=reply.response)

    store = Batches()
    handler = Asks(store=store).run(run_id="r")
    async for request in handler.inputs():
        await until(lambda: bool(store.batches))
        assert len(await store.read("r")) == 2
        request.respond(response="Cuxhaven")
    assert await handler == "Cuxhaven"


async def test_an_interrupted_run_leaves_with_all_of_its_commits():
    class Lasts(Walks):
        @step
        async def walk(self, ctx: Context, ev: Step) -> StopEvent:
            begun.append(ev)
            await asyncio.Event().wait()
            return StopEvent()

    begun, store = list[Step](), Batches()
    handler = Lasts(store=store).run(run_id="r")
    await until(lambda: bool(begun))
    await handler.interrupt()
    assert len(await store.read("r")) == 2

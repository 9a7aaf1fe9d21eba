"""Rules of recovery: a run in its next process repeats nothing that is recorded. Each test covers one rule."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Collect,
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Take,
    Workflow,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.workflow_core.flows import until

SEEN: Counter[Any] = Counter()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


class Ask(InputRequiredEvent):
    what: str


class Answer(HumanResponseEvent):
    text: str = ""


class Note(HumanResponseEvent):
    n: int = 0


def questions(handler: WorkflowHandler) -> list[str]:
    return [one.event.what for one in handler.open_inputs()]


async def taken_up(flow: Workflow, condition: Callable[[WorkflowHandler], Any]) -> WorkflowHandler:
    """A run whose process ended when a condition held, and which another process goes on with."""
    store = flow.run_store
    assert isinstance(store, MemoryStore)
    before = flow.run(run_id="r")
    await until(lambda: condition(before))
    await before.interrupt()
    await store.aclose()
    return type(flow)(store=MemoryStore(beside=store)).resume("r")


async def test_a_write_is_not_repeated_over_a_later_one() -> None:
    class Writes(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("last", "asks")
            await ctx.wait_for_event(Answer, waiter_event=Ask(what="well?"))
            return StopEvent(result=await ctx.store.get("last"))

        @step
        async def notes(self, ctx: Context, ev: Note) -> None:
            await ctx.store.set("last", "notes")
            SEEN["notes"] += 1

    def noted(handler: WorkflowHandler) -> bool:
        if questions(handler) and not SEEN["sent"]:
            SEEN["sent"] += 1
            handler.ctx.send_event(Note())
        return SEEN["notes"] > 0

    after = await taken_up(Writes(store=MemoryStore()), noted)
    await until(lambda: questions(after))
    after.open_inputs()[0].respond()
    assert await after == "notes"


class TestARetryThatIsNotDue:
    class Fails(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(2)))
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            SEEN["attempts"] += 1
            await asyncio.gather(ctx.wait_for_event(Answer, waiter_event=Ask(what="well?")), self._fail())
            return StopEvent()

        async def _fail(self) -> None:
            await asyncio.sleep(0.01)
            SEEN["failures"] += 1
            raise ConnectionError

        @step
        async def notes(self, ev: Note) -> None:
            SEEN["notes"] += 1

    async def _taken_up(self) -> WorkflowHandler:
        failed = lambda run: SEEN["failures"] and not questions(run)  # noqa: E731
        after = await taken_up(self.Fails(store=MemoryStore()), failed)
        after.ctx.send_event(Note())
        await until(lambda: SEEN["notes"])
        return after

    async def test_waits_for_its_time(self) -> None:
        after = await self._taken_up()
        assert SEEN["attempts"] == 1
        await after.cancel_run()

    async def test_has_no_open_question(self) -> None:
        after = await self._taken_up()
        assert questions(after) == []
        await after.cancel_run()


async def test_an_event_that_a_wait_took_does_not_start_the_step() -> None:
    class Waits(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent | Answer) -> StopEvent | None:
            SEEN[type(ev)] += 1
            if isinstance(ev, Answer):
                return None
            await ctx.wait_for_event(Answer, waiter_event=Ask(what="first"))
            await ctx.wait_for_event(Answer, waiter_event=Ask(what="second"))
            return StopEvent()

    def answered(handler: WorkflowHandler) -> bool:
        if questions(handler) == ["first"]:
            handler.ctx.send_event(Answer())
        return questions(handler) == ["second"]

    after = await taken_up(Waits(store=MemoryStore()), answered)
    await until(lambda: questions(after) == ["second"])
    after.open_inputs()[0].respond()
    await after
    assert SEEN[Answer] == 0


async def test_a_question_that_was_streamed_and_answered_is_not_open() -> None:
    class Streams(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Ask(what="first"))
            await ctx.wait_for_event(Answer, requirements={"text": "one"})
            await ctx.wait_for_event(Answer, waiter_event=Ask(what="second"), requirements={"text": "two"})
            return StopEvent()

        @step
        async def accepts_answers_without_a_wait(self, ev: Note) -> None: ...

    def answered(handler: WorkflowHandler) -> bool:
        if questions(handler) == ["first"]:
            handler.ctx.send_event(Answer(text="one"))
        return questions(handler) == ["second"]

    after = await taken_up(Streams(store=MemoryStore()), answered)
    await until(lambda: questions(after))
    assert questions(after) == ["second"]
    await after.cancel_run()


async def test_a_collection_is_released_once() -> None:
    class Item(Event):
        n: int

    class Done(Event):
        n: int

    class Collects(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(3)]

        @step(num_workers=3)
        async def work(self, ctx: Context, ev: Item) -> Done:
            if ev.n == 2:
                await ctx.wait_for_event(Answer, waiter_event=Ask(what="well?"))
            return Done(n=ev.n)

        @step
        async def first_two(self, ctx: Context, ev: Annotated[list[Done], Collect(Take(2))]) -> StopEvent | None:
            SEEN["collected"] += 1

        @step
        async def ends(self, ev: Note) -> StopEvent:
            return StopEvent()

    after = await taken_up(Collects(store=MemoryStore()), lambda run: SEEN["collected"] and questions(run) == ["well?"])
    await until(lambda: questions(after))
    after.open_inputs()[0].respond()
    await until(lambda: not questions(after))
    await asyncio.sleep(0.01)
    after.ctx.send_event(Note())
    await after
    assert SEEN["collected"] == 1


async def test_a_retry_calls_its_child_runs_anew() -> None:
    class Child(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def count() -> None:
                SEEN["children"] += 1

            await ctx.once("count", count)
            await ctx.wait_for_event(Answer, waiter_event=Ask(what="of the child"))
            return StopEvent()

    class Parent(Workflow):
        def __init__(self, store: MemoryStore) -> None:
            super().__init__(store=store, workflows={"inner": Child()})

        @step(retry_policy=retry_policy(wait=wait_fixed(0.2), stop=stop_after_attempt(2)))
        async def calls(self, inner: Child, ctx: Context, ev: StartEvent) -> StopEvent:
            child = inner.run()
            if ctx.retry_info().retry_number == 0:
                await until(lambda: questions(child))
                SEEN["failures"] += 1
                raise ConnectionError
            await child
            return StopEvent()

    after = await taken_up(Parent(store=MemoryStore()), lambda _: SEEN["failures"])
    await until(lambda: SEEN["children"] == 2)
    await after.cancel_run()

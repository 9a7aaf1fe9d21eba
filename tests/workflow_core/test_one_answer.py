"""An answer to one of several equal questions reaches the wait that asked, and no other."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputClosedError,
    InputRequest,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from tests.workflow_core.flows import resume, saved, until


class Delete(Event):
    name: str


class Deleted(Event):
    name: str
    answer: str


class Deletes(Workflow):
    """Asks for each file with an equal wait."""

    @step
    async def split(self, ev: StartEvent) -> list[Delete]:
        return [Delete(name=name) for name in ("junk.txt", "payroll.db", "notes.md")]

    @step
    async def delete(self, ctx: Context, ev: Delete) -> Deleted:
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=ev.name))
        return Deleted(name=ev.name, answer=answer.response)

    @step
    async def join(self, ev: list[Deleted]) -> StopEvent:
        return StopEvent(result={one.name: one.answer for one in sorted(ev, key=lambda one: one.name)})


class Both(Workflow):
    """One question with a wait, one that another step takes the answer of."""

    @step
    async def waits(self, ctx: Context, ev: StartEvent) -> Deleted:
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="waited"))
        return Deleted(name="waited", answer=answer.response)

    @step
    async def returns(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="returned")

    @step
    async def takes(self, ev: HumanResponseEvent) -> Deleted:
        return Deleted(name="returned", answer=ev.response)

    @step
    async def ends(self, ctx: Context, ev: Deleted) -> StopEvent | None:
        both = ctx.collect_events(ev, [Deleted] * 2)
        return both and StopEvent(result={one.name: one.answer for one in both})


class Around(Workflow):
    """Runs the questions in an attached workflow."""

    @step
    async def go(self, ev: StartEvent, inner: Deletes) -> StopEvent:
        return StopEvent(result=await inner.run())


async def open_ones(handler: WorkflowHandler, count: int) -> dict[str, InputRequest]:
    await until(lambda: len(handler.open_inputs()) == count)
    return {request.event.prefix: request for request in handler.open_inputs()}


async def until_answered(handler: WorkflowHandler, prefix: str) -> None:
    await until(lambda: prefix not in {one.event.prefix for one in handler.open_inputs()})


def make(name: str) -> Callable[..., Workflow]:
    def around(**options: Any) -> Workflow:
        return Around(workflows={"inner": Deletes(timeout=None)}, **options)

    return {"alone": Deletes, "inside": around}[name]


EVERY = {"junk.txt": "junk.txt?", "notes.md": "notes.md?", "payroll.db": "payroll.db?"}


@pytest.mark.parametrize("name", ["alone", "inside"])
class TestEqualWaits:
    @pytest.mark.parametrize("stored", [False, True])
    async def test_an_answer_in_one_turn_closes_its_own_question_only(self, name: str, stored: bool) -> None:
        handler = make(name)(timeout=None, store=MemoryStore() if stored else None).run(run_id="r")
        asked = await open_ones(handler, 3)
        asked["payroll.db"].respond("payroll.db?")
        left = await open_ones(handler, 2)
        assert set(left) == {"junk.txt", "notes.md"}
        for prefix in left:  # both in one turn of the loop
            asked[prefix].respond(f"{prefix}?")
        assert await handler == EVERY

    async def test_after_a_restore(self, name: str) -> None:
        flow = make(name)(timeout=None)
        handler = flow.run()
        (await open_ones(handler, 3))["notes.md"].respond("notes.md?")
        await open_ones(handler, 2)
        payload = saved(handler)
        await handler.cancel_run()
        again = resume(flow, payload)
        asked = await open_ones(again, 2)
        asked["payroll.db"].respond("payroll.db?")
        asked["junk.txt"].respond("junk.txt?")
        assert await again == EVERY

    async def test_in_a_snapshot_taken_before_the_answer_is_delivered(self, name: str) -> None:
        flow = make(name)(timeout=None)
        handler = flow.run()
        (await open_ones(handler, 3))["payroll.db"].respond("payroll.db?")
        payload = saved(handler)
        await handler.cancel_run()
        again = resume(flow, payload)
        asked = await open_ones(again, 2)
        assert set(asked) == {"junk.txt", "notes.md"}
        for prefix, request in asked.items():
            request.respond(f"{prefix}?")
        assert await again == EVERY

    async def test_through_the_inbox_of_the_store(self, name: str) -> None:
        flow = make(name)(timeout=None, store=MemoryStore())
        handler = flow.run(run_id="r")
        await open_ones(handler, 3)
        for prefix in ("payroll.db", "junk.txt", "notes.md"):
            request = next(one for one in await flow.open_inputs("r") if one.event.prefix == prefix)
            await flow.send_to_run("r", request.answer(response=f"{prefix}?"), key=request.answer_key)
            await until_answered(handler, prefix)
        assert await handler == EVERY

    async def test_while_the_run_is_out_of_memory(self, name: str) -> None:
        flow = make(name)(timeout=None, store=MemoryStore(), idle_release=0)
        handler = flow.run(run_id="r")
        asked = await open_ones(handler, 3)
        for prefix in ("notes.md", "junk.txt", "payroll.db"):
            await until(lambda: handler.is_released)
            asked[prefix].respond(f"{prefix}?")
            await until(lambda: not handler.is_released or handler.is_done())
        assert await handler == EVERY

    async def test_a_process_that_ends_before_the_delivery_loses_no_answer(self, name: str, tmp_path: Path) -> None:
        flow = make(name)(timeout=None, store=str(tmp_path / "runs.db"))
        handler = flow.run(run_id="r")
        asked = await open_ones(handler, 3)
        await handler.interrupt()
        request = next(one for one in await flow.open_inputs("r") if one.event.prefix == "notes.md")
        assert request.id == asked["notes.md"].id
        await flow.send_to_run("r", request.answer(response="notes.md?"), key=request.answer_key)
        again = flow.resume("r")
        left = await open_ones(again, 2)
        assert set(left) == {"junk.txt", "payroll.db"}
        for prefix, request in left.items():
            request.respond(f"{prefix}?")
        assert await again == EVERY

    async def test_an_answer_without_a_request_closes_the_oldest_question_only(self, name: str) -> None:
        handler = make(name)(timeout=None).run()
        await open_ones(handler, 3)
        for prefix in ("junk.txt", "payroll.db", "notes.md"):
            assert next(iter(await open_ones(handler, len(handler.open_inputs())))) == prefix
            handler.ctx.send_event(HumanResponseEvent(response=f"{prefix}?"))
            await until_answered(handler, prefix)
        assert await handler == EVERY


async def test_a_request_is_answered_once() -> None:
    handler = Deletes(timeout=None).run()
    asked = await open_ones(handler, 3)
    asked["junk.txt"].respond("yes")
    with pytest.raises(InputClosedError):
        asked["junk.txt"].respond("no")
    assert set(await open_ones(handler, 2)) == {"notes.md", "payroll.db"}
    await handler.cancel_run()


@pytest.mark.parametrize("first", ["waited", "returned"])
async def test_a_wait_and_a_step_that_take_the_same_answer_are_told_apart(first: str) -> None:
    handler = Both(timeout=None).run()
    asked = await open_ones(handler, 2)
    asked[first].respond(first)
    (other,) = (await open_ones(handler, 1)).values()
    assert other.event.prefix != first
    other.respond(other.event.prefix)
    assert await handler == {"waited": "waited", "returned": "returned"}


async def test_an_answer_that_comes_too_late_answers_no_other_question(caplog: pytest.LogCaptureFixture) -> None:
    flow = Deletes(timeout=None, store=MemoryStore())
    handler = flow.run(run_id="r")
    asked = await open_ones(handler, 3)
    asked["junk.txt"].respond("yes")
    await open_ones(handler, 2)
    await flow.send_to_run("r", HumanResponseEvent(response="late"), key=asked["junk.txt"].answer_key)
    await until(lambda: "not open any more" in caplog.text)
    assert set(await open_ones(handler, 2)) == {"notes.md", "payroll.db"}
    await handler.cancel_run()


async def test_parallel_equal_waits_of_one_step_are_told_apart() -> None:
    class Pair(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            answers = await asyncio.gather(
                *(
                    ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=prefix))
                    for prefix in "ab"
                )
            )
            return StopEvent(result=[answer.response for answer in answers])

    handler = Pair(timeout=None).run()
    asked = await open_ones(handler, 2)
    asked["b"].respond("for b")
    asked["a"].respond("for a")
    assert await handler == ["for a", "for b"]


async def test_equal_waits_with_an_id_of_the_program_are_told_apart() -> None:
    class Named(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Delete]:
            return [Delete(name=name) for name in ("a", "b", "c")]

        @step
        async def ask(self, ctx: Context, ev: Delete) -> Deleted:
            answer = await ctx.wait_for_event(
                HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=ev.name), waiter_id="same", timeout=None
            )
            return Deleted(name=ev.name, answer=answer.response)

        @step
        async def join(self, ev: list[Deleted]) -> StopEvent:
            return StopEvent(result={one.name: one.answer for one in ev})

    flow = Named(timeout=None, store=MemoryStore())
    handler = flow.run(run_id="r")
    asked = await open_ones(handler, 3)
    assert len({request.id for request in asked.values()}) == 3
    asked["b"].respond("for b")
    assert set(await open_ones(handler, 2)) == {"a", "c"}
    stored = {request.event.prefix: request for request in await flow.open_inputs("r")}
    await flow.send_to_run("r", stored["c"].answer(response="for c"), key=stored["c"].answer_key)
    await until_answered(handler, "c")
    asked["a"].respond("for a")
    assert await handler == {"a": "for a", "b": "for b", "c": "for c"}


async def test_a_reader_meets_every_question_with_an_id_of_the_program() -> None:
    class Named(Deletes):
        @step
        async def delete(self, ctx: Context, ev: Delete) -> Deleted:
            answer = await ctx.wait_for_event(
                HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=ev.name), waiter_id="same", timeout=None
            )
            return Deleted(name=ev.name, answer=answer.response)

    handler = Named(timeout=None).run()
    async for request in handler.inputs():
        request.respond(f"{request.event.prefix}?")
    assert await handler == EVERY

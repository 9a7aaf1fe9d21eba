"""ctx.once: what its function does is numbered within the call, so nothing is swallowed or doubled after a restore."""

import asyncio
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.durable.listening import Listener
from tests.workflow_core.flows import resume, saved, streamed, until


class Shown(Event):
    text: str


class Note(Event):
    text: str


class Reply(HumanResponseEvent):
    text: str


class Desk(Workflow):
    """Keeps what was sent to it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.notes: list[str] = []

    @step
    async def note(self, ev: Note) -> None:
        self.notes.append(ev.text)


def does(ctx: Context, *texts: str) -> None:
    for text in texts:
        ctx.write_event_to_stream(Shown(text=text))
        ctx.send_event(Note(text=text))


async def writes(ctx: Context, *keys: str) -> None:
    for key in keys:
        await ctx.store.set(key, await ctx.store.get(key, 0) + 1)


async def restored(flow: Workflow, handler: WorkflowHandler, waits: int = 1) -> WorkflowHandler:
    """The run from a snapshot, taken when so many waits stand open."""
    await until(lambda: sum(len(w["collected_waiters"]) for w in saved(handler)["workers"].values()) == waits)
    payload = saved(handler)
    await handler.cancel_run()
    return resume(flow, payload)


async def shown(handler: WorkflowHandler) -> list[str]:
    return [event.text for event in await streamed(handler) if isinstance(event, Shown)]


async def test_what_stands_behind_a_recorded_call_is_not_passed_over_for_what_stood_inside():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def inside() -> None:
                does(ctx, "in 1", "in 2")
                await writes(ctx, "in")

            await ctx.once("call", inside)
            await ctx.wait_for_event(Reply)
            does(ctx, "behind 1", "behind 2")
            await writes(ctx, "behind")
            return StopEvent(result=(await ctx.store.get_state()).to_dict())

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text="go on"))
    assert await handler == {"in": 1, "behind": 1}
    assert await shown(handler) == ["behind 1", "behind 2"]
    assert flow.notes == ["in 1", "in 2", "behind 1", "behind 2"]


async def test_a_call_that_was_under_way_goes_on_where_it_was():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def inside() -> str:
                does(ctx, "before")
                await writes(ctx, "before")
                reply = await ctx.wait_for_event(Reply)
                does(ctx, "after")
                await writes(ctx, "after")
                return reply.text

            text = await ctx.once("call", inside)
            does(ctx, "behind")
            return StopEvent(result=(text, (await ctx.store.get_state()).to_dict()))

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text="yes"))
    assert await handler == ("yes", {"before": 1, "after": 1})
    assert await shown(handler) == ["after", "behind"]
    assert flow.notes == ["before", "after", "behind"]


async def test_a_wait_inside_a_recorded_call_does_not_answer_the_one_behind_it():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def ask() -> str:
                return (await ctx.wait_for_event(Reply)).text

            first = await ctx.once("first", ask)
            answered.append(first)
            second = (await ctx.wait_for_event(Reply)).text
            return StopEvent(result=[first, second])

    answered: list[str] = []
    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text="one"))
    await until(lambda: answered)
    again = await restored(flow, handler)
    again.ctx.send_event(Reply(text="two"))
    assert await again == ["one", "two"]


async def test_a_call_inside_a_call_has_numbers_of_its_own():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def outer() -> None:
                does(ctx, "outer 1")
                await ctx.once("inner", inner)
                does(ctx, "outer 2")
                await ctx.wait_for_event(Reply)
                does(ctx, "outer 3")

            async def inner() -> None:
                does(ctx, "inner 1", "inner 2")

            await ctx.once("outer", outer)
            does(ctx, "behind")
            return StopEvent()

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text=""))
    assert await shown(handler) == ["outer 3", "behind"]
    assert flow.notes == ["outer 1", "inner 1", "inner 2", "outer 2", "outer 3", "behind"]


async def test_calls_beside_one_another_do_not_mix_their_numbers():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def ask(name: str, acts: int) -> str:
                for number in range(acts):
                    does(ctx, f"{name}{number}")
                    await asyncio.sleep(0)
                reply = await ctx.wait_for_event(Reply, requirements={"text": name})
                does(ctx, f"{name} done")
                return reply.text

            calls = [ctx.once(name, ask, name, acts) for name, acts in (("a", 3), ("b", 1))]
            does(ctx, "behind", *(await asyncio.gather(*calls)))
            return StopEvent()

    flow = Flow()
    handler = await restored(flow, flow.run(), waits=2)
    handler.ctx.send_event(Reply(text="b"))
    await until(lambda: "b done" in flow.notes)
    again = await restored(flow, handler)
    again.ctx.send_event(Reply(text="a"))
    assert await shown(handler) == ["b done"]
    assert await shown(again) == ["a done", "behind", "a", "b"]
    assert sorted(flow.notes) == sorted(["a0", "a1", "a2", "b0", "a done", "b done", "behind", "a", "b"])


async def test_a_call_that_fails_is_repeated_like_everything_else():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            def fails() -> None:
                does(ctx, "tried")
                raise ConnectionError

            with pytest.raises(ConnectionError):
                await ctx.once("call", fails)
            await ctx.wait_for_event(Reply)
            await ctx.once("call", lambda: does(ctx, "tried again"))
            does(ctx, "behind")
            return StopEvent()

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text=""))
    assert await shown(handler) == ["tried again", "behind"]
    assert flow.notes == ["tried", "tried again", "behind"]


async def test_a_failed_attempt_does_again_what_a_failed_call_did_and_nothing_of_a_recorded_one():
    class Flow(Desk):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            def fails_at_first() -> None:
                does(ctx, "tried")
                if not ctx.retry_info().retry_number:
                    raise ConnectionError

            await ctx.once("recorded", lambda: does(ctx, "recorded"))
            await ctx.once("failing", fails_at_first)
            return StopEvent()

    flow = Flow()
    handler = flow.run()
    await handler
    assert await shown(handler) == ["recorded", "tried", "tried"]
    assert flow.notes == ["recorded", "tried", "tried"]


async def test_what_a_call_leaves_running_is_not_counted_as_the_steps_own():
    class Flow(Desk):
        left: asyncio.Task[None]

        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def later() -> None:
                does(ctx, "left behind")

            async def inside() -> None:
                self.left = asyncio.create_task(later())

            await ctx.once("call", inside)
            await self.left
            await ctx.wait_for_event(Reply)
            does(ctx, "behind")
            return StopEvent()

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text=""))
    assert await shown(handler) == ["behind"]
    assert flow.notes == ["left behind", "behind"]


async def test_a_thread_inside_a_call_counts_there():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def inside() -> None:
                await asyncio.to_thread(does, ctx, "thread 1", "thread 2")

            await ctx.once("call", inside)
            await ctx.wait_for_event(Reply)
            await asyncio.to_thread(does, ctx, "behind")
            return StopEvent()

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text=""))
    assert await shown(handler) == ["behind"]
    assert flow.notes == ["thread 1", "thread 2", "behind"]


async def test_a_set_collected_inside_a_call_is_found_again_in_it_and_not_behind_it():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def inside(number: int) -> str:
                found = ctx.collect_events(Note(text=f"set {number}"), [Note])
                if number == 2:
                    await ctx.wait_for_event(Reply)
                assert found is not None
                return found[0].text

            texts = [await ctx.once(f"{number}", inside, number) for number in (1, 2)]
            [own] = ctx.collect_events(Note(text="set 3"), [Note]) or []
            return StopEvent(result=[*texts, own.text])

    flow = Flow()
    handler = await restored(flow, flow.run())
    handler.ctx.send_event(Reply(text=""))
    assert await handler == ["set 1", "set 2", "set 3"]


class Inner(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, waiter_event=InputRequiredEvent(who=ev.who))
        return StopEvent(result=f"{ev.who}: {reply.text}")


async def test_a_workflow_run_inside_a_call_is_not_taken_for_the_one_behind_it():
    class Outer(Workflow):
        @step
        async def go(self, inner: Inner, ctx: Context, ev: StartEvent) -> StopEvent:
            async def first() -> str:
                return await inner.run(who="first")

            texts = [await ctx.once("call", first), await inner.run(who="second")]
            return StopEvent(result=texts)

    async def on(handler: WorkflowHandler) -> WorkflowHandler:
        await until(lambda: "waiting_for_event" in str(saved(handler)["children"]))
        payload = saved(handler)
        await handler.cancel_run()
        return resume(flow, payload)

    flow = Outer(workflows={"inner": Inner()})
    handler = await on(flow.run())
    handler.ctx.send_event(Reply(text="1"))
    await until(lambda: len(handler.ctx.to_dict()["children"]["runs"]) == 2)
    again = await on(handler)
    again.ctx.send_event(Reply(text="2"))
    assert await again == ["first: 1", "second: 2"]


async def test_a_workflow_run_inside_a_call_has_numbers_of_its_own():
    class Careful(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.once("own", lambda: None)
            ctx.write_event_to_stream(Shown(text="inside"))
            return StopEvent(result=(await ctx.wait_for_event(Reply)).text)

    class Outer(Workflow):
        @step
        async def go(self, inner: Careful, ctx: Context, ev: StartEvent) -> StopEvent:
            async def call() -> str:
                return await inner.run()

            return StopEvent(result=await ctx.once("call", call))

    flow = Outer(workflows={"inner": Careful()})
    handler = flow.run()
    await until(lambda: "waiting_for_event" in str(saved(handler)["children"]))
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(Reply(text="yes"))
    assert await again == "yes"
    assert (await shown(handler), await shown(again)) == (["inside"], [])


async def test_a_retry_finds_the_answers_that_a_failed_call_was_given():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def inside() -> str:
                reply = await ctx.wait_for_event(Reply, timeout=None)
                if not ctx.retry_info().retry_number:
                    raise ConnectionError
                return reply.text

            return StopEvent(result=await ctx.once("call", inside))

    handler = Flow().run()
    await asyncio.sleep(0)
    handler.ctx.send_event(Reply(text="once"))
    assert await asyncio.wait_for(handler, 30) == "once"


async def test_a_snapshot_keeps_of_a_recorded_call_the_record_alone():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.once("call", lambda: ctx.write_event_to_stream(Shown(text="inside")))
            await ctx.wait_for_event(Reply)
            return StopEvent()

    handler = Flow().run()
    await until(lambda: saved(handler)["workers"]["go"]["collected_waiters"])
    [entry] = saved(handler)["workers"]["go"]["in_progress"]
    assert (entry["progress"]["once"], entry["progress"]["once_calls"]) == ({"call": "null"}, {})
    await handler.cancel_run()


async def test_records_tell_what_was_done_inside_a_call_from_what_was_done_outside():
    class Flow(Desk):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Note | StopEvent:
            async def inside() -> None:
                does(ctx, "in")
                await writes(ctx, "in")

            does(ctx, "before")
            await ctx.once("call", inside)
            does(ctx, "behind")
            return StopEvent()

    journal = Listener()
    await Flow(store=journal).run()
    own = journal.records("go")
    assert [number for record in own for number, *_ in record.get("streamed", ())] == [1, ["call", 1], 2]
    assert [number for record in own for number, *_ in record.get("sends", ())] == [1, ["call", 1], 2]
    assert [number for record in own for number, *_ in record.get("writes", ())] == [["call", 1]]

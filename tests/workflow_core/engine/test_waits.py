"""wait_for_event: a step that suspends, frees its worker, and goes on where it stood."""

import asyncio

import pytest

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
from batonflow.workflow_core.events import StepState, StepStateChanged
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.contract import contract
from tests.durable.listening import Listener
from tests.workflow_core.flows import names, resume, saved, streamed, until


class Item(Event):
    n: int


class Done(Event):
    n: int


class Reply(HumanResponseEvent):
    text: str = ""


class Signal(Event):
    pass


class Other(HumanResponseEvent):
    text: str = ""


async def waiting(handler, count: int = 1) -> None:
    """Until so many waits stand open."""
    await until(lambda: sum(len(w["collected_waiters"]) for w in saved(handler)["workers"].values()) == count)


@contract("5.6")
async def test_a_wait_returns_the_event_and_code_before_it_runs_once():
    begun: list[int] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            begun.append(1)
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=reply.text)

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="yes"))
    assert await handler == "yes"
    assert begun == [1]


@contract("5.6")
async def test_locals_survive_the_wait_as_it_really_suspends():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            thing = object()
            await ctx.wait_for_event(Reply)
            again = thing
            try:
                await ctx.wait_for_event(Reply)
            except Exception:  # noqa: BLE001 - control flow is no Exception, so nothing is swallowed here
                return StopEvent(result="swallowed")
            return StopEvent(result=again is thing)

    handler = Flow().run()
    for _ in range(2):
        await waiting(handler)
        handler.ctx.send_event(Reply())
        await asyncio.sleep(0.001)
    assert await handler is True


@contract("5.6")
async def test_the_question_is_streamed_once_when_the_wait_begins():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            reply = await ctx.wait_for_event(Reply, waiter_event=InputRequiredEvent(prefix="sure?"))
            return StopEvent(result=reply.text)

    handler = Flow().run()
    seen: list[str] = []
    async for event in handler.stream_events(expose_internal=True):
        seen.append(
            f"{event.name} {event.step_state.value}" if isinstance(event, StepStateChanged) else names([event])[0]
        )
        if isinstance(event, InputRequiredEvent):
            await handler.send_event(Reply(text="yes"))
    assert seen == [
        "go running", "go not_running", "InputRequiredEvent", "WorkflowIdleEvent",
        "go running", "go not_running", "StopEvent",
    ]  # fmt: skip


@contract("5.6")
async def test_requirements_must_all_be_met():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            reply = await ctx.wait_for_event(Reply, requirements={"user": "ann", "text": "yes"})
            return StopEvent(result=reply.n)

    handler = Flow().run()
    await waiting(handler)
    for n, fields in enumerate(
        [{"user": "bob", "text": "yes"}, {"user": "ann", "text": "no"}, {"text": "yes"}, {"user": "ann", "text": "yes"}]
    ):
        handler.ctx.send_event(Reply(n=n, **fields))
    assert await handler == 3


@contract("5.6")
async def test_another_type_is_not_taken():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(Reply)).text)

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Other(text="other"))
    handler.ctx.send_event(HumanResponseEvent(text="base"))
    handler.ctx.send_event(Reply(text="right"))
    assert await handler == "right"


@contract("5.6")
async def test_several_waits_one_after_another_get_an_answer_each():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            replies = [(await ctx.wait_for_event(Reply)).text for _ in range(3)]
            return StopEvent(result=replies)

    handler = Flow().run()
    for text in "abc":
        await waiting(handler)
        handler.ctx.send_event(Reply(text=text))
        await asyncio.sleep(0.001)
    assert await handler == ["a", "b", "c"]


@contract("5.6")
async def test_the_same_id_gives_the_same_answer_again():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            first = await ctx.wait_for_event(Reply, waiter_id="who")
            second = await ctx.wait_for_event(Reply, waiter_id="who")
            third = await ctx.wait_for_event(Reply, waiter_id="other")
            return StopEvent(result=(first is second, third.text))

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="one"))
    await asyncio.sleep(0.001)
    await waiting(handler)
    handler.ctx.send_event(Reply(text="two"))
    assert await handler == (True, "two")


@contract("5.6")
async def test_equal_waits_of_parallel_executions_stay_separate_and_get_an_answer_each():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=1), Item(n=2)]

        @step
        async def ask(self, ctx: Context, ev: Item) -> Done:
            await ctx.wait_for_event(Reply)
            return Done(n=ev.n)

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=[one.n for one in done])

    handler = Flow().run()
    await waiting(handler, 2)
    handler.ctx.send_event(Reply())
    await waiting(handler, 1)
    handler.ctx.send_event(Reply())
    assert sorted(await handler) == [1, 2]  # whoever ends first stands first


async def test_an_event_that_is_not_a_person_s_answer_reaches_every_wait_for_it():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=1), Item(n=2)]

        @step
        async def ask(self, ctx: Context, ev: Item) -> Done:
            await ctx.wait_for_event(Signal)
            return Done(n=ev.n)

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=sorted(one.n for one in done))

    handler = Flow().run()
    await waiting(handler, 2)
    handler.ctx.send_event(Signal())
    assert await handler == [1, 2]


@contract("5.6")
async def test_concurrent_waits_in_one_step_with_ids_get_an_answer_each():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            left, right = await asyncio.gather(
                ctx.wait_for_event(Reply, waiter_id="l", requirements={"side": "l"}),
                ctx.wait_for_event(Reply, waiter_id="r", requirements={"side": "r"}),
            )
            return StopEvent(result=left.text + right.text)

    handler = Flow().run()
    await waiting(handler, 2)
    handler.ctx.send_event(Reply(side="r", text="right"))
    await waiting(handler, 1)
    handler.ctx.send_event(Reply(side="l", text="left "))
    assert await handler == "left right"


@contract("5.6")
async def test_concurrent_waits_for_different_types():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            one, two = await asyncio.gather(ctx.wait_for_event(Reply), ctx.wait_for_event(Other))
            return StopEvent(result=one.text + two.text)

    handler = Flow().run()
    await waiting(handler, 2)
    handler.ctx.send_event(Other(text="b"))
    handler.ctx.send_event(Reply(text="a"))
    assert await handler == "ab"


@contract("5.6")
async def test_a_wait_ends_with_its_timeout():
    runs: list[int] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            runs.append(1)
            try:
                await ctx.wait_for_event(Reply, timeout=0.01)
            except TimeoutError:
                return StopEvent(result="nobody there")
            return StopEvent()

    assert await Flow().run() == "nobody there"
    assert runs == [1]


@contract("5.6")
async def test_an_uncaught_timeout_of_a_wait_fails_the_step():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply, timeout=0.01)
            return StopEvent()

    with pytest.raises(TimeoutError, match="Step go waited for Reply"):
        await Flow().run()


@contract("5.6")
async def test_a_waiting_step_frees_its_worker():
    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> Item | None:
            for n in range(3):
                ctx.send_event(Item(n=n))

        @step(num_workers=1)
        async def ask(self, ctx: Context, ev: Item) -> StopEvent | None:
            ctx.write_event_to_stream(Item(n=ev.n))
            await ctx.wait_for_event(Reply, requirements={"n": ev.n})
            found = ctx.collect_events(ev, [Item] * 3)
            return StopEvent(result=[item.n for item in found]) if found else None

    handler = Flow().run()
    await waiting(handler, 3)
    for n in (2, 0, 1):
        handler.ctx.send_event(Reply(n=n))
    assert await handler == [2, 0, 1]


@contract("5.6")
async def test_an_answered_wait_takes_a_worker_again_first_come_first_served():
    running: set[int] = set()
    most: list[int] = []
    finished: list[int] = []

    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(6)]

        @step(num_workers=2)
        async def ask(self, ctx: Context, ev: Item) -> Done:
            await ctx.wait_for_event(Reply, requirements={"n": ev.n})
            running.add(ev.n)
            most.append(len(running))
            await asyncio.sleep(0.001)
            running.discard(ev.n)
            finished.append(ev.n)
            return Done(n=ev.n)

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=len(done))

    handler = Flow().run()
    await waiting(handler, 6)
    for n in (5, 4, 3, 2, 1, 0):
        handler.ctx.send_event(Reply(n=n))
    assert await handler == 6
    assert max(most) == 2
    assert finished == [5, 4, 3, 2, 1, 0]


@contract("5.6")
async def test_a_wait_swallows_the_delivery_for_its_own_step_only():
    class Flow(Workflow):
        @step
        async def both(self, ctx: Context, ev: StartEvent | Reply) -> StopEvent | None:
            if isinstance(ev, Reply):
                return StopEvent(result="delivered to the waiting step as well")
            reply = await ctx.wait_for_event(Reply)
            await ctx.store.set("waited", reply.text)
            return None

        @step
        async def other(self, ctx: Context, ev: Reply) -> StopEvent:
            await asyncio.sleep(0.002)
            return StopEvent(result=("other", await ctx.store.get("waited")))

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="yes"))
    assert await handler == ("other", "yes")


@contract("5.6", "4.1")
async def test_the_end_of_the_run_cancels_waits():
    cancelled: list[str] = []

    class Flow(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent) -> None:
            try:
                await ctx.wait_for_event(Reply)
            except asyncio.CancelledError:
                cancelled.append("asks")
                raise

        @step
        async def ends(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.002)
            return StopEvent(result="over")

    assert await Flow().run() == "over"
    assert cancelled == ["asks"]


async def test_a_retry_is_given_the_same_answers_again():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            reply = await ctx.wait_for_event(Reply)
            if ctx.retry_info().retry_number < 2:
                raise ValueError("after the answer")
            return StopEvent(result=(reply.text, ctx.retry_info().retry_number))

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="asked once"))
    assert await asyncio.wait_for(handler.stop_event_result(), 2) == handler.get_stop_event()
    assert await handler == ("asked once", 2)


async def test_a_wait_given_up_by_the_step_is_forgotten():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await ctx.wait_for_event(Reply)
            ctx.write_event_to_stream(Event(note="gave up"))
            reply = await ctx.wait_for_event(Other)
            return StopEvent(result=reply.text)

    handler = Flow().run()
    async for event in handler.stream_events():
        if event.get("note"):
            await waiting(handler)
            [waiter] = saved(handler)["workers"]["go"]["collected_waiters"]
            assert waiter["waiting_for_event"].endswith("Other")
            handler.ctx.send_event(Reply(text="too late"))
            handler.ctx.send_event(Other(text="second"))
    assert await handler == "second"


async def test_a_shared_wait_with_one_id_answers_every_branch():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = await asyncio.gather(*(ctx.wait_for_event(Reply, waiter_id="one") for _ in range(3)))
            return StopEvent(result=[reply.text for reply in found])

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="x"))
    assert await handler == ["x", "x", "x"]


async def test_an_event_from_another_step_answers_too():
    class Flow(Workflow):
        @step
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            done = await ctx.wait_for_event(Done)
            return StopEvent(result=done.n)

        @step
        async def answers(self, ctx: Context, ev: StartEvent) -> Done:
            await asyncio.sleep(0.001)
            return Done(n=5)

    assert await Flow(disable_validation=True).run() == 5


async def test_the_events_between_wait_and_answer_are_shown_in_order():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply)
            return StopEvent()

    handler = Flow().run()
    await waiting(handler)
    handler.ctx.send_event(Reply())
    states = [e.step_state for e in await streamed(handler, internal=True) if isinstance(e, StepStateChanged)]
    assert states == [StepState.RUNNING, StepState.NOT_RUNNING] * 2


# --- restored ---------------------------------------------------------------------------------------------------------


async def stopped_while_waiting(flow: Workflow, count: int = 1, **arguments: object):
    handler = flow.run(**arguments)
    await waiting(handler, count)
    payload = saved(handler)
    await handler.cancel_run()
    return payload


@contract("5.2.4")
async def test_after_a_restore_the_step_registers_again_and_can_be_answered():
    begun: list[int] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            begun.append(1)
            reply = await ctx.wait_for_event(Reply, InputRequiredEvent(prefix="?"), requirements={"user": "ann"})
            return StopEvent(result=reply.text)

    flow = Flow()
    handler = resume(flow, await stopped_while_waiting(flow))
    # answers may be sent at once, before the step has asked again
    handler.ctx.send_event(Reply(user="bob", text="wrong"))
    handler.ctx.send_event(Reply(user="ann", text="right"))
    assert names(await streamed(handler)) == ["StopEvent"], "the question is not asked twice"
    assert await handler == "right"
    assert begun == [1, 1]


@contract("5.2.4")
async def test_an_answer_given_before_the_restore_is_not_asked_for_again():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            first = await ctx.wait_for_event(Reply)
            second = await ctx.wait_for_event(Reply)
            return StopEvent(result=first.text + second.text)

    flow = Flow()
    handler = flow.run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="a"))
    await asyncio.sleep(0.001)
    await waiting(handler)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(Reply(text="b"))
    assert await again == "ab"


@contract("5.2.4")
async def test_a_step_that_accepts_the_answer_itself_can_be_answered_at_once():
    class Flow(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent(prefix="?")

        @step
        async def answer(self, ev: Reply) -> StopEvent:
            return StopEvent(result=ev.text)

    flow = Flow()
    handler = flow.run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(Reply(text="at once"))
    assert await again == "at once"


async def test_the_time_of_a_wait_goes_on_over_a_restore():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.wait_for_event(Reply, timeout=0.05)
            except TimeoutError:
                return StopEvent(result="timed out")
            return StopEvent(result="answered")

    flow = Flow(timeout=5)
    payload = await stopped_while_waiting(flow)
    [waiter] = payload["workers"]["go"]["collected_waiters"]
    assert waiter["due"] is not None
    handler = resume(flow, payload)
    assert await handler == "timed out"
    # long overdue when restored
    waiter["due"] -= 1000
    assert await resume(flow, payload) == "timed out"


async def test_requirements_that_cannot_be_written_are_flagged_and_asked_for_again():
    class Opaque:
        pass

    token = Opaque()

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            reply = await ctx.wait_for_event(Reply, requirements={"token": token})
            return StopEvent(result=reply.text)

    flow = Flow()
    payload = await stopped_while_waiting(flow)
    [waiter] = payload["workers"]["go"]["collected_waiters"]
    assert waiter["has_requirements"] is True
    handler = resume(flow, payload)
    await asyncio.sleep(0.001)
    handler.ctx.send_event(Reply(token="forged", text="wrong"))
    handler.ctx.send_event(Reply(token=token, text="right"))
    assert await handler == "right"


async def test_once_gives_back_its_record_when_the_step_is_repeated_after_a_restore():
    calls: list[str] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ticket = await ctx.once("ticket", lambda: calls.append("bought") or {"number": 7})
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=(ticket["number"], reply.text))

    flow = Flow()
    handler = resume(flow, await stopped_while_waiting(flow))
    handler.ctx.send_event(Reply(text="ok"))
    assert await handler == (7, "ok")
    assert calls == ["bought"]


async def test_a_once_that_was_under_way_is_called_again_after_a_restore():
    calls: list[int] = []
    gate = asyncio.Event()

    async def effect() -> int:
        calls.append(1)
        await gate.wait()
        return len(calls)

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.once("key", effect))

    flow = Flow()
    handler = flow.run()
    await until(lambda: calls)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    await until(lambda: len(calls) == 2)
    gate.set()
    assert await again == 2


@contract("16.3")
async def test_what_was_done_before_a_wait_is_not_done_again_after_a_restore():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Item | Done:
            ctx.send_event(Item(n=1))
            ctx.write_event_to_stream(Event(note="before"))
            await ctx.store.set("n", await ctx.store.get("n", default=0) + 1)
            await ctx.wait_for_event(Reply)
            ctx.send_event(Item(n=2))
            ctx.write_event_to_stream(Event(note="after"))
            await ctx.store.set("m", await ctx.store.get("m", default=0) + 1)
            return Done(n=0)

        @step
        async def count(self, ctx: Context, ev: Item) -> None:
            async with ctx.store.edit_state() as state:
                state["items"] = [*state.get("items", []), ev.n]

        @step
        async def end(self, ctx: Context, ev: Done) -> StopEvent:
            store = ctx.store
            return StopEvent(result=(await store.get("n"), await store.get("m"), await store.get("items")))

    flow = Flow()
    payload = await stopped_while_waiting(flow)
    # resumed twice in a row: the second time without anything having happened in between
    handler = resume(flow, payload)
    await waiting(handler)
    payload = saved(handler)
    await handler.cancel_run()
    handler = resume(flow, payload)
    await waiting(handler)
    handler.ctx.send_event(Reply())
    assert [event.note for event in await streamed(handler) if event.get("note")] == ["after"]
    assert await handler == (1, 1, [1, 2])


async def test_waits_of_several_executions_survive_together():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(3)]

        @step(num_workers=1)
        async def ask(self, ctx: Context, ev: Item) -> Done:
            reply = await ctx.wait_for_event(Reply, requirements={"n": ev.n})
            return Done(n=ev.n * 10 + len(reply.text))

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=sorted(one.n for one in done))

    flow = Flow()
    handler = flow.run()
    await waiting(handler, 3)
    handler.ctx.send_event(Reply(n=1, text="xx"))
    await waiting(handler, 2)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(Reply(n=2, text="x"))
    again.ctx.send_event(Reply(n=0, text=""))
    assert await again == [0, 12, 21]


# --- several branches in one step -------------------------------------------------------------------------------------


class Branches(Workflow):
    """One branch waits, the other works and writes meanwhile; later a second wait is answered while the step runs."""

    @step(timeout=5)
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        async def writes() -> None:
            await asyncio.sleep(0.002)
            await ctx.store.set("meanwhile", 1)

        async def waits(side: str) -> str:
            reply = await ctx.wait_for_event(Reply, waiter_id=side, requirements={"side": side})
            await ctx.store.set(side, reply.text)
            return reply.text

        left, right, _ = await asyncio.gather(waits("l"), waits("r"), writes())
        return StopEvent(result=left + right)


async def branches_answered(**options: object):
    handler = Branches(**options).run(run_id="branches")
    await waiting(handler, 2)
    await asyncio.sleep(0.005)
    handler.ctx.send_event(Reply(side="l", text="left "))
    await waiting(handler, 1)
    handler.ctx.send_event(Reply(side="r", text="right"))
    assert await handler == "left right"
    return handler


async def test_a_step_with_two_waits_says_once_that_it_stopped_and_that_it_goes_on():
    handler = await branches_answered()
    states = [e.step_state for e in await streamed(handler, internal=True) if isinstance(e, StepStateChanged)]
    assert states == [StepState.RUNNING, StepState.NOT_RUNNING] * 2


async def test_what_a_branch_writes_while_another_waits_is_recorded():
    journal = Listener()
    await branches_answered(store=journal)
    segments = [record for record in journal.records() if record["kind"] == "segment"]
    assert [path for record in segments for _, path, _ in record.get("writes", ())] == ["meanwhile", "l", "r"]
    assert [record["outcome"][0] for record in segments] == ["waiting", "waiting", "returned"]


async def test_a_second_answer_does_not_set_the_step_timer_twice():
    class Flow(Workflow):
        @step(timeout=0.03)
        async def go(self, ctx: Context, ev: StartEvent) -> Item:
            await asyncio.gather(ctx.wait_for_event(Reply), ctx.wait_for_event(Other))
            return Item(n=1)

        @step
        async def end(self, ev: Item) -> StopEvent:
            await asyncio.sleep(0.06)  # runs on in the task of the step before, past the time that step had left
            return StopEvent(result="not cancelled")

    handler = Flow().run()
    await waiting(handler, 2)
    handler.ctx.send_event(Reply())
    await waiting(handler, 1)
    handler.ctx.send_event(Other())
    assert await handler == "not cancelled"


async def test_a_wait_whose_sibling_branch_failed_leaves_no_task_behind():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def fails() -> None:
                await asyncio.sleep(0.001)
                raise ValueError("sibling")

            await asyncio.gather(ctx.wait_for_event(Reply), fails())
            return StopEvent()

    before = asyncio.all_tasks()
    with pytest.raises(ValueError, match="sibling"):
        await Flow().run()
    await asyncio.sleep(0.002)
    assert asyncio.all_tasks() == before


async def test_a_branch_that_gives_up_a_shared_wait_leaves_it_to_the_others():
    gave_up = asyncio.Event()

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def impatient() -> str:
                try:
                    async with asyncio.timeout(0.002):
                        await ctx.wait_for_event(Reply, waiter_id="shared")
                except TimeoutError:
                    gave_up.set()
                    return "gave up"
                return "stayed"

            async def patient() -> str:
                return (await ctx.wait_for_event(Reply, waiter_id="shared")).text

            return StopEvent(result=await asyncio.gather(impatient(), patient()))

    handler = Flow().run()
    await asyncio.wait_for(gave_up.wait(), 30)
    handler.ctx.send_event(Reply(text="answered"))
    assert await asyncio.wait_for(handler.stop_event_result(), 30)
    assert await handler == ["gave up", "answered"]


async def test_two_answers_sent_at_once_go_to_two_equal_waits_in_order():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            first = await ctx.wait_for_event(Reply)
            second = await ctx.wait_for_event(Reply)
            return StopEvent(result=first.text + second.text)

    handler = Flow(timeout=5).run()
    await waiting(handler)
    handler.ctx.send_event(Reply(text="a"))
    handler.ctx.send_event(Reply(text="b"))
    assert await handler == "ab"


class Early(Event): ...


class Both(Event): ...


class Wanted(Event): ...


class TwoStepsOfOneEvent(Workflow):
    """An event starts two steps: the first sends the event for which the second waits."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Both | Early:
        ctx.send_event(Early())  # the inbox is being emptied when the two steps start
        return Both()

    @step
    async def early(self, ev: Early) -> None: ...

    @step
    async def sends(self, ctx: Context, ev: Both) -> None:
        ctx.send_event(Wanted())

    @step
    async def waits(self, ctx: Context, ev: Both) -> StopEvent:
        await ctx.wait_for_event(Wanted)
        return StopEvent(result="met")


async def test_steps_that_an_event_starts_begin_before_the_next_event_is_delivered():
    assert await TwoStepsOfOneEvent(timeout=5).run() == "met"

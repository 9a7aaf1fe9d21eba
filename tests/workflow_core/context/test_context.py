"""Context: three faces, and what steps do through it."""

import asyncio
import contextvars
import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    ContextStateError,
    Event,
    HumanResponseEvent,
    RetryInfo,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowRuntimeError,
    catch_error,
    earlier,
    step,
)
from batonflow.workflow_core.events import WorkflowFailedEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed, wait_none
from tests.contract import contract
from tests.workflow_core.flows import names, streamed


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class C(Event):
    n: int = 0


class Simple(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.store.get("staged", default=None))


def in_step(use: Callable[[Context], Any], store: str | None = None) -> Workflow:
    """A workflow whose only step calls ``use`` with its context and returns the outcome."""

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = use(ctx)
            return StopEvent(result=await found if asyncio.iscoroutine(found) else found)

    return Flow(disable_validation=True, store=store)


again_at_once = retry_policy(wait=wait_none(), stop=stop_after_attempt(3))


# --- faces ------------------------------------------------------------------------------------------------------------


@contract("5.0")
async def test_a_context_is_generic_and_built_for_a_workflow():
    flow = Simple()
    assert isinstance(Context(flow), Context)
    assert isinstance(Context[Any](flow, None, None), Context)
    assert await flow.run(ctx=Context(flow)) is None


@contract("5.0", "5.t5")
@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.collect_events(A(), [A]),
        lambda ctx: ctx.write_event_to_stream(A()),
        lambda ctx: ctx.retry_info(),
    ],
)
async def test_what_belongs_to_steps_is_refused_elsewhere(use: Callable[[Context], Any]):
    flow = Simple()
    with pytest.raises(ContextStateError, match="requires a running workflow"):
        use(Context(flow))
    handler = flow.run()
    with pytest.raises(ContextStateError, match="only available from within step functions"):
        use(handler.ctx)
    await handler


@contract("5.t5")
@pytest.mark.parametrize("name", ["wait_for_event", "once"])
async def test_asynchronous_members_of_steps_are_refused_elsewhere(name: str):
    flow = Simple()
    arguments = (HumanResponseEvent,) if name == "wait_for_event" else ("key", print)
    with pytest.raises(ContextStateError, match="requires a running workflow"):
        await getattr(Context(flow), name)(*arguments)
    handler = flow.run()
    with pytest.raises(ContextStateError, match="only available from within step functions"):
        await getattr(handler.ctx, name)(*arguments)
    await handler


@contract("5.0", "5.t6")
@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.stream_events(),
        lambda ctx: ctx.running_steps(),
        lambda ctx: ctx.get_result(),
        lambda ctx: ctx.streaming_queue,
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_what_belongs_to_the_handler_is_refused_elsewhere(use: Callable[[Context], Any]):
    async def call(ctx: Context) -> Any:
        found = use(ctx)
        return await found if asyncio.iscoroutine(found) else found

    flow = Simple()
    with pytest.raises(ContextStateError, match="requires a running workflow"):
        await call(Context(flow))
    with pytest.raises(ContextStateError, match="only available from handler code"):
        await in_step(call).run()


@contract("5.t1")
async def test_the_store_is_there_on_every_face():
    flow = Simple()
    ctx = Context(flow)
    await ctx.store.set("staged", "before the run")
    handler = flow.run(ctx=ctx)
    assert await handler == "before the run"
    assert await handler.ctx.store.get("staged") == "before the run"


@contract("5.t1")
async def test_handler_and_step_look_at_the_same_state():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("from_step", 1)
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=await ctx.store.get("from_handler"))

    handler = Flow().run()
    await asyncio.sleep(0)
    assert await handler.ctx.store.get("from_step") == 1
    await handler.ctx.store.set("from_handler", 2)
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == 2


@contract("5.t2")
async def test_is_running_on_each_face(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "_warned", set())
    flow = Simple()
    ctx = Context(flow)
    assert ctx.is_running is False
    handler = flow.run(ctx=ctx)
    assert handler.ctx.is_running is True
    await handler
    assert handler.ctx.is_running is False
    with pytest.warns(DeprecationWarning, match="is_running called from within a step"):
        assert await in_step(lambda ctx: ctx.is_running).run() is True


@contract("5.t2")
async def test_is_running_of_a_snapshot():
    class Waits(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    flow = Waits()
    handler = flow.run()
    await asyncio.sleep(0)
    during = handler.ctx.to_dict()
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    assert Context.from_dict(flow, during).is_running is True
    assert Context.from_dict(flow, handler.ctx.to_dict()).is_running is False


@contract("5.t3", "16.2")
async def test_to_dict_before_the_run_and_from_the_handler_but_not_in_a_step():
    flow = Simple()
    ctx = Context(flow)
    await ctx.store.set("staged", 3)
    before = ctx.to_dict()
    assert before["is_running"] is False
    assert await flow.run(ctx=Context.from_dict(flow, before)) == 3
    handler = flow.run(ctx=ctx)
    assert handler.ctx.to_dict()["is_running"] is True
    await handler
    with pytest.raises(ContextStateError, match="only available from handler code"):
        await in_step(lambda ctx: ctx.to_dict()).run()


@contract("16.2")
async def test_a_snapshot_without_the_state():
    flow = Simple()
    ctx = Context(flow)
    await ctx.store.set("staged", 3)
    assert "3" not in str(ctx.to_dict(include_state=False)["state"])
    bare = Context.from_dict(flow, ctx.to_dict(include_state=False))
    assert await flow.run(ctx=bare) is None


@contract("5.t4")
async def test_send_event_is_refused_before_the_run():
    with pytest.raises(ContextStateError, match=r"send_event\(\) called before workflow started"):
        Context(Simple()).send_event(A())


@contract("5.t6")
async def test_the_handlers_context_streams_and_tells_the_running_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "_warned", set())

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(A(n=1))
            await asyncio.sleep(0.01)
            return StopEvent(result="r")

    handler = Flow().run()
    await asyncio.sleep(0)
    assert await handler.ctx.running_steps() == ["go"]
    assert names([event async for event in handler.ctx.stream_events()]) == [
        "StepStateChanged",
        "A",
        "StepStateChanged",
        "StopEvent",
    ]
    assert await handler.ctx.running_steps() == []
    with pytest.warns(DeprecationWarning, match="get_result"):
        assert handler.ctx.get_result() == "r"
    with pytest.warns(DeprecationWarning, match="streaming_queue"):
        assert handler.ctx.streaming_queue is not None


# --- get_step_context -------------------------------------------------------------------------------------------------


def deep_below(depth: int = 5) -> Context:
    return deep_below(depth - 1) if depth else Context.get_step_context()


@contract("5.2")
async def test_the_context_can_be_found_from_anywhere_below_a_step():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A:
            assert deep_below() is ctx
            assert await asyncio.create_task(asyncio.to_thread(deep_below)) is ctx
            return A()

        @step
        def sync(self, ctx: Context, ev: A) -> B:
            assert deep_below() is ctx
            return B()

        @step
        async def without_parameter(self, ev: B) -> StopEvent:
            deep_below().write_event_to_stream(A(n=7))
            return StopEvent(result="found")

    handler = Flow().run()
    assert [event.n for event in await streamed(handler) if isinstance(event, A)] == [7]
    assert await handler == "found"


@contract("5.2")
async def test_outside_a_step_there_is_none():
    with pytest.raises(WorkflowRuntimeError, match="may only be called from within"):
        Context.get_step_context()
    await Simple().run()
    with pytest.raises(WorkflowRuntimeError, match="may only be called from within"):
        Context.get_step_context()


@contract("5.2")
async def test_concurrent_steps_have_their_own():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(4)]

        @step
        async def work(self, ctx: Context, ev: A) -> B:
            for _ in range(3):
                await asyncio.sleep(0)
                assert Context.get_step_context() is ctx
            return B()

        @step
        async def join(self, done: list[B]) -> StopEvent:
            return StopEvent(result=len(done))

    assert await Flow().run() == 4


@contract("5.2")
async def test_a_task_that_outlives_its_step_pins_neither_run_nor_workflow():
    release = asyncio.Event()

    async def lingers() -> None:
        await release.wait()
        with pytest.raises(WorkflowRuntimeError, match="may only be called from within"):
            Context.get_step_context()

    tasks: list[asyncio.Task[None]] = []

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            tasks.append(asyncio.create_task(lingers()))
            return StopEvent()

    flow = Flow()
    handler = flow.run()
    await handler
    references = [weakref.ref(flow), weakref.ref(handler.ctx.run)]
    del flow, handler
    await asyncio.sleep(0)
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    release.set()
    await tasks[0]


@contract("5.2")
async def test_a_step_context_kept_too_long_says_that_its_run_is_over():
    kept: list[Context] = []
    await in_step(lambda ctx: kept.append(ctx)).run()
    gc.collect()
    with pytest.raises(ContextStateError, match="is over"):
        kept[0].retry_info()


# --- send_event -------------------------------------------------------------------------------------------------------


@contract("5.3")
async def test_the_target_of_a_sent_event_is_checked_at_the_call():
    async def misdirect(ctx: Context) -> list[str]:
        texts: list[str] = []
        for target in ("nowhere", "go"):
            try:
                ctx.send_event(A(), step=target)
            except WorkflowRuntimeError as error:
                texts.append(str(error))
        return texts

    unknown, unfit = await in_step(misdirect).run()
    assert unknown.startswith("Step nowhere does not exist")
    assert unfit.startswith("Step go does not accept event of type <class ")


@contract("5.3")
async def test_an_event_can_be_sent_to_one_of_several_steps():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.send_event(A(), step="second")

        @step
        async def first(self, ev: A) -> StopEvent:
            return StopEvent(result="first")

        @step
        async def second(self, ev: A) -> StopEvent:
            return StopEvent(result="second")

    assert await Flow().run() == "second"


@contract("5.3")
async def test_sent_events_are_delivered_in_order_and_before_the_result():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B:
            for n in range(5):
                assert ctx.send_event(A(n=n)) is None
            return B()

        @step(num_workers=1)
        async def log(self, ctx: Context, ev: A) -> None:
            seen = await ctx.store.get("seen", default=[])
            await ctx.store.set("seen", [*seen, ev.n])

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent:
            return StopEvent(result=await ctx.store.get("seen"))

    assert await Flow().run() == [0, 1, 2, 3, 4]


@contract("5.3")
async def test_a_failed_attempt_takes_nothing_back():
    class Flow(Workflow):
        @step(retry_policy=again_at_once)
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.send_event(A(n=ctx.retry_info().retry_number))
            ctx.write_event_to_stream(B(n=ctx.retry_info().retry_number))
            await ctx.store.set("writes", await ctx.store.get("writes", default=0) + 1)
            if ctx.retry_info().retry_number < 2:
                raise ValueError("again")

        @step
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            found = ctx.collect_events(ev, [A] * 3)
            return StopEvent(result=([e.n for e in found], await ctx.store.get("writes"))) if found else None

    handler = Flow().run()
    assert [event.n for event in await streamed(handler) if isinstance(event, B)] == [0, 1, 2]
    assert await handler == ([0, 1, 2], 3)


@contract("5.3")
async def test_only_events_can_be_sent():
    with pytest.raises(WorkflowRuntimeError, match="takes an Event, got str"):
        await in_step(lambda ctx: ctx.send_event("text")).run()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda ctx: ctx.write_event_to_stream("text"), r"write_event_to_stream\(\) takes an Event, got str"),
        (
            lambda ctx: ctx.collect_events(A(), A),
            r"collect_events\(\) expects a list of Event classes; got .*<class .*A'>",
        ),
        (
            lambda ctx: ctx.collect_events(A(), [A()]),
            r"collect_events\(\) expects a list of Event classes; got A\(n=0\) in it",
        ),
        (lambda ctx: ctx.wait_for_event(A()), r"wait_for_event\(\): event_type= takes the class .*, got A\(n=0\)"),
        (lambda ctx: ctx.wait_for_event(A, timeout="1"), r"wait_for_event\(\): timeout= takes seconds, .*, got '1'"),
        (lambda ctx: ctx.wait_for_event(A, waiter_event="Well?"), r"waiter_event= takes the event .*, got 'Well\?'"),
        (lambda ctx: ctx.wait_for_event(A, requirements=["n"]), r"requirements= takes a dict .*, got \['n'\]"),
        (lambda ctx: ctx.once(3, str), r"once\(\) and effect\(\) take a text as their key, got 3"),
        (lambda ctx: ctx.effect(None, str), r"once\(\) and effect\(\) take a text as their key, got None"),
        (lambda ctx: ctx.store.get(3), "A path in the state is a text such as 'user.name', got 3"),
        (lambda ctx: ctx.store.set(("user", "name"), 4), r"A path in the state is a text .*, got \('user', 'name'\)"),
    ],
)
@pytest.mark.parametrize("store", [None, "memory:"])
async def test_what_cannot_be_meant_is_refused_in_words(use: Callable[[Context], Any], words: str, store: str | None):
    flow = in_step(use, store)
    with pytest.raises((TypeError, WorkflowRuntimeError), match=words):
        await asyncio.wait_for(flow.run(), 30)


@contract("5.4")
async def test_writing_none_to_the_stream_does_nothing():
    handler = in_step(lambda ctx: ctx.write_event_to_stream(None)).run()
    assert names(await streamed(handler)) == ["StopEvent"]


# --- collect_events ---------------------------------------------------------------------------------------------------


def collecting(expected: list[type[Event]], sent: list[Event], *, buffer: str | None = None) -> Workflow:
    """Sends events one after another to a step that collects, and returns what each call gave, as names or None."""

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B | C | None:
            for event in sent:
                ctx.send_event(event)

        @step(num_workers=1)
        async def join(self, ctx: Context, ev: A | B | C) -> StopEvent | None:
            found = ctx.collect_events(ev, expected, buffer_id=buffer)
            outcomes = await ctx.store.get("outcomes", default=[])
            outcomes = [*outcomes, None if found is None else [(type(e).__name__, e.n) for e in found]]
            await ctx.store.set("outcomes", outcomes)
            return StopEvent(result=outcomes) if len(outcomes) == len(sent) else None

    return Flow()


@contract("5.5")
async def test_nothing_until_the_set_is_complete_then_in_the_order_asked_for():
    assert await collecting([A, B], [B(n=1), A(n=2)]).run() == [None, [("A", 2), ("B", 1)]]


@contract("5.5")
async def test_a_type_may_be_expected_several_times():
    assert await collecting([A, B, A], [A(n=1), A(n=2), B(n=3)]).run() == [None, None, [("A", 1), ("B", 3), ("A", 2)]]


@contract("5.5")
async def test_the_buffer_is_empty_after_a_complete_set():
    outcomes = await collecting([A, B], [A(n=1), B(n=1), B(n=2), A(n=2)]).run()
    assert outcomes == [None, [("A", 1), ("B", 1)], None, [("A", 2), ("B", 2)]]


@contract("5.5")
async def test_what_is_not_expected_or_too_much_is_dropped():
    assert await collecting([A, B], [C(n=1), A(n=1), A(n=2), B(n=1)]).run() == [None, None, None, [("A", 1), ("B", 1)]]
    # the second A was dropped, not kept for the next set
    outcomes = await collecting([A, B], [A(n=1), A(n=2), B(n=1), B(n=2), A(n=3)]).run()
    assert outcomes == [None, None, [("A", 1), ("B", 1)], None, [("A", 3), ("B", 2)]]


@contract("5.5")
@pytest.mark.parametrize("apart", [40, 600])
async def test_long_lists_that_differ_in_the_middle_are_different(apart: int):
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> list[A | B]:
            return [*(A() for _ in range(2 * apart)), B()]

        @step(num_workers=1)
        async def gather(self, ctx: Context, ev: A | B) -> StopEvent | None:
            middle = A if isinstance(ev, A) else B
            found = ctx.collect_events(ev, [*[A] * apart, middle, *[A] * apart])
            return StopEvent(result=[type(one) for one in found].index(B)) if found else None

    assert await Flow(timeout=5).run() == apart


async def test_nothing_expected_is_complete_at_once():
    assert await collecting([], [A(n=1)]).run() == [[]]


@contract("5.5")
async def test_buffers_with_ids_are_kept_apart():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in (0, 1, 2, 3):
                ctx.send_event(A(n=n))

        @step(num_workers=1)
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            found = ctx.collect_events(ev, [A, A], buffer_id="odd" if ev.n % 2 else "even")
            pairs = await ctx.store.get("pairs", default=[])
            if found:
                pairs = [*pairs, [e.n for e in found]]
                await ctx.store.set("pairs", pairs)
            return StopEvent(result=pairs) if len(pairs) == 2 else None

    assert await Flow().run() == [[0, 2], [1, 3]]


@contract("5.5")
async def test_workers_of_one_step_share_its_buffer_and_no_code_runs_twice():
    calls: list[int] = []

    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in range(50):
                ctx.send_event(A(n=n))

        @step(num_workers=8)
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            calls.append(ev.n)
            await asyncio.sleep(0)
            found = ctx.collect_events(ev, [A] * 50)
            return StopEvent(result=sorted(e.n for e in found)) if found else None

    assert await Flow().run() == list(range(50))
    assert sorted(calls) == list(range(50))


@contract("5.5")
async def test_a_retry_neither_doubles_nor_loses_what_it_collected():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.send_event(A(n=1))
            ctx.send_event(A(n=2))

        @step(num_workers=1, retry_policy=again_at_once)
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            found = ctx.collect_events(ev, [A, A])
            if ctx.retry_info().retry_number < 2:
                raise ValueError("after collecting")
            return StopEvent(result=[e.n for e in found]) if found else None

    assert await Flow().run() == [1, 2]


@contract("5.5")
async def test_two_steps_that_expect_the_same_do_not_share():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.send_event(A(n=1))
            ctx.send_event(A(n=2))

        @step
        async def one(self, ctx: Context, ev: A) -> B | None:
            found = ctx.collect_events(ev, [A, A])
            return B(n=sum(e.n for e in found)) if found else None

        @step
        async def other(self, ctx: Context, ev: A) -> B | None:
            found = ctx.collect_events(ev, [A, A])
            return B(n=10 * sum(e.n for e in found)) if found else None

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent | None:
            found = ctx.collect_events(ev, [B, B])
            return StopEvent(result=[e.n for e in found]) if found else None

    assert await Flow().run() == [3, 30]


# --- retry_info -------------------------------------------------------------------------------------------------------


@contract("5.7")
async def test_retry_info_tells_of_the_attempts_before():
    seen: list[RetryInfo] = []
    errors = [ValueError("one"), ValueError("two")]

    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(0.005), stop=stop_after_attempt(5)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            info = ctx.retry_info()
            seen.append(info)
            if info.retry_number < 2:
                raise errors[info.retry_number]
            return StopEvent()

    await Flow().run()
    assert seen[0] == RetryInfo(0, 0.0, None, None)
    assert [info.retry_number for info in seen] == [0, 1, 2]
    assert seen[1].last_exception is errors[0]
    assert seen[2].last_exception is errors[1]
    assert seen[2].elapsed_seconds >= seen[1].elapsed_seconds >= 0
    assert seen[1].last_failed_at is not None
    assert seen[2].last_failed_at is not None
    assert seen[2].last_failed_at > seen[1].last_failed_at


@contract("5.1.5")
async def test_a_workflow_run_inside_a_step_shares_nothing():
    class Inner(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(A(n=1))
            seen = await ctx.store.get("outer", default="nothing")
            await ctx.store.set("inner", 1)
            return StopEvent(result=seen)

    class Outer(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("outer", 1)
            seen = await Inner().run()
            return StopEvent(result=(seen, await ctx.store.get("inner", default="nothing")))

    handler = Outer().run()
    assert names(await streamed(handler)) == ["StopEvent"]
    assert await handler == ("nothing", "nothing")


# --- once -------------------------------------------------------------------------------------------------------------


async def test_once_calls_its_function_once_for_all_attempts():
    calls: list[tuple[int, int]] = []

    async def effect(a: int, b: int) -> int:
        calls.append((a, b))
        return a + b

    class Flow(Workflow):
        @step(retry_policy=again_at_once)
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            total = await ctx.once("sum", effect, 2, 3)
            if ctx.retry_info().retry_number < 2:
                raise ValueError("later")
            return StopEvent(result=total)

    assert await Flow().run() == 5
    assert calls == [(2, 3)]


async def test_once_takes_plain_functions_and_other_keys_are_other_calls():
    calls: list[str] = []

    async def use(ctx: Context) -> list[Any]:
        return [await ctx.once(key, lambda key=key: calls.append(key) or key.upper()) for key in ("a", "b", "a")]

    assert await in_step(use).run() == ["A", "B", "A"]
    assert calls == ["a", "b"]


async def test_concurrent_calls_with_one_key_share_one_call():
    calls: list[int] = []

    async def effect() -> int:
        calls.append(1)
        await asyncio.sleep(0.005)
        return len(calls)

    async def use(ctx: Context) -> list[int]:
        return await asyncio.gather(*(ctx.once("key", effect) for _ in range(5)))

    assert await in_step(use).run() == [1] * 5
    assert calls == [1]


async def test_a_raising_function_records_nothing():
    calls: list[int] = []

    async def effect() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("not yet")
        return "at last"

    class Flow(Workflow):
        @step(retry_policy=again_at_once)
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.once("key", effect))

    assert await Flow().run() == "at last"
    assert len(calls) == 3


async def test_when_the_shared_call_fails_another_branch_tries_for_itself():
    calls: list[int] = []

    async def effect() -> str:
        calls.append(1)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise OSError("first")
        return "second"

    async def use(ctx: Context) -> list[Any]:
        found = await asyncio.gather(*(ctx.once("key", effect) for _ in range(3)), return_exceptions=True)
        return [str(one) for one in found]

    assert await in_step(use).run() == ["first", "second", "second"]


async def test_each_delivery_has_its_own_records():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(3)]

        @step
        async def work(self, ctx: Context, ev: A) -> B:
            return B(n=await ctx.once("same key", lambda: ev.n * 10))

        @step
        async def join(self, done: list[B]) -> StopEvent:
            return StopEvent(result=sorted(e.n for e in done))

    assert await Flow().run() == [0, 10, 20]


async def test_once_may_record_none():
    calls: list[int] = []

    async def use(ctx: Context) -> list[Any]:
        return [await ctx.once("key", lambda: calls.append(1)) for _ in range(3)]

    assert await in_step(use).run() == [None, None, None]
    assert calls == [1]


# --- tasks of a step --------------------------------------------------------------------------------------------------


async def test_a_task_started_by_a_step_may_send_while_the_step_runs_and_after():
    release = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | None:
            async def background() -> None:
                ctx.send_event(A(n=1))
                await release.wait()
                ctx.send_event(A(n=2))

            tasks.append(asyncio.create_task(background()))
            await asyncio.sleep(0)

        @step
        async def join(self, ctx: Context, ev: A) -> StopEvent | None:
            release.set()
            found = ctx.collect_events(ev, [A, A])
            return StopEvent(result=[e.n for e in found]) if found else None

    assert await Flow().run() == [1, 2]
    await tasks[0]


async def test_context_variables_of_a_step_do_not_leak_into_the_next():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("leak", default="clean")

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> A:
            variable.set("dirty")
            return A()

        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent(result=variable.get())

    assert await Flow().run() == "clean"
    assert variable.get() == "clean"


async def test_the_failure_of_one_branch_is_seen_and_the_others_are_cancelled():
    cancelled: list[int] = []

    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(3)]

        @step
        async def work(self, ev: A) -> B:
            if ev.n == 1:
                await asyncio.sleep(0)
                raise ValueError("branch 1")
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append(ev.n)
                raise
            return B()

        @step
        async def join(self, done: list[B]) -> StopEvent: ...

    handler = Flow().run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    assert last.step_name == "work"
    with pytest.raises(ValueError, match="branch 1"):
        await handler
    assert sorted(cancelled) == [0, 2]


async def test_repr_says_which_face_it_is():
    flow = Simple()
    assert "not running" in repr(Context(flow))
    assert "step go" in await in_step(repr).run()
    handler = flow.run(run_id="r-9")
    assert "r-9" in repr(handler.ctx)
    await handler


async def test_warnings_of_old_forms_come_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "_warned", set())
    flow = in_step(lambda ctx: ctx.is_running)
    with pytest.warns(DeprecationWarning, match="is_running"):
        await flow.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await flow.run()


async def test_a_handler_of_failures_may_go_on_with_any_event():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> A | StopEvent:
            raise ValueError("boom")

        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent(result=ev.n)

        @catch_error(for_steps=["go"])
        async def repair(self, ev: StepFailedEvent) -> A:
            return A(n=ev.attempts)

    assert await Flow().run() == 1

"""Retries, delays, failures caught by handlers, and resources of steps, as a run shows them."""

import asyncio
import time
from typing import Annotated, Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    Resource,
    StartEvent,
    StepCancelledError,
    StepFailedEvent,
    StepTimeoutError,
    StopEvent,
    Workflow,
    WorkflowTimeoutError,
    catch_error,
    step,
)
from batonflow.workflow_core.events import StepStateChanged, WorkflowFailedEvent, WorkflowIdleEvent
from batonflow.workflow_core.retry_policy import (
    RetryPolicy,
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    wait_fixed,
    wait_none,
    wait_random,
)
from tests.contract import contract
from tests.workflow_core.flows import resume, saved, streamed, until


class Item(Event):
    n: int = 0


class Done(Event):
    n: int = 0


def at_once(attempts: int) -> RetryPolicy:
    return retry_policy(wait=wait_none(), stop=stop_after_attempt(attempts))


class Flaky(Workflow):
    """Fails ``failures`` times."""

    attempts = 3
    failures = 2
    seen: list[int]

    @step(retry_policy=at_once(3))
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        number = ctx.retry_info().retry_number
        if number < self.failures:
            raise ValueError(f"attempt {number}")
        return StopEvent(result=number)


@contract("4.2", "8.5")
async def test_a_step_is_repeated_until_it_succeeds():
    assert await Flaky().run() == 2


@contract("4.2")
async def test_when_the_attempts_are_used_up_the_last_error_is_raised():
    class Never(Flaky):
        failures = 100

    handler = Never().run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    assert last.attempts == 3
    with pytest.raises(ValueError, match="attempt 2"):
        await handler


@contract("4.2")
async def test_an_error_the_policy_does_not_name_is_not_retried():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(retry=retry_if_exception_type(OSError), wait=wait_none()))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            raise ValueError(f"attempt {ctx.retry_info().retry_number}")

    with pytest.raises(ValueError, match="attempt 0"):
        await Flow().run()


@contract("8.5")
async def test_a_delay_holds_no_worker():
    order: list[str] = []

    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> Item | None:
            ctx.send_event(Item(n=1))
            ctx.send_event(Item(n=2))

        @step(num_workers=1, retry_policy=retry_policy(wait=wait_fixed(0.01), stop=stop_after_attempt(2)))
        async def work(self, ctx: Context, ev: Item) -> Done:
            order.append(f"{ev.n}.{ctx.retry_info().retry_number}")
            if ev.n == 1 and ctx.retry_info().retry_number == 0:
                raise ValueError("later")
            return Done(n=ev.n)

        @step
        async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [Done, Done]) else None

    await Flow().run()
    assert order == ["1.0", "2.0", "1.1"]


@contract("8.5", "5.2.2")
async def test_a_delay_survives_a_snapshot_with_its_due_time():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(0.05), stop=stop_after_attempt(3)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            info = ctx.retry_info()
            if info.retry_number == 0:
                raise ValueError("the first")
            return StopEvent(
                result=(info.retry_number, str(info.last_exception), type(info.last_exception), time.time())
            )

    flow = Flow()
    handler = flow.run()
    await until(lambda: saved(handler)["workers"]["go"]["queue"])
    payload = saved(handler)
    await handler.cancel_run()
    [entry] = payload["workers"]["go"]["queue"]
    assert entry["attempts"] == 1
    number, text, cls, at = await resume(flow, payload)
    assert (number, text, cls) == (1, "the first", ValueError)
    assert at >= entry["not_before"] - 0.01
    # long due when restored: goes on at once
    entry["not_before"] -= 1000
    entry["first_attempt_at"] -= 1000
    assert (await resume(flow, payload))[0] == 1


@contract("8.5", "4.5")
async def test_a_run_with_a_pending_retry_is_not_idle():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(0.01), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if not ctx.retry_info().retry_number:
                raise ValueError("later")
            return StopEvent()

    assert not [e for e in await streamed(Flow().run(), internal=True) if isinstance(e, WorkflowIdleEvent)]


@contract("8.5")
async def test_seeded_jitter_repeats_with_the_run_id():
    async def due(run_id: str) -> float:
        class Flow(Workflow):
            @step(retry_policy=retry_policy(wait=wait_random(50, 100), stop=stop_after_attempt(2)))
            async def go(self, ev: StartEvent) -> StopEvent:
                raise ValueError("later")

        handler = Flow().run(run_id=run_id)
        await until(lambda: saved(handler)["workers"]["go"]["queue"])
        [entry] = saved(handler)["workers"]["go"]["queue"]
        await handler.cancel_run()
        return entry["not_before"] - entry["last_failed_at"]

    assert await due("one") == pytest.approx(await due("one"), abs=1e-3)
    assert abs(await due("one") - await due("two")) > 1e-3


@contract("8.5")
async def test_cancelling_a_run_is_no_failure_to_retry():
    attempts: list[int] = []

    class Flow(Workflow):
        @step(retry_policy=at_once(5))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            attempts.append(ctx.retry_info().retry_number)
            await asyncio.sleep(100)
            return StopEvent()

    handler = Flow().run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert attempts == [0]


async def test_states_of_a_failed_attempt_are_shown():
    told = [
        (event.step_state.value, event.output_event_name)
        for event in await streamed(Flaky().run(), internal=True)
        if isinstance(event, StepStateChanged)
    ]
    assert told == [("running", None), ("not_running", None)] * 2 + [("running", None), ("not_running", str(StopEvent))]


# --- cancellation by the step itself, exits ---------------------------------------------------------------------------


async def cancels_itself() -> None:
    task = asyncio.ensure_future(asyncio.sleep(100))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


@contract("8.5")
async def test_a_step_that_raises_cancelled_error_by_itself_fails_the_run():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await cancels_itself()
            return StopEvent()

    with pytest.raises(StepCancelledError, match="Step go raised CancelledError by itself") as raised:
        await Flow().run()
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert await Flaky().run() == 2


async def test_retries_and_handlers_see_a_step_that_cancelled_itself():
    class Retries(Workflow):
        @step(retry_policy=at_once(2))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if not ctx.retry_info().retry_number:
                raise asyncio.CancelledError
            return StopEvent(result=type(ctx.retry_info().last_exception))

    class Catches(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise asyncio.CancelledError

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=type(ev.exception))

    assert await Retries().run() is StepCancelledError
    assert await Catches().run() is StepCancelledError


@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
async def test_exits_fail_the_run_unretried_and_are_raised_by_awaiting(exit_: type[BaseException]):
    attempts: list[int] = []

    class Flow(Workflow):
        @step(retry_policy=at_once(5))
        async def go(self, ev: StartEvent) -> StopEvent:
            attempts.append(1)
            raise exit_("leaving")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result="must not be asked")

    handler = Flow().run()
    with pytest.raises(exit_, match="leaving"):
        await handler
    assert attempts == [1]
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    assert "leaving" in str(last.exception)
    assert await Flaky().run() == 2


# --- timeout of a step ------------------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_a_failure():
    class Flow(Workflow):
        @step(timeout=0.01)
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

    said = r"Step go took longer than its timeout of 0\.01 seconds \(workflow tides, run r-1\)"
    with pytest.raises(StepTimeoutError, match=said) as raised:
        await Flow(workflow_name="tides").run(run_id="r-1")
    assert isinstance(raised.value, TimeoutError)


async def test_the_timeout_is_that_of_each_attempt():
    class Flow(Workflow):
        @step(timeout=0.02, retry_policy=at_once(3))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if ctx.retry_info().retry_number < 2:
                await asyncio.sleep(100)
            return StopEvent(result=type(ctx.retry_info().last_exception))

    assert await Flow().run() is StepTimeoutError


async def test_a_handler_of_failures_sees_a_step_timeout():
    class Flow(Workflow):
        @step(timeout=0.01)
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=type(ev.exception))

    assert await Flow().run() is StepTimeoutError


async def test_waiting_for_events_does_not_count():
    class Flow(Workflow):
        @step(timeout=0.05)
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result="in time")

    handler = Flow().run()
    await asyncio.sleep(0.08)
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == "in time"


async def test_after_the_wait_the_rest_of_the_time_counts_on():
    class Flow(Workflow):
        @step(timeout=0.03)
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            await asyncio.sleep(100)
            return StopEvent()

    handler = Flow().run()
    await asyncio.sleep(0.005)
    handler.ctx.send_event(HumanResponseEvent())
    with pytest.raises(StepTimeoutError):
        await handler


async def test_the_late_result_of_a_sync_step_is_discarded():
    calls: list[int] = []

    class Flow(Workflow):
        @step(timeout=0.5, retry_policy=at_once(2))
        def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            number = len(calls)
            calls.append(number)
            if number == 0:
                time.sleep(0.7)
            return StopEvent(result=number)

    assert await Flow().run() == 1


async def test_a_step_in_time_leaves_no_timer():
    class Flow(Workflow):
        @step(timeout=30)
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=1)

    assert await Flow().run() == 1


# --- handlers of failures ---------------------------------------------------------------------------------------------


@contract("7.2")
async def test_a_handler_runs_after_the_retries():
    class Flow(Workflow):
        @step(retry_policy=at_once(3))
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("boom")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=ev.attempts)

    assert await Flow().run() == 3


@contract("7.3")
async def test_recoveries_are_counted_along_the_lineage():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent | Item) -> Done | StopEvent:
            return Done()

        @step
        async def work(self, ev: Done) -> StopEvent:
            raise ValueError("always")

        @catch_error(for_steps=["work"], max_recoveries=2)
        async def again(self, ctx: Context, ev: StepFailedEvent) -> Item:
            await ctx.store.set("n", await ctx.store.get("n", default=0) + 1)
            return Item()

    handler = Flow().run()
    with pytest.raises(ValueError, match="always"):
        await handler
    assert await handler.ctx.store.get("n") == 2


@contract("7.3")
async def test_each_lineage_has_its_own_count():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(3)]

        @step
        async def work(self, ev: Item) -> Done:
            raise ValueError(f"item {ev.n}")

        @catch_error(max_recoveries=1)
        async def repair(self, ev: StepFailedEvent) -> Done:
            return Done(n=ev.input_event.n)

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=sorted(one.n for one in done))

    assert await Flow().run() == [0, 1, 2]


@contract("7.3", "5.2.2")
async def test_the_count_survives_a_snapshot():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent | Item) -> StopEvent:
            if isinstance(ev, Item):
                await ctx.wait_for_event(HumanResponseEvent)
            raise ValueError("always")

        @catch_error(max_recoveries=1)
        async def again(self, ev: StepFailedEvent) -> Item:
            return Item()

    flow = Flow()
    handler = flow.run()
    await until(lambda: saved(handler)["workers"]["go"]["collected_waiters"])
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    with pytest.raises(ValueError, match="always"):
        await again


@contract("7.4", "7.5")
async def test_a_raising_handler_fails_the_run_and_covers_no_handler():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("first")

        @catch_error(for_steps=["go"])
        async def worse(self, ev: StepFailedEvent) -> StopEvent:
            raise LookupError("second")

        @catch_error
        async def rest(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result="must not be asked")

    handler = Flow().run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    assert last.step_name == "worse"
    with pytest.raises(LookupError, match="second"):
        await handler


@contract("7.5", "4.3")
async def test_timeout_and_cancel_are_not_for_handlers():
    asked: list[StepFailedEvent] = []

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            asked.append(ev)
            return StopEvent()

    with pytest.raises(WorkflowTimeoutError):
        await Flow(timeout=0.01).run()
    handler = Flow().run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert asked == []


# --- resources --------------------------------------------------------------------------------------------------------


@contract("9.4")
async def test_resources_are_made_before_each_execution():
    made: list[int] = []

    def connect() -> int:
        made.append(len(made))
        return made[-1]

    def connect_once() -> int:
        return connect()

    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[Item]:
            return [Item(n=n) for n in range(3)]

        @step(num_workers=1)
        async def work(
            self,
            ev: Item,
            fresh: Annotated[int, Resource(connect, cache=False)],
            kept: Annotated[int, Resource(connect_once)],
        ) -> Done:
            return Done(n=fresh, kept=kept)

        @step
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=([one.n for one in done], {one.kept for one in done}))

    fresh, kept = await Flow().run()
    assert len(set(fresh)) == 3
    assert len(kept) == 1


@contract("9.4")
async def test_the_failure_of_a_factory_is_the_steps_and_is_retried():
    tries: list[int] = []

    async def connect() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no route")
        return "connected"

    class Flow(Workflow):
        @step(retry_policy=at_once(3))
        async def go(self, ctx: Context, ev: StartEvent, link: Annotated[str, Resource(connect)]) -> StopEvent:
            return StopEvent(result=(link, ctx.retry_info().retry_number, str(ctx.retry_info().last_exception)))

    assert await Flow().run() == ("connected", 2, "no route")


@contract("9.4")
async def test_the_failure_of_a_factory_reaches_the_handler_of_failures():
    def broken() -> Any:
        raise OSError("no route")

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, link: Annotated[str, Resource(broken)]) -> StopEvent: ...

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=(ev.step_name, str(ev.exception)))

    assert await Flow().run() == ("go", "no route")


@contract("9.4")
async def test_resources_reach_sync_steps_and_steps_with_everything():
    def number() -> int:
        return 7

    class Flow(Workflow):
        @step
        def go(self, seven: Annotated[int, Resource(number)], ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Item(n=seven))
            return StopEvent(result=seven)

    assert await Flow().run() == 7

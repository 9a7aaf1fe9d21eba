"""How runs end: stop events, timeouts, idling and stalls, and that nothing is left behind."""

import asyncio
import logging
import re
import threading

import pytest

from batonflow.testing import WorkflowTestRunner
from batonflow.workflow_core import (
    Context,
    ContextStateError,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    UnhandledEvent,
    Workflow,
    WorkflowStalledError,
    WorkflowTimedOutEvent,
    WorkflowTimeoutError,
    catch_error,
    step,
)
from batonflow.workflow_core.events import StepState, StepStateChanged, WorkflowIdleEvent, WorkflowStalledEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed, wait_none
from tests.contract import contract
from tests.workflow_core.flows import names, resume, saved, streamed, until


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class C(Event):
    n: int = 0


# --- stop events ------------------------------------------------------------------------------------------------------


@contract("4.1")
async def test_a_returned_stop_event_ends_everything_at_once():
    cleaned: list[str] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | B | None:
            ctx.send_event(A())
            ctx.send_event(B())
            for n in range(5):
                ctx.send_event(C(n=n))

        @step
        async def long(self, ctx: Context, ev: A) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                ctx.write_event_to_stream(A(n=99))
                ctx.send_event(B())
                cleaned.append("long")
                raise

        @step
        async def ends(self, ev: B) -> StopEvent:
            await asyncio.sleep(0.001)
            return StopEvent(result="over")

        @step(num_workers=1)
        async def queues(self, ctx: Context, ev: C) -> C | None:
            await asyncio.sleep(100)

    handler = Flow(disable_validation=True).run()
    assert await handler == "over"
    assert cleaned == ["long"]
    assert names(await streamed(handler)) == ["StopEvent"], "a cancelled step can no longer write to the stream"
    assert saved(handler)["workers"]["queues"]["queue"] == []


@contract("4.1", "4.6")
async def test_a_stop_event_sent_by_hand_does_not_end_the_run():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A:
            ctx.send_event(StopEvent(result="by hand"))
            await asyncio.sleep(0)
            return A()

        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent(result="returned")

    handler = Flow().run()
    shown = await streamed(handler, internal=True)
    assert [event.event_type for event in shown if isinstance(event, UnhandledEvent)] == ["StopEvent"]
    assert await handler == "returned"


@contract("4.1")
async def test_the_handler_may_send_a_stop_event_in_vain():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent | HumanResponseEvent) -> StopEvent | None:
            return StopEvent(result="returned") if isinstance(ev, HumanResponseEvent) else None

    handler = Flow().run()
    handler.ctx.send_event(StopEvent(result="by hand"))
    await asyncio.sleep(0.002)
    assert not handler.is_done()
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == "returned"


@contract("4.1")
async def test_of_two_stop_events_the_first_counts():
    class Flow(Workflow):
        @step
        async def slow(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.01)
            return StopEvent(result="slow")

        @step
        async def quick(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="quick")

    assert await Flow().run() == "quick"


@contract("4.1")
async def test_a_step_that_ignores_its_cancellation_changes_nothing():
    class Flow(Workflow):
        @step
        async def stubborn(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await ctx.store.set("late", True)
            return StopEvent(result="stubborn")

        @step
        async def quick(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.001)
            return StopEvent(result="quick")

    assert await Flow().run() == "quick"


# --- timeouts of the run ----------------------------------------------------------------------------------------------


class Asks(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=reply.get("text"))


@contract("4.3")
async def test_the_timeout_counts_waiting_for_people_too():
    handler = Asks(timeout=0.02).run()
    with pytest.raises(WorkflowTimeoutError, match=r"Operation timed out after 0.02 seconds. No steps active"):
        await handler
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowTimedOutEvent)
    assert last.active_steps == []


@contract("4.3")
async def test_no_timeout_at_all():
    handler = Asks(timeout=None).run()
    await asyncio.sleep(0.002)
    handler.ctx.send_event(HumanResponseEvent(text="ok"))
    assert await handler == "ok"


async def test_the_timeout_can_leave_waiting_out():
    handler = Asks(timeout=0.03, timeout_excludes_waiting=True).run()
    await asyncio.sleep(0.06)
    assert not handler.is_done()
    handler.ctx.send_event(HumanResponseEvent(text="late but fine"))
    assert await handler == "late but fine"


async def test_work_counts_also_when_waiting_does_not():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            await asyncio.sleep(100)
            return StopEvent()

    handler = Flow(timeout=0.03, timeout_excludes_waiting=True).run()
    await asyncio.sleep(0.05)
    handler.ctx.send_event(HumanResponseEvent())
    with pytest.raises(WorkflowTimeoutError, match="Currently active steps: go"):
        await handler


@contract("16.4")
async def test_what_is_left_of_the_timeout_survives_a_resume_without_the_downtime():
    flow = Asks(timeout=30)  # long against the pauses of a busy machine
    handler = flow.run()
    await asyncio.sleep(0.05)
    payload = saved(handler)
    await handler.cancel_run()
    assert 0.04 < payload["elapsed_alive"] < 30
    payload["elapsed_alive"] = 29
    await asyncio.sleep(1.1)
    # the time between is not counted ...
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent(text="in time"))
    assert await again == "in time"
    # ... the time before is
    payload["elapsed_alive"] = 29.99
    started = asyncio.get_running_loop().time()
    with pytest.raises(WorkflowTimeoutError):
        await resume(flow, payload)
    assert asyncio.get_running_loop().time() - started < 20


async def test_a_run_is_unharmed_by_the_timeout_of_another():
    slow, quick = Asks(timeout=0.01).run(), Asks().run()
    with pytest.raises(WorkflowTimeoutError):
        await slow
    quick.ctx.send_event(HumanResponseEvent(text="fine"))
    assert await quick == "fine"


# --- idling and stalls ------------------------------------------------------------------------------------------------


@contract("4.5")
async def test_idle_is_said_once_for_each_quiet_period():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for _ in range(2):
                await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    handler = Flow().run()
    idle = 0
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, WorkflowIdleEvent):
            idle += 1
            handler.ctx.send_event(HumanResponseEvent())
    assert idle == 2


@contract("4.5")
async def test_a_queue_or_a_delayed_retry_is_not_idle():
    class Flow(Workflow):
        @step(num_workers=1, retry_policy=retry_policy(wait=wait_fixed(0.005), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.001)
            if not ctx.retry_info().retry_number:
                raise ValueError("later")
            return StopEvent()

    assert "WorkflowIdleEvent" not in names(await streamed(Flow().run(), internal=True))


@contract("4.6")
async def test_requests_for_input_are_never_unhandled():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent | A | None:
            ctx.send_event(InputRequiredEvent(prefix="?"))
            ctx.send_event(A())

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent()

    handler = Flow(disable_validation=True).run()
    await asyncio.sleep(0.002)
    handler.ctx.send_event(HumanResponseEvent())
    shown = await streamed(handler, internal=True)
    [unhandled] = [event for event in shown if isinstance(event, UnhandledEvent)]
    assert unhandled.event_type == "A"


@contract("4.6")
async def test_an_unhandled_event_says_whether_the_run_was_idle():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> None: ...

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            await asyncio.sleep(0.002)
            return StopEvent()

    handler = Flow(disable_validation=True).run()
    await asyncio.sleep(0.001)
    handler.ctx.send_event(A())
    await asyncio.sleep(0.001)
    handler.ctx.send_event(HumanResponseEvent())
    handler.ctx.send_event(B())
    told = {e.event_type: e.idle for e in await streamed(handler, internal=True) if isinstance(e, UnhandledEvent)}
    assert told == {"A": True, "B": False}


class Lacks(Workflow):
    """Everything that a join can lack."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> A | B | None:
        ctx.send_event(A(n=1))

    @step
    async def collects(self, ctx: Context, ev: A | B) -> StopEvent | None:
        return StopEvent() if ctx.collect_events(ev, [A, B, B], buffer_id="votes") else None

    @step
    async def joins(self, a: A, b: B) -> StopEvent:
        return StopEvent()


@contract("4.4")
async def test_a_run_that_can_no_longer_move_says_what_it_lacks_and_idles_on(caplog: pytest.LogCaptureFixture):
    handler = Lacks().run()
    with caplog.at_level(logging.WARNING, logger="batonflow.workflow_core"):
        await asyncio.sleep(0.005)
    assert not handler.is_done(), "an outside send may still come"
    [record] = caplog.records
    assert "can no longer move" in record.message
    assert "Lacks" in record.message
    assert "step collects (collect_events, buffer 'votes') lacks 2 B" in record.message
    assert "step joins (join) lacks B for 'b'" in record.message
    handler.ctx.send_event(B())
    assert await handler is None
    [stalled] = [event for event in await streamed(handler, internal=True) if isinstance(event, WorkflowStalledEvent)]
    assert len(stalled.waiting_on) == 2


@contract("4.4")
async def test_a_stall_can_be_an_error():
    handler = Lacks(on_stall="raise").run()
    with pytest.raises(WorkflowStalledError, match="lacks 2 B"):
        await handler
    last = (await streamed(handler))[-1]
    assert type(last).__name__ == "WorkflowFailedEvent"


def test_run_sync_without_a_store_and_the_test_runner_raise_on_a_stall():
    with pytest.raises(WorkflowStalledError):
        Lacks().run_sync()
    with pytest.raises(WorkflowStalledError):
        asyncio.run(WorkflowTestRunner(Lacks()).run())
    with pytest.raises(WorkflowTimeoutError):  # told otherwise
        Lacks(on_stall="warn", timeout=0.01).run_sync()


@contract("4.4")
async def test_the_warning_comes_once_per_quiet_period(caplog: pytest.LogCaptureFixture):
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent | A) -> StopEvent | None:
            return StopEvent() if isinstance(ev, A) and ev.n == 2 else None

    handler = Flow(disable_validation=True).run()
    await asyncio.sleep(0.005)
    assert len(caplog.records) == 1
    handler.ctx.send_event(A(n=1))
    await asyncio.sleep(0.005)
    assert len(caplog.records) == 2
    handler.ctx.send_event(A(n=2))
    await handler
    assert len(caplog.records) == 2


async def test_on_stall_is_one_of_three_words():
    with pytest.raises(Exception, match='"warn", "raise" or "wait"'):
        Lacks(on_stall="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["waiter", "human step", "retry", "running"])
async def test_what_may_still_move_is_no_stall(reason: str, caplog: pytest.LogCaptureFixture):
    class Waits(Asks):
        pass

    class HumanStep(Workflow):
        @step
        async def go(self, ev: StartEvent) -> InputRequiredEvent:
            return InputRequiredEvent()

        @step
        async def end(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent()

    class Retries(Workflow):
        @step(retry_policy=retry_policy(wait=wait_fixed(0.02), stop=stop_after_attempt(2)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if not ctx.retry_info().retry_number:
                raise ValueError("later")
            return StopEvent()

    class Runs(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.02)
            return StopEvent()

    flow = {"waiter": Waits, "human step": HumanStep, "retry": Retries, "running": Runs}[reason]
    handler = flow(on_stall="raise").run()
    await asyncio.sleep(0.005)
    assert not handler.is_done()
    if reason in ("waiter", "human step"):
        handler.ctx.send_event(HumanResponseEvent())
    await handler
    assert [record.getMessage() for record in caplog.records if "failed at attempt 1" not in record.getMessage()] == []


async def test_a_restored_run_that_cannot_move_says_so_too(caplog: pytest.LogCaptureFixture):
    flow = Lacks()
    handler = flow.run()
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    caplog.clear()
    again = resume(flow, payload)
    await asyncio.sleep(0.005)
    [record] = caplog.records
    assert re.search("lacks 2 B", record.message)
    again.ctx.send_event(B())
    await again


# --- nothing stays behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "failure", "timeout", "cancel"])
async def test_no_task_and_no_timer_stays_behind(how: str):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(8)]

        @step(num_workers=2, timeout=50, retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(5)))
        async def work(self, ctx: Context, ev: A) -> B | StopEvent:
            if ev.n == 0:
                raise ValueError("to be retried in a minute")
            if ev.n == 1:
                await ctx.wait_for_event(HumanResponseEvent, timeout=70)
            if ev.n == 2 and how == "stop":
                return StopEvent()
            if ev.n == 2 and how == "failure":
                raise SystemExit(3)
            await asyncio.sleep(80)
            return B()

        @step
        async def join(self, done: list[B]) -> StopEvent:
            return StopEvent()

    loop = asyncio.get_running_loop()

    def armed() -> list[str]:
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return [repr(timer) for timer in timers if timer.when() > loop.time() + 20]

    tasks_before = asyncio.all_tasks()
    handler = Flow(timeout=0.5 if how == "timeout" else 90).run()
    if how in ("timeout", "cancel"):
        await until(lambda: len(armed()) >= 3)  # a retry, a wait and the step timeouts
    if how == "cancel":
        await handler.cancel_run()
    try:
        await handler
    except BaseException:  # SystemExit among them
        if how == "stop":
            raise
    assert asyncio.all_tasks() == tasks_before
    assert armed() == []


@contract("2.9")
async def test_every_running_is_followed_by_a_not_running():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=n) for n in range(10)]

        @step(num_workers=3)
        async def work(self, ctx: Context, ev: A) -> B:
            await asyncio.sleep(0)
            if ev.n == 5:
                raise ValueError("caught")
            return B()

        @catch_error
        async def repair(self, ev: StepFailedEvent) -> B:
            return B()

        @step
        async def join(self, done: list[B]) -> StopEvent:
            return StopEvent(result=len(done))

    open_workers: dict[tuple[str, str], int] = {}
    for event in await streamed(Flow().run(), internal=True):
        if isinstance(event, StepStateChanged) and event.step_state is not StepState.PREPARING:
            key = (event.name, event.worker_id)
            change = 1 if event.step_state is StepState.RUNNING else -1
            open_workers[key] = open_workers.get(key, 0) + change
            assert open_workers[key] in (0, 1), key
    assert set(open_workers.values()) == {0}
    assert {worker for name, worker in open_workers if name == "work"} == {"0", "1", "2"}


async def test_sending_to_a_run_that_is_over_is_refused():
    handler = Asks().run()
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    await handler
    with pytest.raises(Exception, match=r"is over.*HumanResponseEvent was not delivered"):
        handler.ctx.send_event(HumanResponseEvent())


async def test_a_long_chain_lets_other_tasks_have_their_turn():
    class Chain(Workflow):
        @step
        async def hop(self, ev: StartEvent | A) -> A | StopEvent:
            n = ev.n if isinstance(ev, A) else 2000
            return A(n=n - 1) if n else StopEvent()

    turns = 0
    handler = Chain().run()

    async def beside() -> None:
        nonlocal turns
        while not handler.is_done():
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(handler.stop_event_result(), beside())
    assert turns > 20


async def test_waiting_for_the_end_from_many_places():
    handler = Asks().run()
    waiting = [asyncio.create_task(handler.stop_event_result()) for _ in range(5)]
    await until(lambda: saved(handler)["workers"]["go"]["collected_waiters"])
    handler.ctx.send_event(HumanResponseEvent(text="all"))
    assert {event.result for event in await asyncio.gather(*waiting)} == {"all"}


async def test_a_thread_that_outlives_its_time_limit_does_not_act_in_the_next_attempt():
    refused: list[str] = []
    goes_on = threading.Event()

    class Late(Event):
        n: int

    class Flow(Workflow):
        @step(timeout=0.5, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        def slow(self, ctx: Context, ev: StartEvent) -> Late | None:
            attempt = ctx.retry_info().retry_number
            if attempt == 0:
                goes_on.wait(30)
                try:
                    ctx.send_event(Late(n=99))
                except ContextStateError as error:
                    refused.append(str(error))
                return None
            return Late(n=attempt)

        @step
        async def take(self, ctx: Context, ev: Late) -> StopEvent:
            goes_on.set()
            await until(lambda: bool(refused))
            return StopEvent(result=ev.n)

    assert await Flow(timeout=60).run() == 1
    assert refused == ["send_event(): this step is over"]

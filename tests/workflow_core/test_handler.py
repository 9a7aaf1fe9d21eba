"""WorkflowHandler: awaiting, sending, cancelling, and what a dropped one leaves running."""

import asyncio
import gc
import warnings
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    RunInterruptedError,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    WorkflowCancelledEvent,
    WorkflowHandler,
    WorkflowRuntimeError,
    earlier,
    step,
)
from batonflow.workflow_core.events import WorkflowFailedEvent
from tests.contract import contract
from tests.workflow_core.flows import names, resume, saved, streamed, until


class Tick(Event):
    n: int


class Ticks(Workflow):
    """Streams three events and ends."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(3):
            ctx.write_event_to_stream(Tick(n=n))
            await asyncio.sleep(0)
        return StopEvent(result="done")


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Tick(n=0))
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("response"))


class Fails(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        raise LookupError("not there")


@contract("6.0")
async def test_a_handler_can_be_awaited_repeatedly():
    handler = Ticks().run()
    assert await handler == "done"
    assert await handler == "done"
    assert (
        await asyncio.gather(handler.stop_event_result(), handler.stop_event_result()) == [handler.get_stop_event()] * 2
    )
    assert not isinstance(handler, asyncio.Future)


@contract("6.0", "4.2")
async def test_a_failed_run_raises_the_very_exception_each_time():
    original = LookupError("not there")

    class Raises(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise original

    handler = Raises().run()
    for _ in range(2):
        with pytest.raises(LookupError) as raised:
            await handler
        assert raised.value is original
    frames = [entry.name for entry in raised.traceback]
    assert "go" in frames


@contract("6.0")
async def test_the_members_before_and_after_the_end():
    handler = Waits().run(run_id="r-1")
    assert isinstance(handler, WorkflowHandler)
    assert handler.run_id == "r-1"
    assert isinstance(handler.ctx, Context)
    assert handler.ctx is handler.ctx
    assert not handler.is_done()
    assert handler.get_stop_event() is None
    await handler.send_event(HumanResponseEvent(response="answered"))
    assert (await handler.stop_event_result()).result == "answered"
    assert handler.is_done()
    stop = handler.get_stop_event()
    assert stop is not None
    assert stop.result == "answered"


@contract("6.0")
async def test_an_event_can_be_sent_to_one_step():
    class Two(Workflow):
        @step
        async def go(self, ev: StartEvent) -> None: ...

        @step
        async def one(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result="one")

        @step
        async def other(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result="other")

    handler = Two(skip_graph_checks={"dead_end"}).run()
    await handler.send_event(HumanResponseEvent(), step="other")
    assert await handler == "other"


@contract("6.0")
async def test_str_shows_workflow_id_and_result():
    handler = Ticks(workflow_name="ticks").run(run_id="r-2")
    assert str(handler) == "WorkflowHandler(workflow=ticks, run_id=r-2, result=None)"
    await handler
    assert str(handler) == "WorkflowHandler(workflow=ticks, run_id=r-2, result=done)"


@contract("6.0")
@pytest.mark.parametrize(("member", "value"), [("done", True), ("exception", None), ("cancelled", False)])
async def test_deprecated_members_warn_once(member: str, value: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "_warned", set())
    handler = Ticks().run()
    await handler
    with pytest.warns(DeprecationWarning, match=member):
        assert getattr(handler, member)() is value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(handler, member)() is value


@contract("6.0")
async def test_the_hard_cancel_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier, "_warned", set())
    handler = Waits().run()
    await asyncio.sleep(0)
    with pytest.warns(DeprecationWarning, match="cancel_run"):
        handler.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:  # as of a task, for programs that catch that
        await handler
    assert isinstance(caught.value.__cause__, WorkflowCancelledByUser)
    with pytest.warns(DeprecationWarning, match="cancelled"):
        assert handler.cancelled()
    with pytest.warns(DeprecationWarning, match="exception"):
        assert isinstance(handler.exception(), WorkflowCancelledByUser)


# --- the stream -------------------------------------------------------------------------------------------------------


@contract("6.1")
async def test_reading_may_begin_after_the_end():
    handler = Ticks().run()
    await handler
    assert names(await streamed(handler)) == ["Tick", "Tick", "Tick", "StopEvent"]


@contract("6.1")
async def test_a_stream_is_read_once():
    handler = Ticks().run()
    await streamed(handler)
    with pytest.raises(WorkflowRuntimeError, match="already been consumed"):
        await streamed(handler)


@contract("6.1")
async def test_breaking_out_and_iterating_again_goes_on():
    handler = Ticks().run()
    async for event in handler.stream_events():
        assert event.n == 0
        break
    assert [getattr(event, "n", "end") for event in await streamed(handler)] == [1, 2, "end"]


@contract("6.1")
async def test_a_second_reader_at_once_is_told():
    handler = Waits().run()
    first = asyncio.create_task(streamed(handler))
    await asyncio.sleep(0.01)
    with pytest.raises(WorkflowRuntimeError, match=r"being read already; use subscribe\(\) for several readers"):
        await streamed(handler)
    await handler.send_event(HumanResponseEvent())
    assert names(await first) == ["Tick", "StopEvent"]


@contract("6.1")
async def test_reading_goes_on_after_a_reader_that_was_cancelled():
    handler = Waits().run()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(streamed(handler), 0.01)
    await handler.send_event(HumanResponseEvent())
    assert names(await streamed(handler)) == ["StopEvent"]


@contract("6.1")
async def test_the_stream_of_a_failing_run_ends_quietly():
    handler = Fails().run()
    [last] = await streamed(handler)
    assert isinstance(last, WorkflowFailedEvent)
    with pytest.raises(LookupError):
        await handler


@contract("6.1")
async def test_events_arrive_while_the_run_goes_on():
    handler = Waits().run()
    seen: list[str] = []
    async for event in handler.stream_events():
        seen.append(type(event).__name__)
        if isinstance(event, Tick):
            assert not handler.is_done()
            handler.ctx.send_event(HumanResponseEvent())
    assert seen == ["Tick", "StopEvent"]


# --- dropping and cancelling ------------------------------------------------------------------------------------------


@contract("6.2")
async def test_a_dropped_handler_does_not_stop_its_run():
    ended = asyncio.Event()

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.01)
            ended.set()
            return StopEvent()

    Flow().run()
    gc.collect()
    await asyncio.wait_for(ended.wait(), 30)


@contract("6.2")
async def test_cancelling_reaches_the_running_steps_and_the_stream():
    cancelled: list[str] = []

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append("go")
                raise
            return StopEvent()

    handler = Flow().run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert cancelled == ["go"]
    assert handler.is_done()
    assert names(await streamed(handler)) == ["WorkflowCancelledEvent"]
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert isinstance(handler.get_stop_event(), WorkflowCancelledEvent)


@contract("6.2")
@pytest.mark.parametrize("workflow", [Ticks, Fails])
async def test_cancelling_a_run_that_is_over_does_nothing(workflow: type[Workflow]):
    handler = workflow().run()
    events = await streamed(handler)
    await handler.cancel_run()
    await handler.cancel_run()
    assert handler.get_stop_event() is events[-1]


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("method", ["cancel_run", "interrupt"])
async def test_a_run_is_ended_from_another_loop(method: str, store: str | None):
    cleaned: list[str] = []

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0.02)
                cleaned.append("up")
            return StopEvent()

    handler = Flow(store=store).run()
    await handler.started()
    await asyncio.sleep(0.01)
    end: Any = getattr(handler, method)
    await asyncio.to_thread(lambda: asyncio.run(end()))
    assert (handler.is_done(), cleaned) == (True, ["up"])
    with pytest.raises((WorkflowCancelledByUser, RunInterruptedError)):
        await handler


async def test_a_second_reading_of_the_stream_may_ask_for_more():
    handler = Ticks().run()
    async for _ in handler.stream_events():
        break
    rest = names([event async for event in handler.stream_events(expose_internal=True)])
    assert rest[-1] == "StopEvent"
    assert "StepStateChanged" in rest
    await handler


@contract("6.2")
async def test_cancelling_before_the_first_step_has_begun():
    handler = Waits().run()
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler


@contract("6.2")
async def test_a_step_that_refuses_to_die_does_not_hold_up_the_cancel(caplog: pytest.LogCaptureFixture):
    release = asyncio.Event()

    class Stubborn(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await release.wait()
            return StopEvent()

    handler = Stubborn().run()
    await asyncio.sleep(0)
    await handler.cancel_run(timeout=0.01)
    assert "did not end within 0.01 seconds" in caplog.text
    release.set()
    with pytest.raises(WorkflowCancelledByUser):
        await handler


@contract("6.2", "5.2.3")
async def test_a_cancelled_run_can_be_resumed():
    flow = Waits()
    handler = flow.run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    payload = saved(handler)
    assert payload["is_running"] is True
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent(response="late"))
    assert await again == "late"


async def test_a_cancelled_run_can_go_on_with_its_own_context():
    flow = Waits()
    handler = flow.run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    again = flow.run(ctx=handler.ctx)
    again.ctx.send_event(HumanResponseEvent(response="late"))
    assert await again == "late"


async def test_cancelling_leaves_no_task_behind():
    class Busy(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> Tick | None:
            for n in range(20):
                ctx.send_event(Tick(n=n))

        @step(num_workers=3)
        async def work(self, ctx: Context, ev: Tick) -> StopEvent | None:
            if ev.n % 2:
                await ctx.wait_for_event(HumanResponseEvent)
            await asyncio.sleep(100)

    before = asyncio.all_tasks()
    handler = Busy().run()
    await asyncio.sleep(0.01)
    await handler.cancel_run()
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}


async def test_an_awaiting_task_that_is_cancelled_does_not_cancel_the_run():
    handler = Waits().run()

    async def wait() -> Any:
        return await handler

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    handler.ctx.send_event(HumanResponseEvent(response="still there"))
    assert await handler == "still there"


async def test_a_run_can_be_given_up_by_whoever_awaits_it():
    handler = Waits().run()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(handler.stop_event_result(), 0.01)
    assert not handler.is_done()
    await handler.cancel_run()


async def test_a_run_that_waits_does_not_keep_anything_busy():
    handler = Waits().run()
    await until(lambda: saved(handler)["workers"]["go"]["collected_waiters"])
    assert await handler.ctx.running_steps() == []
    handler.ctx.send_event(HumanResponseEvent())
    await handler


# --- failures that nobody asks for ------------------------------------------------------------------------------------


class FailsAlone(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0)
        raise ValueError("nobody listens")


@pytest.mark.parametrize("drop", ["while it runs", "after its end"])
async def test_a_failed_run_whose_handler_is_dropped_is_logged(drop: str, caplog: pytest.LogCaptureFixture):
    handler = FailsAlone(timeout=5).run(run_id="lonely")
    if drop == "after its end":
        await streamed(handler)
    del handler
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [record.message for record in caplog.records] == [
        f"{FailsAlone.__module__}.FailsAlone (run lonely) failed, and its result was not awaited"
    ]
    assert "nobody listens" in caplog.text


async def test_a_failed_run_that_was_awaited_or_cancelled_is_not_logged(caplog: pytest.LogCaptureFixture):
    with pytest.raises(ValueError, match="nobody listens"):
        await FailsAlone(timeout=5).run()
    handler = FailsAlone(timeout=5).run()
    await handler.cancel_run()
    del handler
    gc.collect()
    assert caplog.records == []

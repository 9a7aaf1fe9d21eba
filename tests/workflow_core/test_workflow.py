"""Workflow: how it is built, what it says about itself, and how runs are started."""

import asyncio
import gc
import io
import logging
import pickle
import threading
import weakref
from contextlib import redirect_stdout
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from batonflow.workflow_core import (
    Context,
    ContextStateError,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    JsonSerializer,
    Resource,
    ResourceManager,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    WorkflowValidationError,
    catch_error,
    step,
)
from batonflow.workflow_core.context import PickleSerializer
from batonflow.workflow_core.errors import NoRunningLoopError
from batonflow.workflow_core.events import StepStateChanged
from batonflow.workflow_core.plugins import BasicRuntime, basic_runtime, get_current_runtime
from tests.contract import contract
from tests.workflow_core.flows import resume, saved, streamed, until


class Ask(StartEvent):
    topic: str
    times: int = 1


class Other(StartEvent):
    pass


class Found(Event):
    text: str = ""


class Report(StopEvent):
    text: str = ""


class Hello(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"hello {ev.get('name')}")


class Search(Workflow):
    @step
    async def find(self, ev: Ask) -> Found:
        return Found(text=ev.topic * ev.times)

    @step
    async def report(self, ev: Found) -> Report:
        return Report(text=ev.text)


class Slow(Workflow):
    """Ends when it is told to."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("begun", True)
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("response"))


# --- construction -----------------------------------------------------------------------------------------------------


@contract("1.0")
def test_every_option_has_a_default_and_the_timeout_is_45_seconds():
    assert Hello().timeout_seconds == 45.0
    assert Hello(None).timeout_seconds is None
    assert isinstance(Hello().run_resources, ResourceManager)
    manager = ResourceManager()
    assert Hello(12.5, True, False, manager, 2, None, "named").run_resources is manager


@contract("1.1", "10.2")
def test_a_workflow_without_a_start_step_cannot_be_built():
    class NoStart(Workflow):
        @step
        async def end(self, ev: Found) -> StopEvent: ...

    with pytest.raises(
        WorkflowConfigurationError, match="At least one Event of type StartEvent must be received by any step"
    ):
        NoStart()
    with pytest.raises(WorkflowConfigurationError, match="NoStart"):
        NoStart(disable_validation=True)


@contract("1.1", "10.2")
def test_a_workflow_without_an_end_cannot_be_built():
    class NoStop(Workflow):
        @step
        async def go(self, ev: StartEvent) -> None: ...

    with pytest.raises(
        WorkflowConfigurationError, match="At least one Event of type StopEvent must be returned by any step"
    ):
        NoStop()


@contract("1.1")
def test_the_start_is_looked_at_first():
    class Neither(Workflow):
        @step
        async def go(self, ev: Found) -> None: ...

    with pytest.raises(WorkflowConfigurationError, match="StartEvent"):
        Neither()


@contract("1.1", "10.2")
def test_one_class_of_start_and_one_of_stop():
    class TwoStarts(Workflow):
        @step
        async def one(self, ev: Ask) -> StopEvent: ...
        @step
        async def two(self, ev: Other) -> StopEvent: ...

    class TwoStops(Workflow):
        @step
        async def one(self, ev: StartEvent) -> StopEvent | Report: ...

    with pytest.raises(
        WorkflowConfigurationError, match="Only one type of StartEvent is allowed per workflow, found 2: Ask, Other"
    ):
        TwoStarts()
    with pytest.raises(WorkflowConfigurationError, match="Only one type of StopEvent is allowed per workflow, found 2"):
        TwoStops(disable_validation=True)


@contract("1.2")
@pytest.mark.parametrize("wrong", [True, 0, -1, 1.5, "3"])
def test_the_number_of_concurrent_runs_is_a_positive_integer(wrong: Any):
    with pytest.raises(WorkflowValidationError, match="num_concurrent_runs must be an integer greater than 0"):
        Hello(num_concurrent_runs=wrong)


@pytest.mark.parametrize("wrong", ["45", True, -1, float("nan"), [45]])
def test_the_timeout_is_a_number_of_seconds(wrong: Any):
    with pytest.raises(WorkflowValidationError, match="timeout must be a number of seconds, or None to wait"):
        Hello(timeout=wrong)


async def test_the_context_of_a_run_is_one():
    wrong: Any = "ctx"
    with pytest.raises(TypeError, match=r"ctx must be a Context, such as Context\(workflow\), not 'ctx'"):
        Hello().run(wrong)


@contract("1.2")
async def test_surplus_runs_wait_for_their_turn():
    flow = Slow(num_concurrent_runs=1)
    first, second = flow.run(), flow.run()
    await until(lambda: first.ctx.is_running)
    await asyncio.sleep(0.01)
    assert await first.ctx.store.get("begun", default=False)
    assert not await second.ctx.store.get("begun", default=False)
    first.ctx.send_event(HumanResponseEvent(response=1))
    assert await first == 1
    await until(lambda: second.ctx.is_running)
    second.ctx.send_event(HumanResponseEvent(response=2))
    assert await second == 2


@contract("1.2")
async def test_the_timeout_of_a_waiting_run_has_not_begun():
    class Sleeps(Workflow):
        @step
        async def nap(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.4)
            return StopEvent(result="rested")

    flow = Sleeps(num_concurrent_runs=1, timeout=1.1)
    assert await asyncio.gather(flow.run(), flow.run(), flow.run()) == ["rested"] * 3


@contract("1.2")
async def test_a_waiting_run_can_be_cancelled_and_leaves_the_turn_to_the_next():
    flow = Slow(num_concurrent_runs=1)
    first, second, third = flow.run(), flow.run(), flow.run()
    await second.cancel_run()
    with pytest.raises(Exception, match="cancelled"):
        await second
    first.ctx.send_event(HumanResponseEvent(response=1))
    await first
    await until(lambda: third.ctx.is_running)
    third.ctx.send_event(HumanResponseEvent(response=3))
    assert await third == 3


@contract("1.2")
async def test_the_limit_is_that_of_one_instance():
    one, other = Slow(num_concurrent_runs=1), Slow(num_concurrent_runs=1)
    handlers = [one.run(), other.run()]
    await until(lambda: all(handler.ctx.is_running for handler in handlers))
    for handler in handlers:
        handler.ctx.send_event(HumanResponseEvent(response=1))
        await handler


@contract("1.3")
def test_only_known_graph_checks_can_be_skipped():
    with pytest.raises(WorkflowValidationError, match="Unknown graph check names"):
        Hello(skip_graph_checks={"spelling"})  # type: ignore[arg-type]
    Hello(skip_graph_checks={"reachability", "terminal_event", "dead_end"})


@contract("1.4")
def test_a_workflow_tells_its_events_and_its_name():
    flow = Search()
    assert flow.start_event_class is Ask
    assert flow.stop_event_class is Report
    assert set(flow.events) == {Ask, Found, Report}
    assert flow.workflow_name == f"{Search.__module__}.Search"
    assert Search(workflow_name="finder").workflow_name == "finder"


@contract("1.4", "15.1", "15.2")
async def test_a_workflow_lives_in_a_runtime():
    assert Hello().runtime is get_current_runtime() is basic_runtime
    own = BasicRuntime()
    flow = Hello(runtime=own)
    assert flow.runtime is own
    assert isinstance(own, BasicRuntime)
    assert await flow.run(name="Ann") == "hello Ann"

    # a run id is taken within one runtime only
    class Held(Slow):
        pass

    here, there = Held(runtime=own).run(run_id="same"), Held().run(run_id="same")
    for handler in (here, there):
        await until(lambda handler=handler: handler.ctx.is_running)
        handler.ctx.send_event(HumanResponseEvent(response=1))
        assert await handler == 1


# --- steps ------------------------------------------------------------------------------------------------------------


@contract("1.5")
async def test_a_free_function_can_be_added():
    class Flow(Workflow):
        pass

    async def go(ev: StartEvent) -> StopEvent:
        return StopEvent(result="added")

    with pytest.raises(WorkflowValidationError, match="Step function go is missing the `@step` decorator"):
        Flow.add_step(go)
    step(workflow=Flow)(go)
    assert await Flow().run() == "added"
    with pytest.raises(WorkflowValidationError, match="already part of this workflow"):
        Flow.add_step(go)


@contract("1.5")
def test_free_functions_are_not_inherited():
    class Base(Workflow):
        pass

    @step(workflow=Base)
    async def go(ev: StartEvent) -> StopEvent: ...

    class Derived(Base):
        pass

    Base()
    with pytest.raises(WorkflowConfigurationError, match="StartEvent must be received"):
        Derived()


@contract("1.5")
async def test_a_step_added_after_a_run_is_checked_and_used():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="before")

    flow = Flow()
    assert await flow.run() == "before"

    @step(workflow=Flow)
    async def nobody_makes_this(ev: Found) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="consumed but never produced"):
        flow.run()


@contract("1.6")
async def test_method_steps_are_inherited_and_can_be_overridden():
    class Base(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Found:
            return Found(text="base")

        @step
        async def end(self, ev: Found) -> StopEvent:
            return StopEvent(result=ev.text)

    class Derived(Base):
        @step
        async def go(self, ev: StartEvent) -> Found:
            return Found(text="derived")

    class Dropped(Base):
        async def go(self, ev: StartEvent) -> Found:
            return Found(text="no step any more")

    assert await Base().run() == "base"
    assert await Derived().run() == "derived"
    with pytest.raises(WorkflowConfigurationError, match="StartEvent must be received"):
        Dropped()


async def test_a_step_can_stand_in_for_an_inherited_one_under_another_name():
    class Base(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="base")

    class Derived(Base):
        @step(replaces="go")
        async def go_better(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="better")

    assert await Derived().run() == "better"


# --- garbage ----------------------------------------------------------------------------------------------------------


async def freed(*references: "weakref.ref[Any]") -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    return all(reference() is None for reference in references)


@contract("1.7")
async def test_workflow_context_and_run_are_freed_after_the_run():
    flow, ctx = Hello(), None
    ctx = Context(flow)
    handler = flow.run(ctx=ctx, name="Ann")
    assert await handler == "hello Ann"
    references = [weakref.ref(flow), weakref.ref(ctx), weakref.ref(handler), weakref.ref(ctx.run)]
    del flow, ctx, handler
    assert await freed(*references)


@contract("1.7")
async def test_a_timer_that_a_step_left_behind_does_not_keep_the_workflow():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            loop = asyncio.get_running_loop()
            timers.append(loop.call_later(3600, print, "never"))
            return StopEvent()

    timers: list[asyncio.TimerHandle] = []
    flow = Flow()
    await flow.run()
    reference = weakref.ref(flow)
    del flow
    assert await freed(reference)
    timers[0].cancel()


@contract("1.7")
@pytest.mark.parametrize("how", ["failed", "timed out", "cancelled"])
async def test_a_workflow_is_freed_however_its_run_ended(how: str):
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if how == "failed":
                raise ValueError("on purpose")
            await ctx.wait_for_event(HumanResponseEvent, timeout=1000)
            return StopEvent()

    flow = Flow(timeout=0.02 if how == "timed out" else 100)
    handler = flow.run()
    if how == "cancelled":
        await asyncio.sleep(0)
        await handler.cancel_run()
    with pytest.raises(Exception, match=r"purpose|timed out|cancelled"):
        await handler
    reference = weakref.ref(flow)
    del flow, handler
    assert await freed(reference)


@contract("1.7")
async def test_an_unhashable_workflow_runs_and_runs_key_on_identity():
    class Equal(Slow):
        def __eq__(self, other: object) -> bool:
            return True

    with pytest.raises(TypeError):
        hash(Equal())
    one, other = Equal(num_concurrent_runs=1), Equal(num_concurrent_runs=1)
    handlers = [one.run(), other.run()]
    await until(lambda: all(handler.ctx.is_running for handler in handlers))
    for n, handler in enumerate(handlers):
        handler.ctx.send_event(HumanResponseEvent(response=n))
        assert await handler == n


class Unsendable:
    """Pickles, but is no JSON."""

    def __init__(self, word: str) -> None:
        self.word = word


@contract("1.7", "5.2.6")
async def test_a_context_can_be_written_with_pickle():
    flow = Hello(serializer=PickleSerializer())
    ctx = Context(flow)
    await ctx.store.set("thing", Unsendable("kept"))
    await flow.run(ctx=ctx)
    payload = pickle.loads(pickle.dumps(ctx.to_dict()))
    again = Context.from_dict(flow, payload)
    assert (await again.store.get("thing")).word == "kept"


# --- run --------------------------------------------------------------------------------------------------------------


@contract("1.8", "17.t7")
async def test_keyword_arguments_build_the_start_event():
    assert (await Search().run(topic="tide", times=2)).text == "tidetide"
    with pytest.raises(WorkflowRuntimeError, match=r"type Ask: topic: Field required\. Give run\(\) .* topic=\.\.\.$"):
        Search().run(times=2)
    with pytest.raises(WorkflowRuntimeError, match="Failed creating a start event of type"):
        Search().run(topic="tide", times="many")


@contract("1.8")
async def test_a_start_event_can_be_given(caplog: pytest.LogCaptureFixture):
    assert (await Search().run(start_event=Ask(topic="given"))).text == "given"
    with pytest.raises(ValueError, match="must be an instance of 'StartEvent'"):
        Search().run(start_event=Found())  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, logger="batonflow.workflow_core"):
        assert (await Search().run(start_event=Ask(topic="given"), topic="ignored")).text == "given"
    assert "topic" in caplog.text


@contract("1.8")
def test_run_needs_a_loop_and_says_what_does_not():
    with pytest.raises(NoRunningLoopError, match="run_sync"):
        Hello().run()
    assert issubclass(NoRunningLoopError, RuntimeError)


@contract("1.8")
async def test_run_is_a_plain_call_that_starts_at_once():
    handler = Hello().run(name="Ann")
    assert not handler.is_done()
    assert await handler == "hello Ann"


@contract("1.8")
async def test_a_restored_run_is_sent_no_start_event():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: Ask) -> StopEvent:
            answer = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=(ev.topic, answer.response))

    flow = Flow()
    handler = flow.run(topic="first")
    await asyncio.sleep(0)
    payload = saved(handler)
    await handler.cancel_run()
    # neither is the required field missed, nor is the given one looked at
    again = flow.run(ctx=Context.from_dict(flow, payload), topic="second")
    again.ctx.send_event(HumanResponseEvent(response="ok"))
    assert await again == ("first", "ok")


@contract("1.8")
async def test_a_context_whose_run_goes_on_cannot_be_used_again():
    flow = Slow()
    handler = flow.run()
    with pytest.raises(ContextStateError, match="already running"):
        flow.run(ctx=handler.ctx)
    handler.ctx.send_event(HumanResponseEvent())
    await handler


@contract("1.8")
async def test_a_finished_context_keeps_its_state_and_nothing_else():
    class Counts(Workflow):
        @step
        async def count(self, ctx: Context, ev: StartEvent) -> Found:
            await ctx.store.set("n", await ctx.store.get("n", default=0) + 1)
            return Found()

        @step
        async def pairs(self, ctx: Context, ev: Found) -> StopEvent:
            kept = ctx.collect_events(ev, [Found, Found])
            return StopEvent(result=(await ctx.store.get("n"), kept))

    flow = Counts()
    ctx = Context(flow)
    first = flow.run(ctx=ctx)
    assert await first == (1, None)
    second = flow.run(ctx=ctx)
    assert await second == (2, None)
    assert second.run_id != first.run_id


async def test_a_snapshot_of_a_run_that_still_waits_goes_on_under_an_id_of_its_own():
    flow = Slow()
    first = flow.run()
    await until(lambda: bool(first.ctx.to_dict()["is_running"]))
    saved = first.ctx.to_dict()
    runs = [flow.run(ctx=Context.from_dict(flow, saved)) for _ in range(2)]
    assert len({first.run_id, *(run.run_id for run in runs)}) == 3
    for number, run in enumerate([first, *runs]):
        run.ctx.send_event(HumanResponseEvent(response=str(number)))
    assert [await run for run in (first, *runs)] == ["0", "1", "2"]
    again = flow.run(ctx=Context.from_dict(flow, saved))
    assert again.run_id == first.run_id
    again.ctx.send_event(HumanResponseEvent(response="again"))
    assert await again == "again"


async def test_but_not_one_whose_effects_are_known_by_its_id():
    class Known(Slow):
        __batonflow_id_matters__ = True

    flow = Known()
    first = flow.run()
    await until(lambda: bool(first.ctx.to_dict()["is_running"]))
    with pytest.raises(RuntimeError, match="already exists"):
        flow.run(ctx=Context.from_dict(flow, first.ctx.to_dict()))
    first.ctx.send_event(HumanResponseEvent(response="on"))
    assert await first == "on"


@contract("1.9")
async def test_a_run_id_in_use_is_refused():
    flow = Slow()
    handler = flow.run(run_id="tides-1")
    assert handler.run_id == "tides-1"
    with pytest.raises(RuntimeError, match="already exists"):
        flow.run(run_id="tides-1")
    handler.ctx.send_event(HumanResponseEvent(response="on"))
    assert await handler == "on"
    again = flow.run(run_id="tides-1")
    again.ctx.send_event(HumanResponseEvent(response="free again"))
    assert await again == "free again"


@contract("1.9")
async def test_the_default_id_is_ten_letters_and_digits():
    ids = {Hello().run().run_id for _ in range(20)}
    await asyncio.sleep(0.01)
    assert len(ids) == 20
    assert all(len(run_id) == 10 and run_id.isalnum() for run_id in ids)


# --- validate ---------------------------------------------------------------------------------------------------------


@contract("1.10")
async def test_validate_always_looks_again():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    flow = Flow(disable_validation=True)
    assert flow.validate() is False

    @step(workflow=Flow)
    async def lost(ev: Found) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="consumed but never produced: Found"):
        flow.validate()


@contract("1.10")
def test_validate_says_whether_a_human_is_in_the_loop():
    class Asks(Workflow):
        @step
        async def go(self, ev: StartEvent) -> InputRequiredEvent | StopEvent: ...

    class Hears(Workflow):
        @step
        async def go(self, ev: StartEvent | HumanResponseEvent) -> StopEvent: ...

    assert Hello().validate() is False
    assert Asks().validate() is True
    assert Hears().validate() is True


@contract("1.10")
def test_validate_can_build_every_resource():
    made: list[str] = []

    async def connect() -> str:
        made.append("connected")
        return "connection"

    def broken() -> str:
        raise OSError("no route to host")

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, link: Annotated[str, Resource(connect)]) -> StopEvent: ...

    class Bad(Workflow):
        @step
        async def go(self, ev: StartEvent, link: Annotated[str, Resource(broken)]) -> StopEvent: ...

    Flow().validate()
    assert made == []
    Flow().validate(validate_resources=True)
    assert made == ["connected"]
    with pytest.raises(WorkflowValidationError, match=r"(?s)step 'go', parameter 'link'.*no route to host"):
        Bad().validate(validate_resources=True)


@contract("1.10")
async def test_an_unsound_workflow_does_not_run():
    class Lost(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Found | StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="produced but never consumed: Found"):
        Lost().run()


# --- verbose ----------------------------------------------------------------------------------------------------------


@contract("1.11")
async def test_verbose_prints_steps_and_result():
    out = io.StringIO()
    with redirect_stdout(out):
        await Search(verbose=True).run(topic="tide")
    lines = out.getvalue().splitlines()
    assert lines[0] == "[find:0] started from Ask"
    assert lines[1].startswith("[find:0] complete with Found")
    assert lines[-1].startswith("[result] Report")


@contract("1.11")
async def test_verbose_lines_go_to_the_logger_when_it_is_switched_on(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    with caplog.at_level(logging.INFO, logger="workflows.verbose"):
        await Hello(verbose=True).run(name="Ann")
    assert "[greet:0] started from StartEvent" in caplog.messages
    assert capsys.readouterr().out == ""


@contract("1.11")
async def test_a_quiet_workflow_prints_nothing(capsys: pytest.CaptureFixture[str]):
    await Hello().run(name="Ann")
    assert capsys.readouterr().out == ""


# --- serializer -------------------------------------------------------------------------------------------------------


class Kept(BaseModel):
    word: str = ""


@contract("16.1")
async def test_a_workflow_has_a_serializer_of_its_own():
    own = JsonSerializer(allowed_types=[Kept])
    flow = Hello(serializer=own)
    assert flow.serializer is own
    ctx = Context(flow)
    await ctx.store.set("kept", Kept(word="yes"))
    again = Context.from_dict(flow, ctx.to_dict())
    assert (await again.store.get("kept")).word == "yes"


@contract("16.1", "16.5")
async def test_the_default_serializer_knows_the_declared_types():
    class Inner(Event):
        word: str

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Inner:
            return Inner(word="x")

        @step
        async def wait(self, ctx: Context, ev: Inner) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=ev.word)

    flow = Flow()
    handler = flow.run()
    await until(lambda: saved(handler)["workers"]["wait"]["collected_waiters"])
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    assert await again == "x"


# --- run_sync ---------------------------------------------------------------------------------------------------------


def test_run_sync_gives_the_result_without_any_loop():
    assert Hello().run_sync(name="Ann") == "hello Ann"


async def test_run_sync_works_under_a_running_loop():
    assert await asyncio.to_thread(Hello().run_sync, name="Ann") == "hello Ann"
    assert Hello().run_sync(name="Bob") == "hello Bob"


def test_run_sync_raises_what_the_run_raises():
    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        Fails().run_sync()
    with pytest.raises(WorkflowRuntimeError, match="Failed creating"):
        Search().run_sync()


def test_run_sync_uses_one_thread_for_all_runs():
    class Where(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=threading.current_thread().name)

    assert Where().run_sync() == Where().run_sync() == "batonflow-sync-0"


def test_run_sync_inside_a_step_of_run_sync_has_a_loop_of_its_own():
    class Inside(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=Hello().run_sync(name="Ann"))

    assert Inside().run_sync() == Hello().run_sync(name="Ann")


def test_run_sync_of_an_attached_workflow_on_the_loop_of_its_parent_names_the_remedy():
    class Inside(Workflow):
        @step
        async def go(self, ev: StartEvent, child: Hello) -> StopEvent:
            return StopEvent(result=child.run_sync(name="Ann"))

    with pytest.raises(RuntimeError, match=r"await run\(\) instead"):
        Inside(workflows={"child": Hello()}).run_sync()


def test_a_synchronous_step_runs_an_attached_workflow_as_a_part_of_its_run():
    class Inside(Workflow):
        @step
        def go(self, ev: StartEvent, child: Hello) -> StopEvent:
            return StopEvent(result=(child.run_sync(name="Ann"), child.last_run_state.run_id))

    result, run_id = Inside(workflows={"child": Hello()}).run_sync(run_id="outer")
    assert result == Hello().run_sync(name="Ann")
    assert run_id.startswith("outer/")


@contract("4.3")
async def test_the_timeout_is_told_in_seconds_with_the_active_steps():
    class Hangs(Workflow):
        @step
        async def first(self, ev: StartEvent) -> Found | StopEvent:
            return Found()

        @step
        async def zzz(self, ev: Found) -> None:
            await asyncio.sleep(100)

        @step
        async def aaa(self, ev: Found) -> None:
            await asyncio.sleep(100)

    with pytest.raises(
        WorkflowTimeoutError, match=r"Operation timed out after 0.02 seconds. Currently active steps: aaa, zzz"
    ):
        await Hangs(timeout=0.02).run()


@contract("16.6")
async def test_handlers_of_failures_work_with_validation_switched_off():
    class Careful(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise ValueError("boom")

        @catch_error
        async def note(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result="caught")

    assert await Careful(disable_validation=True).run() == "caught"


async def test_subclasses_may_have_slots_and_attributes_of_their_own():
    class Slotted(Hello):
        __slots__ = ("extra",)

        def __init__(self) -> None:
            super().__init__()
            self.extra = "own"

    flow = Slotted()
    assert await flow.run(name="Ann") == "hello Ann"
    assert flow.extra == "own"


async def test_many_runs_of_one_instance_do_not_disturb_one_another():
    class Counts(Workflow):
        @step(num_workers=1)
        async def go(self, ctx: Context, ev: StartEvent) -> Found:
            await ctx.store.set("n", ev.n)
            await asyncio.sleep(0)
            return Found()

        @step
        async def end(self, ctx: Context, ev: Found) -> StopEvent:
            return StopEvent(result=await ctx.store.get("n"))

    flow = Counts()
    assert await asyncio.gather(*(flow.run(n=n) for n in range(50))) == list(range(50))


async def test_the_steps_that_ran_are_told_in_order():
    told = await streamed(Search().run(topic="a"), internal=True)
    assert [event.name for event in told if isinstance(event, StepStateChanged)] == ["find", "find", "report", "report"]

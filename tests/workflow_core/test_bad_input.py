"""What users do wrong: every message says what was wrong, and the next run is unharmed."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest

from batonflow import AgentWorkflow, FunctionAgent
from batonflow.workflow_core import (
    Cardinality,
    Collect,
    Context,
    ContextSerdeError,
    Event,
    HumanResponseEvent,
    RunLostError,
    SQLiteStore,
    StartEvent,
    StepCancelledError,
    StopEvent,
    Workflow,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowValidationError,
    step,
)
from batonflow.workflow_core.errors import NoRunningLoopError, StoreError, WorkflowStalledError, WorkflowTimeoutError
from batonflow.workflow_core.events import UnhandledEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import streamed, until


class Start(StartEvent):
    n: int = 0


class Item(Event):
    n: int = 0


class Stray(Event):
    pass


class Opaque:
    pass


class Flow(Workflow):
    """Does what its start event says, right or wrong."""

    @step
    async def go(self, ctx: Context, ev: Start) -> Item | list[Item] | StopEvent | None:
        what = ev.get("what")
        if what == "cancel":
            raise asyncio.CancelledError
        if what == "exit":
            raise SystemExit("told to")
        if what == "list":
            return [Item(n=1), 7]  # type: ignore[list-item]
        if what == "text":
            return "text"  # type: ignore[return-value]
        if what == "unknown":
            ctx.send_event(Stray())
            await asyncio.sleep(0)
        if what == "opaque":
            await ctx.store.set("thing", Opaque())
        if what == "stop by hand":
            ctx.send_event(StopEvent(result="by hand"))
            await asyncio.sleep(0)
        if what == "wait":
            await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=ev.n)

    @step
    async def take(self, ev: Item) -> None: ...


async def unharmed(flow: Workflow) -> None:
    """A run that follows a bad one is as good as ever."""
    assert await flow.run(n=5) == 5


async def test_a_wrong_signature():
    with pytest.raises(
        WorkflowValidationError, match=r"at least one parameter annotated as type Event: .*Bad.go lacks it"
    ):

        class Bad(Workflow):
            @step
            async def go(self, ev: int) -> StopEvent: ...

    await unharmed(Flow())


async def test_an_unknown_event_is_told_and_ignored():
    flow = Flow()
    shown = await streamed(flow.run(what="unknown"), internal=True)
    assert [event.event_type for event in shown if isinstance(event, UnhandledEvent)] == ["Stray"]
    await unharmed(flow)


async def test_wrong_types_in_the_arguments_of_run():
    flow = Flow(num_concurrent_runs=1)
    with pytest.raises(WorkflowRuntimeError, match=r"(?s)Failed creating a start event of type Start.*n.*integer"):
        flow.run(n="many")
    await unharmed(flow)


async def test_state_that_is_no_json():
    flow = Flow()
    handler = flow.run(what="opaque")
    await handler
    with pytest.raises(ValueError, match=r"State key 'thing' holds a Opaque.*pydantic model, or use PickleSerializer"):
        handler.ctx.to_dict()
    await unharmed(flow)


@pytest.mark.parametrize(
    "payload",
    [
        [],
        "text",
        {"a": 1},
        {"version": "two"},
        {"version": True},
        {"version": 2, "is_running": True, "workers": "none"},
        {"version": 2, "is_running": True, "workers": {"go": {"queue": [{"event": "no json"}]}}},
        {"version": 2, "is_running": True, "workers": {"go": {"queue": [{"event": "3"}]}}},
        {"version": 2, "is_running": True, "workers": {"go": {"queue": [{}]}}},
        {"version": 2, "is_running": True, "workers": {"go": {"collected_waiters": [{"waiting_for_event": "x.Y"}]}}},
        {"version": 2, "workers": {}, "state": {"state_data": 3}},
        {"version": 2, "workers": {}, "state": {"state_data": {"_data": {"k": "{"}}}},
        {
            "version": 2,
            "workers": {},
            "state": {"state_data": '{"__is_pydantic": true, "value": {}, "qualified_name": "os.x"}'},
        },
        {"version": 1, "workers": [1, 2]},
        {"version": 0, "queues": {"go": "not json"}, "is_running": True},
        {"version": 2, "workers": {"go": 3}},
        {"version": 2, "workers": {}, "streams": {"1": {"source_step": "go"}}},
        {"version": 2, "workers": {"go": {"in_progress": [{"event": None, "progress": {}}]}}},
    ],
)
async def test_a_corrupt_or_foreign_snapshot(payload: Any):
    flow = Flow()
    with pytest.raises(ContextSerdeError):
        Context.from_dict(flow, payload)
    await unharmed(flow)


async def test_a_snapshot_of_a_newer_version():
    with pytest.raises(ContextSerdeError, match=r"version 3, this library reads up to 2.*newer version"):
        Context.from_dict(Flow(), {"version": 3, "workers": {}})


async def test_a_step_that_raises_cancelled_error():
    flow = Flow()
    with pytest.raises(StepCancelledError, match="Step go raised CancelledError by itself"):
        await flow.run(what="cancel")
    await unharmed(flow)


async def test_a_step_that_raises_system_exit():
    flow = Flow(num_concurrent_runs=1)
    with pytest.raises(SystemExit, match="told to"):
        await flow.run(what="exit")
    await unharmed(flow)


async def test_a_list_with_something_that_is_no_event():
    flow = Flow()
    with pytest.raises(WorkflowRuntimeError, match="Step function go returned a list whose member 1 is int"):
        await flow.run(what="list")
    await unharmed(flow)


async def test_a_result_that_is_no_event():
    flow = Flow()
    with pytest.raises(WorkflowRuntimeError, match="Step function go returned str instead of an Event instance"):
        await flow.run(what="text")
    await unharmed(flow)


async def test_two_children_of_one_name():
    flow = Flow(workflows={"child": Flow()})
    with pytest.raises(WorkflowValidationError, match="A workflow named 'child' is already attached to Flow"):
        flow.add_workflows(child=Flow())
    await unharmed(flow)


async def test_a_stop_event_sent_by_hand():
    flow = Flow()
    shown = await streamed(flow.run(what="stop by hand", n=3), internal=True)
    assert [event.event_type for event in shown if isinstance(event, UnhandledEvent)] == ["StopEvent"]
    await unharmed(flow)


async def test_sending_to_a_finished_run():
    flow = Flow()
    handler = flow.run(n=1)
    await handler
    with pytest.raises(WorkflowRuntimeError, match=r"Run .* is over, .*Item was not delivered. Start a new run"):
        await handler.send_event(Item())
    await unharmed(flow)


def test_awaiting_from_another_loop_or_thread():
    flow = Flow()
    here = asyncio.new_event_loop()
    errors: list[BaseException] = []

    async def start() -> Any:
        return flow.run(what="wait", n=4)

    async def wait(handler: Any) -> None:
        try:
            await handler
        except WorkflowRuntimeError as error:
            errors.append(error)

    handler = here.run_until_complete(start())
    thread = threading.Thread(target=lambda: asyncio.run(wait(handler)))
    thread.start()
    thread.join()
    asyncio.run(wait(handler))
    assert len(errors) == 2
    assert all("belongs to another event loop" in str(error) and "run_sync()" in str(error) for error in errors)

    async def finish() -> Any:
        await until(lambda: handler.ctx.to_dict()["workers"]["go"]["collected_waiters"])
        handler.ctx.send_event(HumanResponseEvent())
        return await handler

    assert here.run_until_complete(finish()) == 4
    here.close()


async def test_sending_from_another_thread_works():
    flow = Flow()
    handler = flow.run(what="wait", n=4)
    await until(lambda: handler.ctx.to_dict()["workers"]["go"]["collected_waiters"])
    await asyncio.to_thread(handler.ctx.send_event, HumanResponseEvent())
    assert await handler == 4


def test_run_without_a_loop():
    flow = Flow()
    with pytest.raises(NoRunningLoopError, match=r"Flow.run\(\) needs a running event loop: .*run_sync\(\)"):
        flow.run()
    assert flow.run_sync(n=5) == 5


async def test_a_handler_dropped_while_its_run_goes_on():
    done = asyncio.Event()

    class Slow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.005)
            done.set()
            return StopEvent(result=ev.get("n"))

    flow = Slow()
    flow.run()
    gc.collect()
    await asyncio.wait_for(done.wait(), 30)
    await unharmed(flow)


def test_a_loop_that_is_closed_during_a_run_leaves_the_id_free():
    flow = Flow()

    async def start() -> None:
        flow.run(run_id="left behind", what="wait")
        await asyncio.sleep(0.001)

    asyncio.run(start())
    asyncio.run(start())
    assert flow.run_sync(n=5) == 5


async def test_a_start_event_of_another_class():
    with pytest.raises(ValueError, match="must be an instance of 'StartEvent', got Item"):
        Flow().run(start_event=Item())  # type: ignore[arg-type]


async def test_run_step_without_stepwise():
    handler = Flow().run(n=1)
    with pytest.raises(WorkflowRuntimeError, match=r"run\(stepwise=True\)"):
        await handler.run_step()
    assert await handler == 1


async def test_a_start_event_that_cannot_be_recorded():
    flow = Flow(store="memory:")
    with pytest.raises(StoreError, match=r"Start cannot be recorded: .*Opaque cannot be written as JSON; keep it"):
        await flow.run(run_id="bad", thing=Opaque())
    await unharmed(flow)
    assert await flow.run(run_id="bad", n=6) == 6


# --- what ends a process must not end the loop that others share ------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_step_that_exits_gives_run_sync_back_to_its_caller(error: BaseException) -> None:
    class Exits(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            if ev.exits:
                raise error
            return StopEvent(result="alive")

    with pytest.raises(type(error)):
        Exits(timeout=5).run_sync(exits=True)
    assert Exits(timeout=5).run_sync(exits=False) == "alive"


async def test_a_sync_step_that_raises_stop_iteration_fails_at_once() -> None:
    class Empty(Workflow):
        @step
        def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=next(iter([])))

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await Empty(timeout=5).run()


async def test_a_timeout_names_what_the_run_was_waiting_for() -> None:
    class Asks(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    with pytest.raises(WorkflowTimeoutError, match="No steps active; waiting: ask for HumanResponseEvent"):
        await Asks(timeout=0.05).run()


async def test_a_stall_names_the_event_that_nobody_takes() -> None:
    class Stray(Event): ...

    class Wrong(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return Stray()  # type: ignore[return-value]

    with pytest.raises(WorkflowStalledError, match="the last event that no step takes was Stray"):
        await Wrong(on_stall="raise").run()


def test_attributes_of_the_user_may_have_everyday_names() -> None:
    class Own(Workflow):
        def __init__(self) -> None:
            super().__init__()
            self.store = self.observer = self.last_state = self.state_type = self.resource_manager = "mine"

        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self.store)

    assert Own().run_sync() == "mine"


@pytest.mark.parametrize("awaits", [True, False])
async def test_a_step_that_raises_what_closes_generators_fails_the_run(awaits: bool) -> None:
    class Closing(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            if awaits:
                await asyncio.sleep(0)
            raise GeneratorExit

    with pytest.raises(WorkflowRuntimeError, match="Step begin raised GeneratorExit by itself"):
        await asyncio.wait_for(Closing(timeout=None).run(), 30)


class TestMistakesOfAnAuthor:
    def test_a_constructor_that_does_not_call_its_base(self) -> None:
        class Forgets(Workflow):
            def __init__(self) -> None:
                self.name = "x"

            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        with pytest.raises(WorkflowRuntimeError, match=r"Forgets.__init__\(\) did not call super\(\).__init__\(\)"):
            Forgets().run_sync()

    @pytest.mark.parametrize(
        "use", [lambda made: made.run("Go."), lambda made: made.name, lambda made: AgentWorkflow(agents=[made])]
    )
    def test_an_agent_whose_constructor_does_not_call_its_base(self, use: Callable[[Any], Any]) -> None:
        class Forgets(FunctionAgent):
            def __init__(self, **options: Any) -> None:
                pass

        said = r"Forgets.__init__\(\) did not call super\(\).__init__\(\): .* with the options of FunctionAgent"
        with pytest.raises(WorkflowRuntimeError, match=said):
            use(Forgets())

    def test_an_agent_that_is_changed_before_its_base_is_called(self) -> None:
        class Hurries(FunctionAgent):
            def __init__(self, **options: Any) -> None:
                self.name = "tides"
                super().__init__(**options)

        with pytest.raises(WorkflowRuntimeError, match=r"Hurries.__init__\(\) did not call super\(\).__init__\(\)"):
            Hurries()

    async def test_a_team_whose_constructor_does_not_call_its_base(self) -> None:
        class Forgets(AgentWorkflow):
            def __init__(self) -> None:
                pass

        with pytest.raises(WorkflowRuntimeError, match=r"Forgets.__init__\(\) .* with the options of AgentWorkflow"):
            Forgets().run("Go.")

    @pytest.mark.parametrize("base", [Event, StartEvent, StopEvent])
    @pytest.mark.parametrize(
        "use", [lambda event: event.port, lambda event: event["port"], lambda event: setattr(event, "port", 1), repr]
    )
    def test_an_event_whose_constructor_does_not_call_its_base(
        self, base: type[Event], use: Callable[[Any], Any]
    ) -> None:
        class Forgets(base):
            port: str = ""

            def __init__(self) -> None:
                pass

        said = r"Forgets.__init__\(\) did not call super\(\).__init__\(\): call it first, with the fields of the event"
        with pytest.raises(AttributeError, match=said):
            use(Forgets())

    def test_a_workflow_without_steps(self) -> None:
        class Undecorated(Workflow):
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        with pytest.raises(WorkflowConfigurationError, match="Undecorated has no steps: decorate"):
            Undecorated()

    def test_a_missing_field_of_the_start_event(self) -> None:
        class Greeting(StartEvent):
            name: str
            times: int

        class Greets(Workflow):
            @step
            async def go(self, ev: Greeting) -> StopEvent:
                return StopEvent()

        with pytest.raises(WorkflowRuntimeError, match=r"name: Field required.* name=\.\.\., times=\.\.\."):
            Greets().run_sync()

    @pytest.mark.parametrize("name", ["items", "keys", "values", "get", "to_dict"])
    def test_dynamic_data_that_a_method_hides(self, name: str) -> None:
        class Own(StartEvent):
            pass

        with pytest.warns(UserWarning, match=rf"Own.{name} is a method.*ev\['{name}'\]"):
            event = Own(**{name: [1]})
        assert event[name] == [1]
        Own(**{name: [2]})  # said once

    def test_a_rule_of_completeness_that_the_engine_does_not_know(self) -> None:
        class Most(Cardinality):
            pass

        with pytest.raises(WorkflowValidationError, match=r"unknown cardinality .*use All\(\) or Take\(n\)"):

            @step
            async def join(ev: Annotated[list[Event], Collect(Most())]) -> StopEvent:
                return StopEvent()


def test_the_first_of_several_ends_at_once_is_the_result() -> None:
    class Part(Event):
        n: int

    class Fan(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[Part]:
            return [Part(n=n) for n in range(ev.parts)]

        @step(num_workers=16)
        async def work(self, ev: Part) -> StopEvent:
            return StopEvent(result=ev.n)

    for parts in (1, 2, 4, 16, 40):
        assert Fan().run_sync(parts=parts) == 0


def test_a_typed_result_shows_its_fields() -> None:
    class Report(StopEvent):
        pages: int

    assert (str(Report(pages=3)), str(Report(pages=3, result="text"))) == ("Report(pages=3)", "text")
    assert (str(StopEvent(result=4)), str(StopEvent())) == ("4", "None")


async def test_the_time_of_the_last_failure_has_a_time_zone() -> None:
    class Retries(Workflow):
        @step(retry_policy=retry_policy(stop=stop_after_attempt(2), wait=wait_none()))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            info = ctx.retry_info()
            if info.retry_number == 0:
                assert info.last_failed_at is None
                raise LookupError
            return StopEvent(result=info.last_failed_at)

    before = datetime.now(UTC)
    assert before <= await Retries().run() <= datetime.now(UTC)


async def test_a_run_that_is_deleted_while_it_goes_on_says_so(tmp_path: Path) -> None:
    class Works(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await deleted.wait()
            await ctx.store.set("a", 1)
            return StopEvent()

    deleted = asyncio.Event()
    store = SQLiteStore(tmp_path / "runs.db")
    handler = Works(store=store).run(run_id="r")
    await handler.started()
    await store.delete("r", force=True)
    deleted.set()
    with pytest.raises(RunLostError, match="was deleted, or another process took it over"):
        await handler


@pytest.mark.skipif(os.name != "posix", reason="mounts are for POSIX")
@pytest.mark.parametrize("there", [False, True])
def test_a_store_on_a_file_system_that_is_mounted_for_reading(tmp_path: Path, there: bool) -> None:
    if there:
        SQLiteStore(tmp_path / "runs.db")
    program = f"""
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18
        where = {str(tmp_path)!r}.encode()
        if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) \\
                or libc.mount(where, where, None, MS_BIND, None) \\
                or libc.mount(None, where, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None):
            sys.exit("cannot mount")
        from batonflow import StartEvent, StopEvent, Workflow, step

        class Plain(Workflow):
            @step
            async def go(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

        try:
            Plain(store={str(tmp_path / "runs.db")!r}).run_sync(run_id="r")
        except Exception as error:
            print(type(error).__name__, error)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    if "cannot mount" in ended.stderr:
        pytest.skip("this user may not mount file systems")
    assert ended.stdout.startswith("StoreError The database")
    assert "mounted read-only" in ended.stdout


class Order(StartEvent):
    sku: str
    boxes: int = 1


class Ship(Workflow):
    @step
    async def ship(self, ev: Order) -> StopEvent:
        return StopEvent(result=[ev.sku, ev.boxes, dict(ev.items())])


async def test_a_misspelt_field_that_is_missed():
    with pytest.raises(WorkflowRuntimeError, match=r"sku: Field required; Order has no field 'skuu'\. Did you mean"):
        Ship().run(skuu="a-1")


async def test_a_misspelt_field_that_is_not_missed(caplog: pytest.LogCaptureFixture):
    assert await Ship().run(sku="a-1", boxs=2) == ["a-1", 1, {"boxs": 2}]
    assert [record.message for record in caplog.records] == [
        "run() keeps data beside the fields of the start event: Order has no field 'boxs'. Did you mean 'boxes'?"
    ]


async def test_data_beside_the_fields_of_a_start_event_is_kept(caplog: pytest.LogCaptureFixture):
    assert await Ship().run(sku="a-1", colour="red") == ["a-1", 1, {"colour": "red"}]
    assert caplog.records == []

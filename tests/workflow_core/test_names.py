"""The names of a workflow's attributes, methods and steps are the user's: none is mistaken for the engine's own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batonflow.draw.representation import get_workflow_representation
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.errors import WorkflowTimeoutError, WorkflowValidationError

CONTRACT = {"run", "trace_tags", "validate", "add_step", "run_sync", "add_workflows"}
CALLED = {"run", "trace_tags"}
"""What the engine calls by its name."""

# Some that the engine went by once.
ONCE = {
    "_check_start_and_stop", "_class_table", "_entry", "_find_state_type", "_free_steps", "_options", "_parent",
    "_start_event", "_store_for", "_table_cache", "_the_one", "check_target", "launch_run", "new_run",
    "on_parent_stop", "prepare_run", "run_ended", "run_handler_class", "run_observer", "stall_raises",
    "timeout_leaves_out_waiting", "upcaster",
}  # fmt: skip
MEMBERS = {name for name in dir(Workflow) if not name.startswith("__")}
NAMES = sorted((MEMBERS | ONCE) - CONTRACT)
NUMBERS = {"_timeout": 5.5, "_num_concurrent_runs": 3}
"""Options under names of their own: what is set there has to be one."""


class Said(Event):
    text: str


class Asked(Event):
    pass


def with_attribute(name: str, value: Any) -> type[Workflow]:
    class Keeps(Workflow):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            setattr(self, name, value)

        @step
        async def answer(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(Said(text="streamed"))
            await ctx.store.set("seen", True)
            return StopEvent(result=getattr(self, name))

    return Keeps


def with_class_attribute(name: str) -> type[Workflow]:
    async def answer(self: Any, ev: StartEvent) -> StopEvent:
        return StopEvent(result=getattr(self, name))

    answer.__qualname__ = "Keeps.answer"
    return type("Keeps", (Workflow,), {"answer": step(answer), name: "mine"})


def with_method(name: str) -> type[Workflow]:
    async def answer(self: Any, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await getattr(self, name)("mi"))

    async def method(self: Any, text: str) -> str:
        return f"{text}ne"

    answer.__qualname__ = "Calls.answer"
    return type("Calls", (Workflow,), {"answer": step(answer), name: method})


def with_step(name: str) -> type[Workflow]:
    async def begin(self: Any, ev: StartEvent) -> Asked:
        return Asked()

    async def named(self: Any, ctx: Context, ev: Asked) -> StopEvent:
        ctx.write_event_to_stream(Said(text="streamed"))
        return StopEvent(result="mine")

    begin.__qualname__ = "Steps.begin"
    named.__name__, named.__qualname__ = name, f"Steps.{name}"
    return type("Steps", (Workflow,), {"begin": step(begin), name: step(named)})


async def result_of(workflow: Workflow) -> Any:
    """What a run of a workflow gives, with all that can be asked of one."""
    handler = workflow.run()
    streamed = [event async for event in handler.stream_events()]
    result = await asyncio.wait_for(handler, 30)
    assert isinstance(streamed[-1], StopEvent)
    assert type(workflow).__name__ in str(handler)
    assert handler.ctx is not None
    assert Context.from_dict(workflow, handler.ctx.to_dict()) is not None
    assert get_workflow_representation(workflow).name
    return result


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("name", NAMES)
async def test_an_attribute_may_have_any_name(name: str, store: str | None) -> None:
    mine = NUMBERS.get(name, "mine")
    flow = with_attribute(name, mine)(store=store)
    assert getattr(flow, name) == mine
    assert await result_of(flow) == mine
    assert await result_of(flow) == mine


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("name", NAMES)
async def test_an_attribute_of_the_class_may_have_any_name(name: str, store: str | None) -> None:
    assert await result_of(with_class_attribute(name)(store=store)) == "mine"


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("name", sorted({*NAMES, *CONTRACT} - CALLED))
async def test_a_method_may_have_any_name(name: str, store: str | None) -> None:
    assert await result_of(with_method(name)(store=store)) == "mine"


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("name", sorted({*NAMES, *CONTRACT} - CALLED))
async def test_a_step_may_have_any_name(name: str, store: str | None) -> None:
    flow = with_step(name)(store=store, verbose=True)
    assert await result_of(flow) == "mine"


@pytest.mark.parametrize("name", sorted({*NAMES, *CONTRACT} - CALLED))
async def test_an_attached_workflow_may_have_any_name(name: str) -> None:
    class Outer(Workflow):
        def __init__(self, inner: Workflow, **options: Any) -> None:
            super().__init__(workflows={"inner": inner}, **options)
            self.inner = inner

        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[await self.inner.run(), await self.inner.run()])

    assert await result_of(Outer(with_step(name)(), store="memory:")) == ["mine", "mine"]
    assert await result_of(Outer(with_method(name)(num_concurrent_runs=1))) == ["mine", "mine"]


@pytest.mark.parametrize("name", sorted(CALLED))
def test_a_step_with_the_name_of_what_the_engine_calls_is_refused(name: str) -> None:
    with pytest.raises(
        WorkflowValidationError, match=rf"Steps has a step called {name}, which hides .*: call the step otherwise"
    ):
        with_step(name)


@pytest.mark.parametrize("make", [with_method, with_class_attribute])
def test_what_only_has_the_name_of_a_hook_is_refused(make: Callable[[str], type[Workflow]]) -> None:
    with pytest.raises(WorkflowValidationError, match=r"s\.trace_tags is a method that .*: call yours otherwise"):
        make("trace_tags")


@pytest.mark.parametrize("name", NUMBERS)
def test_an_option_by_its_old_name_takes_what_the_option_takes(name: str) -> None:
    with pytest.raises(WorkflowValidationError, match=rf"Keeps\.{name} is the option .*'mine': call an attribute of"):
        with_attribute(name, "mine")()


class Slow(Workflow):
    """Takes longer than its runs may, and notes how many of them there are."""

    most = active = 0

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        Slow.active += 1
        Slow.most = max(Slow.most, Slow.active)
        try:
            await asyncio.sleep(0.1 if ev.get("short") else 5)
        finally:
            Slow.active -= 1
        return StopEvent()


async def test_options_are_read_and_set_under_the_names_that_llamaindex_has() -> None:
    flow = Slow(timeout=9, num_concurrent_runs=2, verbose=True, disable_validation=True)
    assert [flow._timeout, flow._num_concurrent_runs, flow._verbose, flow._disable_validation] == [9, 2, True, True]
    flow._timeout, flow._num_concurrent_runs, flow._verbose = 0.05, None, False
    assert [flow.timeout_seconds, flow._num_concurrent_runs, flow._verbose] == [0.05, None, False]
    with pytest.raises(WorkflowTimeoutError):
        await flow.run()
    flow._timeout, flow._num_concurrent_runs = 9, 1
    Slow.most = 0
    await asyncio.gather(*(flow.run(short=True) for _ in range(3)))
    assert Slow.most == 1
    flow._timeout, Slow.most = None, 0
    runs = [flow.run(short=True) for _ in range(4)]
    flow._num_concurrent_runs = None
    await asyncio.gather(*runs)
    assert Slow.most == 3, "who waits for a turn begins when one that had it has ended"


async def test_validation_may_be_left_out_later_and_verbose_is_said_at_construction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Unsound(with_step("b")):
        @step
        async def never(self, ev: Said) -> None: ...

    flow = Unsound()
    with pytest.raises(WorkflowValidationError):
        flow._validate()
    flow._disable_validation = True
    assert flow._validate() is False
    assert await flow.run() == "mine"
    assert not capsys.readouterr().out
    flow._verbose = True  # many a subclass keeps an option of its own there
    assert await flow.run() == "mine"
    assert not capsys.readouterr().out
    assert flow._verbose is True


def test_the_steps_are_given_bound_by_their_names() -> None:
    flow = with_step("b")()
    steps = flow._get_steps()
    assert list(steps) == ["begin", "b"]
    assert steps["b"].__self__ is flow
    assert flow._step_functions == {}


def test_an_option_set_before_the_workflow_is_made_gives_way_to_the_one_it_is_made_with() -> None:
    class Early(with_step("b")):
        def __init__(self) -> None:
            assert not hasattr(self, "_timeout")
            self._timeout = 3
            assert self._timeout == 3
            super().__init__(timeout=7)

    assert Early()._timeout == 7


async def test_a_class_that_keeps_its_subclasses_from_the_workflow_has_their_steps() -> None:
    class Base(with_step("b"), entry=[Asked]):
        def __init_subclass__(cls, **kwargs: Any) -> None: ...

    class Derived(Base):
        @step
        async def b(self, ev: Asked) -> StopEvent:
            return StopEvent(result="derived")

    assert await Base().run() == "mine"
    assert await Derived().run() == "derived"
    assert Derived().entry_events == (Asked,)

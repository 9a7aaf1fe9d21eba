"""@step and @catch_error: what a signature says, and which signatures are refused."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any, Optional, Union

import pytest
from pydantic import BaseModel

from batonflow.workflow_core import (
    All,
    Collect,
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Take,
    Workflow,
    WorkflowRuntimeError,
    WorkflowValidationError,
    catch_error,
    step,
)
from batonflow.workflow_core.collect import Cardinality
from batonflow.workflow_core.events import UnhandledEvent, WorkflowIdleEvent
from batonflow.workflow_core.resource import Resource
from batonflow.workflow_core.retry_policy import ConstantDelayRetryPolicy
from batonflow.workflow_core.step import StepConfig, StepFunction, StepGraphCheck, WorkflowGraphCheck
from tests.contract import contract
from tests.workflow_core.flows import streamed


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class SubA(A):
    pass


RunContext = Context


class Notes(BaseModel):
    lines: list[str] = []


# --- the decorator ----------------------------------------------------------------------------------------------------


@contract("3.0")
def test_the_decorated_function_is_the_very_function():
    async def go(self: Any, ev: StartEvent) -> StopEvent:
        return StopEvent(result="called")

    original = go
    go.__qualname__ = "Flow.go"
    assert step(go) is original
    assert step(num_workers=2)(go) is original
    assert original._step_config.num_workers == 2


@contract("3.0")
async def test_a_step_can_be_called_directly():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ev.word)

    assert (await Flow().go(StartEvent(word="direct"))).result == "direct"
    assert await Flow().run(word="run") == "run"


@contract("3.0", "0.1")
def test_the_configuration_says_what_was_read():
    class Flow(Workflow):
        @step(num_workers=7, accept_event_subclasses=True, skip_graph_checks=["reachability"])
        async def go(self, ctx: Context[Notes], ev: StartEvent) -> A | StopEvent | None: ...

    config = Flow.go._step_config
    assert isinstance(config, StepConfig)
    assert config.num_workers == 7
    assert config.accept_event_subclasses
    assert config.accepted_events == [StartEvent]
    assert config.return_types == [A, StopEvent, type(None)]
    assert config.context_parameter == "ctx"
    assert config.context_state_type is Notes
    assert config.event_name == "ev"
    assert all(name is not None for name in (StepFunction, WorkflowGraphCheck, StepGraphCheck))


@contract("3.0")
def test_four_workers_by_default():
    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent: ...

    assert Flow.go._step_config.num_workers == 4


@contract("3.1")
@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, None])
def test_the_number_of_workers_is_a_positive_integer(wrong: Any):
    with pytest.raises(WorkflowValidationError, match="num_workers must be an integer greater than 0"):
        step(num_workers=wrong)


@pytest.mark.parametrize("wrong", [0, -1, "2", True])
def test_the_timeout_of_a_step_is_a_number_of_seconds(wrong: Any):
    with pytest.raises(
        WorkflowValidationError, match=f"timeout of a step must be greater than 0 seconds, got {wrong!r}"
    ):
        step(timeout=wrong)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_policy": 3}, r"retry_policy of a step takes a policy .*, got 3"),
        ({"retry_policy": ConstantDelayRetryPolicy}, r"retry_policy of a step takes a policy .*got <function"),
        ({"skip_graph_checks": ["reachabilty"]}, "names no check with 'reachabilty'; there are reachability, dead_end"),
        ({"skip_graph_checks": 3}, "skip_graph_checks takes a list of names, got 3"),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(options: dict[str, Any], words: str):
    with pytest.raises(WorkflowValidationError, match=words):
        step(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"for_steps": 3}, "for_steps takes a list of names, got 3"),
        ({"for_steps": [str]}, "for_steps takes a list of names, got"),
        ({"max_recoveries": 0}, "max_recoveries must be an integer greater than 0, got 0"),
    ],
)
def test_so_are_those_of_handlers_of_failures(options: dict[str, Any], words: str):
    with pytest.raises(WorkflowValidationError, match=words):
        catch_error(**options)


async def test_a_single_name_need_not_stand_in_a_list():
    class Flow(Workflow):
        @step(skip_graph_checks="dead_end")  # type: ignore[call-overload]
        async def go(self, ev: StartEvent) -> None:
            raise ValueError("no")

        @catch_error(for_steps="go")  # type: ignore[call-overload]
        async def save(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=ev.step_name)

    assert await Flow().run() == "go"


@contract("3.2")
async def test_a_free_function_becomes_a_step_of_its_workflow_and_gets_no_self():
    class Flow(Workflow):
        pass

    @step(workflow=Flow)
    async def go(ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("k", ev.word)
        return StopEvent(result=await ctx.store.get("k"))

    assert await Flow().run(word="free") == "free"


@contract("3.2")
def test_a_free_function_must_say_where_it_belongs():
    with pytest.raises(WorkflowValidationError, match=r"free.*@step\(workflow="):

        @step
        async def free(ev: StartEvent) -> StopEvent: ...


@contract("3.3")
async def test_annotations_may_use_names_of_the_frames_around():
    class Local(Event):
        word: str

    def factory() -> str:
        return "made"

    class Flow(Workflow):
        @step
        async def first(self, ev: "StartEvent") -> "Local":
            return Local(word="hello")

        @step
        async def second(self, ev: "Local", made: "Annotated[str, Resource(factory)]") -> "StopEvent":
            return StopEvent(result=f"{ev.word} {made}")

    assert await Flow().run() == "hello made"


@contract("3.3")
async def test_postponed_annotations_resolve_inside_functions(tmp_path: Any):
    source = (
        "from __future__ import annotations\n"
        "from batonflow.workflow_core import Event, StartEvent, StopEvent, Workflow, step\n"
        "def make():\n"
        "    class Inner(Event):\n"
        "        word: str\n"
        "    class Flow(Workflow):\n"
        "        @step\n"
        "        async def one(self, ev: StartEvent) -> Inner:\n"
        "            return Inner(word='postponed')\n"
        "        @step\n"
        "        async def two(self, ev: Inner) -> StopEvent:\n"
        "            return StopEvent(result=ev.word)\n"
        "    return Flow()\n"
    )
    space: dict[str, Any] = {"__name__": "postponed"}
    exec(compile(source, "postponed.py", "exec"), space)
    assert await space["make"]().run() == "postponed"


@contract("3.3")
def test_a_name_that_cannot_be_resolved_is_named():
    with pytest.raises(WorkflowValidationError, match="NotThere"):

        class Flow(Workflow):
            @step
            async def go(self, ev: "NotThere") -> StopEvent: ...  # type: ignore[name-defined]  # noqa: F821


@contract("3.3")
async def test_locals_around_a_step_do_not_shadow_the_globals_of_a_factory():
    Notes = int  # the factory below annotates with the module's Notes

    class Flow(Workflow):
        @step
        async def go(self, ev: StartEvent, notes: Annotated[Any, Resource(make_page)]) -> StopEvent:
            return StopEvent(result=type(notes).__name__)

    assert Notes is int
    assert await Flow().run() == "Page"


class Page(BaseModel):
    notes: Any = None


def make_notes() -> Notes:
    return Notes(lines=["a"])


def make_page(notes: Annotated["Notes", Resource(make_notes)]) -> Page:
    assert isinstance(notes, Notes)
    return Page(notes=notes)


# --- parameters -------------------------------------------------------------------------------------------------------


@contract("3.4")
async def test_parameters_are_recognised_by_their_annotations():
    class Flow(Workflow):
        @step
        async def go(
            self,
            state: Context,
            ev: StartEvent,
            notes: Annotated[Notes, Resource(make_notes)],
            other: int = 5,
            anything: Any = "free",
        ) -> StopEvent:
            await state.store.set("x", 1)
            return StopEvent(result=[notes.lines, other, anything, await state.store.get("x")])

    assert await Flow().run() == [["a"], 5, "free", 1]


async def test_what_stands_around_a_step_may_pass_something_of_its_own():
    def with_db(function: Any) -> Any:
        @functools.wraps(function)
        async def call(self: Any, ev: Any) -> Any:
            return await function(self, ev, db="db")

        return call

    class Flow(Workflow):
        @step
        @with_db
        async def go(this: Any, ev: StartEvent, db: str) -> StopEvent:
            return StopEvent(result=db)

    assert await Flow().run() == "db"


async def test_parameters_may_stand_in_every_way_that_python_knows():
    class Context(Event):
        text: str = ""

    class Flow(Workflow):
        @step
        async def begin(this, ctx: RunContext | None, ev: StartEvent) -> Context:
            assert ctx is not None
            await ctx.store.set("n", 1)
            return Context(text="found")

        @step
        async def go(self, *args: Any, ctx: Optional[RunContext] = None, found: Context, k: int = 3) -> A:  # noqa: UP045
            assert ctx is not None
            return A(n=k + await ctx.store.get("n"))

        @step
        async def end(self, *, ev: A, **rest: Any) -> StopEvent:
            return StopEvent(result=(ev.n, rest))

    assert await Flow().run() == (4, {})


@contract("3.4")
async def test_a_union_parameter_takes_each_of_its_events():
    class Flow(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> A | B | None:
            ctx.send_event(A(n=1))
            ctx.send_event(B(n=2))

        @step
        async def either(self, ctx: Context, ev: A | B) -> StopEvent | None:
            both = ctx.collect_events(ev, [A, B])
            return StopEvent(result=[type(e).__name__ for e in both]) if both else None

    assert await Flow().run() == ["A", "B"]


@contract("3.4")
async def test_older_spellings_of_unions_are_read_too():
    class Flow(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Union[A, B]:  # noqa: UP007
            return B(n=2)

        @step
        async def either(self, ev: Union[A, B]) -> Optional[StopEvent]:  # noqa: UP007, UP045
            return StopEvent(result=type(ev).__name__)

    assert await Flow().run() == "B"


@contract("3.4")
@pytest.mark.parametrize(
    "annotation",
    [
        list[A],
        list[A] | None,
        Annotated[list[A], Collect()],
        Annotated[list[A], Collect(All())],
        Annotated[list[A], Collect],
    ],
)
async def test_a_list_parameter_collects_a_fan_out(annotation: Any):
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A]:
            return [A(n=1), A(n=2)]

        async def join(self, items: annotation) -> StopEvent:
            return StopEvent(result=[item.n for item in items])

        join = step(join)

    assert await Flow().run() == [1, 2]


@contract("3.4")
async def test_a_list_of_several_types_collects_all_of_them():
    class Flow(Workflow):
        @step
        async def fan(self, ev: StartEvent) -> list[A | B]:
            return [A(n=1), B(n=2)]

        @step
        async def join(self, items: list[A | B]) -> StopEvent:
            return StopEvent(result=[type(item).__name__ for item in items])

    assert await Flow().run() == ["A", "B"]


# --- refusals ---------------------------------------------------------------------------------------------------------


async def no_event(self: Any, ctx: Context) -> StopEvent: ...
async def no_annotation(self: Any, ev) -> StopEvent: ...
async def no_return(self: Any, ev: StartEvent): ...
async def two_lists(self: Any, a: list[A], b: list[B]) -> StopEvent: ...
async def list_and_event(self: Any, a: list[A], b: B) -> StopEvent: ...
async def union_in_join(self: Any, a: A | B, c: StartEvent) -> StopEvent: ...
async def collect_on_event(self: Any, a: Annotated[A, Collect(Take(1))]) -> StopEvent: ...
async def odd_rule(self: Any, a: Annotated[list[A], Collect(3)]) -> StopEvent: ...  # type: ignore[arg-type]
async def bare_context(self: Any, ctx, ev: StartEvent) -> StopEvent: ...
async def a_number(self: Any, ev: StartEvent, n: int) -> StopEvent: ...
async def by_place(self: Any, ev: StartEvent, /) -> StopEvent: ...
async def several(self: Any, *evs: StartEvent) -> StopEvent: ...
async def generator(self: Any, ev: StartEvent) -> AsyncIterator[A]:
    yield A()


async def says_iterator(self: Any, ev: StartEvent) -> AsyncIterator[A]: ...


@contract("3.5")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_event, "Step signature must have at least one parameter annotated as type Event"),
        (no_annotation, "Step signature must have at least one parameter annotated as type Event"),
        (no_return, "Return types of workflows step functions must be annotated with their type"),
        (two_lists, r"at most one list\[E\]"),
        (list_and_event, "cannot be combined with other"),
        (union_in_join, "single event type"),
        (collect_on_event, "only to collection fan-in"),
        (odd_rule, "unknown cardinality"),
        (bare_context, "nothing can be passed for 'ctx'. Annotate it as an event, Context"),
        (a_number, "nothing can be passed for 'n'"),
        (by_place, "parameter 'ev' is passed by its name: take out the /"),
        (several, r"parameter 'evs' is passed by its name: take out the \*"),
        (generator, "Async-iterator fan-out"),
        (says_iterator, "Async-iterator fan-out"),
    ],
)
def test_a_wrong_signature_is_refused_with_its_name(function: Any, message: str):
    with pytest.raises(WorkflowValidationError, match=message) as refusal:
        step(function)
    assert function.__name__ in str(refusal.value)


@contract("3.5")
def test_returning_nothing_is_a_legal_annotation():
    async def watch(self: Any, ev: A) -> None: ...

    watch.__qualname__ = "Flow.watch"
    assert step(watch)._step_config.return_types == [type(None)]


@contract("3.5", "3.1.3")
@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2"])
def test_take_needs_a_positive_whole_number(n: Any):
    with pytest.raises(ValueError, match="at least 1"):
        Take(n)
    assert isinstance(Take(1), Cardinality)
    assert isinstance(All(), Cardinality)


# --- sync steps -------------------------------------------------------------------------------------------------------

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@contract("3.6")
async def test_sync_steps_run_in_a_thread_with_the_context_variables():
    loop_thread = threading.get_ident()

    class Flow(Workflow):
        @step
        def blocking(self, ev: StartEvent) -> A:
            return A(n=1, thread=threading.get_ident(), seen=variable.get())

        @step
        async def on_the_loop(self, ev: A) -> StopEvent:
            return StopEvent(result=(ev.thread != loop_thread, threading.get_ident() == loop_thread, ev.seen))

    variable.set("set by the caller")
    assert await Flow().run() == (True, True, "set by the caller")


@contract("3.6")
async def test_a_blocking_step_does_not_hold_up_others():
    gate = threading.Event()

    class Flow(Workflow):
        @step
        def blocking(self, ev: StartEvent) -> A:
            assert gate.wait(30), "the other step never ran"
            return A()

        @step
        async def quick(self, ev: StartEvent) -> None:
            gate.set()

        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent(result="both ran")

    assert await Flow().run() == "both ran"


@contract("3.6", "5.3", "5.4", "5.5")
async def test_sync_steps_may_call_every_synchronous_method_of_the_context():
    class Flow(Workflow):
        @step
        def fan(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.write_event_to_stream(Event(note=ctx.retry_info().retry_number))
            for n in range(3):
                ctx.send_event(A(n=n))

        @step
        def join(self, ctx: Context, ev: A) -> StopEvent | None:
            found = ctx.collect_events(ev, [A] * 3)
            return StopEvent(result=[e.n for e in found]) if found else None

    handler = Flow().run()
    assert [e.note for e in await streamed(handler) if type(e) is Event] == [0]
    assert sorted(await handler) == [0, 1, 2]


# --- results ----------------------------------------------------------------------------------------------------------


def returning(value: Any, annotation: Any = StopEvent) -> Workflow:
    class Flow(Workflow):
        async def go(self, ev: StartEvent) -> annotation:
            return value

        @step
        async def takes_a(self, ev: A) -> StopEvent:
            return StopEvent(result="A arrived")

        go = step(go)

    return Flow(disable_validation=True)


@contract("3.7")
@pytest.mark.parametrize("value", ["text", 3, {"a": 1}, StopEvent, object()])
async def test_a_result_that_is_no_event_fails_the_run(value: Any):
    name = type(value).__name__
    with pytest.raises(WorkflowRuntimeError, match=f"Step function go returned {name} instead of an Event instance."):
        await returning(value).run()


@contract("3.7")
async def test_an_event_that_was_not_declared_is_routed():
    assert await returning(A()).run() == "A arrived"


@contract("3.7")
async def test_a_list_where_none_was_declared_fails_the_run():
    with pytest.raises(WorkflowRuntimeError, match=r"returned list instead of an Event instance.*list\[SomeEvent\]"):
        await returning([A()]).run()


@contract("3.7", "3.1.3")
async def test_a_bare_event_where_only_a_list_was_declared_fails_the_run():
    with pytest.raises(WorkflowRuntimeError, match="bare A"):
        await returning(A(), list[A]).run()


@contract("3.7", "3.1.3")
async def test_a_list_or_a_bare_event_when_both_were_declared():
    assert await returning(A(), list[A] | A).run() == "A arrived"
    assert await returning([A()], list[A] | A).run() == "A arrived"


@contract("3.8")
async def test_a_subclass_of_the_accepted_event_is_not_delivered():
    class Exact(Workflow):
        @step
        async def start(self, ev: StartEvent) -> A:
            return SubA(n=3)

        @step
        async def takes_a(self, ev: A) -> StopEvent:
            return StopEvent(result=ev.n)

        @step
        async def give_up(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result="not delivered")

    handler = Exact().run()
    seen: list[Event] = []
    async for event in handler.stream_events(expose_internal=True):
        seen.append(event)
        if isinstance(event, WorkflowIdleEvent):
            handler.ctx.send_event(HumanResponseEvent())
    assert [e.event_type for e in seen if isinstance(e, UnhandledEvent)] == ["SubA"]
    assert await handler == "not delivered"


@contract("3.8")
async def test_a_step_may_accept_subclasses():
    class Wide(Workflow):
        @step
        async def start(self, ev: StartEvent) -> SubA:
            return SubA(n=3)

        @step(accept_event_subclasses=True)
        async def takes_a(self, ev: A) -> StopEvent:
            return StopEvent(result=(type(ev).__name__, ev.n))

    assert await Wide().run() == ("SubA", 3)


@contract("3.8")
async def test_the_waits_of_a_wide_step_accept_subclasses_too():
    class Wide(Workflow):
        @step(accept_event_subclasses=True)
        async def asks(self, ctx: Context, ev: StartEvent) -> StopEvent:
            found = await ctx.wait_for_event(A)
            return StopEvent(result=type(found).__name__)

    handler = Wide().run()
    await asyncio.sleep(0)
    handler.ctx.send_event(SubA())
    assert await handler == "SubA"


@contract("7.1")
def test_a_handler_takes_a_failure_and_nothing_else():
    async def wrong(self: Any, ev: StartEvent) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="must accept StepFailedEvent"):
        catch_error(wrong)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_step_timeout_is_positive(seconds: float):
    with pytest.raises(WorkflowValidationError, match="greater than 0 seconds"):
        step(timeout=seconds)

"""Type parameters at run time: declared results, type aliases in signatures, and classes with type variables."""

import types
from typing import Annotated, Any, Generic, TypeVar

import pytest
from typing_extensions import TypeAliasType

from batonflow.tools import FunctionTool
from batonflow.values.types import without_alias
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step
from batonflow.workflow_core.context import DictState, RunContext
from batonflow.workflow_core.errors import WorkflowConfigurationError
from batonflow.workflow_core.typed import declared_result

T = TypeVar("T")


class Question(StartEvent):
    topic: str


class Total(StopEvent):
    words: int


class Other(StopEvent):
    text: str


class Tally(DictState):
    words: int = 0


class Count(Workflow[Total]):
    @step
    async def count(self, ev: Question) -> Total:
        return Total(words=len(ev.topic))


def test_a_workflow_with_a_declared_result_runs_and_tells_its_type():
    assert isinstance(Workflow[Total], types.GenericAlias)
    assert Workflow in Count.__mro__
    assert Generic not in Count.__mro__
    assert declared_result(Count) is Total
    assert declared_result(type("Sub", (Count,), {})) is Total
    assert declared_result(Workflow) is Any
    assert Count().run_sync(topic="tides").words == 5


def test_a_class_of_the_user_with_type_variables_behaves_as_with_typing():
    class Mine(Workflow, Generic[T]):
        @step
        async def end(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=1)

    class Inner(Workflow[T]):
        @step
        async def end(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=2)

    assert Mine[int]().run_sync() == 1
    assert Mine[int].__origin__ is Mine
    assert Inner[int]().run_sync() == 2
    assert declared_result(Inner) is Any


async def test_a_start_event_may_come_first():
    assert (await Count().run(Question(topic="sea"))).words == 3
    with pytest.raises(ValueError, match="two start events"):
        Count().run(Question(topic="sea"), start_event=Question(topic="sea"))


class Wrong(Workflow[Total]):
    @step
    async def count(self, ev: StartEvent) -> Other:
        return Other(text="")


class TooWide(Workflow[Total]):
    @step
    async def count(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=3)


class Number(Workflow[int]):
    @step
    async def count(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=3)


@pytest.mark.parametrize("wrong", [Wrong, TooWide])
def test_validation_compares_the_declared_stop_event_with_those_of_the_steps(wrong):
    found = wrong.count._step_config.return_types[0].__name__
    text = rf"{wrong.__name__} is declared as Workflow\[Total\], but step 'count' returns {found}"
    with pytest.raises(WorkflowConfigurationError, match=text):
        wrong().validate()


def test_other_declared_results_are_taken_at_their_word():
    assert Number().run_sync() == 3


class Asked(Event):
    pass


Next = TypeAliasType("Next", Asked | StopEvent)


def test_annotations_are_read_through_type_aliases():
    assert without_alias(RunContext) == Context[DictState, Any]
    assert without_alias(RunContext[int]) == Context[DictState, int]
    assert without_alias(RunContext[int, Tally]) == Context[Tally, int]
    assert without_alias(list[int]) == list[int]


async def test_a_step_may_take_and_return_events_by_a_type_alias():
    class Asks(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Next:
            return Asked()

        @step
        async def end(self, ev: TypeAliasType("One", Asked)) -> Next:
            return StopEvent(result="asked")

    assert await Asks().run() == "asked"


def test_a_step_may_take_a_run_context():
    class Counts(Workflow):
        @step
        async def count(self, ctx: RunContext[int, Tally], ev: StartEvent) -> StopEvent:
            return StopEvent(result=type(await ctx.store.get_state()))

        @step
        async def other(self, ctx: Context[Tally, int], ev: StartEvent) -> None: ...

    assert Counts().run_state_type is Tally
    assert Counts().run_sync() is Tally


def test_a_tool_may_take_a_run_context():
    async def orders(ctx: RunContext[int], since: str) -> str:
        "Orders of the user."
        return since

    made = FunctionTool.from_defaults(orders)
    assert made.requires_context
    assert list(made.metadata.get_parameters_dict()["properties"]) == ["since"]


def test_a_tool_may_name_a_context_that_only_type_checkers_know():
    def orders(ctx: "unknown.RunContext[int]", since: str) -> str:  # noqa: F821
        "Orders of the user."
        return since

    assert FunctionTool.from_defaults(orders).requires_context


def test_handlers_take_a_type_argument():
    def of(handler: WorkflowHandler[int]) -> Annotated[int, "the result"]:
        return 0

    assert WorkflowHandler[int].__origin__ is WorkflowHandler
    assert of.__annotations__["handler"] == WorkflowHandler[int]

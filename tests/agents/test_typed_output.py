"""What comes out of a run: the value of its declared type, and the error where there is no value."""

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from batonflow import AgentOutput, AgentResult, AgentWorkflow, FunctionAgent, OutputUnfitError, ScriptedLLM, StopEvent
from batonflow.agents import BaseWorkflowAgent, Block, CodeActAgent, OutputMissingError, ReActAgent
from batonflow.llms import ChatMessage

T = TypeVar("T")


class Answer(BaseModel):
    number: int


@dataclass
class Point:
    x: int
    y: int


def answered(text: str = "", data: dict[str, Any] | None = None) -> AgentOutput:
    return AgentOutput(response=ChatMessage(text, role="assistant"), structured_response=data, current_agent_name="a")


# --- classes at run time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [BaseWorkflowAgent, FunctionAgent, ReActAgent, CodeActAgent, AgentWorkflow])
def test_an_agent_with_type_arguments_is_the_class_itself(cls):
    assert cls[int, str] is cls
    assert Generic not in cls.__mro__


def test_one_class_of_results_is_known_at_run_time():
    assert AgentResult is AgentOutput
    assert AgentResult[int] is AgentOutput


def test_a_generic_agent_of_the_user_behaves_as_with_pydantic():
    class Mine(FunctionAgent, Generic[T]):
        extra: T

    assert Mine[int] is not Mine
    assert issubclass(Mine[int], Mine)
    assert Mine[int](llm=ScriptedLLM(["hi"]), extra="3").extra == 3


def test_a_subclass_may_name_its_types():
    class Mine(FunctionAgent[object, int]):
        extra: int = 0

    assert Mine(llm=ScriptedLLM(["hi"]), extra=2).extra == 2


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_the_output_of_an_agent_without_a_declared_type_is_its_text():
    output = await FunctionAgent(llm=ScriptedLLM(["It is 42."])).run("2 + 40?")
    assert output.output == str(output) == "It is 42."
    assert output.blocked is None


async def test_the_output_with_output_cls_is_the_instance():
    output = await FunctionAgent(llm=ScriptedLLM(['{"number": 42}']), output_cls=Answer).run("2 + 40?")
    assert output.output == Answer(number=42)
    assert output.structured_response == {"number": 42}


async def test_reading_an_output_that_does_not_fit_its_output_cls_raises():
    agent = FunctionAgent(llm=ScriptedLLM(["no idea"] * 5), output_cls=Answer)
    with pytest.warns(UserWarning, match="structured output"):
        output = await agent.run("2 + 40?")
    assert output.structured_response is None
    with pytest.raises(OutputUnfitError, match="does not fit Answer") as caught:
        _ = output.output
    assert (caught.value.text, caught.value.output_type) == ("no idea", Answer)
    assert isinstance(caught.value, ValueError)


async def test_the_output_of_a_team_without_output_cls_is_text_also_where_a_member_has_one():
    member = FunctionAgent(name="adder", llm=ScriptedLLM(['{"number": 42}']), output_cls=Answer)
    output = await AgentWorkflow(agents=[member]).run("2 + 40?")
    assert output.output == '{"number": 42}'


async def test_reading_a_blocked_output_raises_with_the_reason():
    agent = FunctionAgent(llm=ScriptedLLM(["rude"]), output_guards=[lambda ctx, message: Block("not so")])
    output = await agent.run("Say something.")
    assert output.blocked == "not so"
    with pytest.raises(OutputMissingError, match="not so"):
        _ = output.output
    with pytest.raises(OutputMissingError, match="not so"):
        output.output_as(int)


async def test_the_event_at_the_end_of_the_stream_has_the_output_too():
    handler = FunctionAgent(llm=ScriptedLLM(['{"number": 1}']), output_cls=Answer).run("Go.")
    ended = [event async for event in handler.stream_events() if isinstance(event, StopEvent)]
    assert ended[0].result.output == Answer(number=1)


async def test_a_recorded_result_is_read_as_its_agent_declares(tmp_path):
    agent = FunctionAgent(llm=ScriptedLLM(['{"number": 1}']), output_cls=Answer, store=tmp_path / "runs.db")
    await agent.run("Go.", run_id="one")
    assert (await agent.resume("one")).output == Answer(number=1)


def test_an_output_that_is_not_the_result_of_a_run_names_output_as():
    output = answered("[1, 2]")
    with pytest.raises(OutputMissingError, match=r"output_as\(type\)"):
        _ = output.output
    assert output.output_as(list[int]) == [1, 2]


@pytest.mark.parametrize(
    ("output_type", "text", "data", "expected"),
    [
        (list[int], "[1, 2]", None, [1, 2]),
        (list[int], "", {"response": [1, 2]}, [1, 2]),
        (int, "42", None, 42),
        (Answer, 'It is {"number": 7}.', None, Answer(number=7)),
        (Answer, "", {"number": 7}, Answer(number=7)),
        (Answer, "", {"response": {"number": 7}}, Answer(number=7)),
        (Point, "", {"x": 1, "y": 2}, Point(1, 2)),
        (Answer | Point, "", {"response": {"x": 1, "y": 2}}, Point(1, 2)),
        (Answer | None, "", {"response": None}, None),
        (Answer | str, "plain words", None, "plain words"),
    ],
)
def test_an_output_is_read_as_any_type(output_type, text, data, expected):
    assert answered(text, data).output_as(output_type) == expected


@pytest.mark.parametrize(("text", "data"), [("no idea", None), ('{"number": "x"}', None), ("", {"number": "x"})])
def test_an_output_that_does_not_fit_the_type_is_an_error(text, data):
    with pytest.raises(OutputUnfitError, match="does not fit Answer") as caught:
        answered(text, data).output_as(Answer)
    assert caught.value.errors


def test_what_reads_an_output_is_neither_recorded_nor_compared():
    output = answered("hi")
    before = json.dumps(output.model_dump(mode="json"))
    output.declare(FunctionAgent(llm=ScriptedLLM(["hi"])).__batonflow_team__.declared)
    assert json.dumps(output.model_dump(mode="json")) == before
    assert output == answered("hi")

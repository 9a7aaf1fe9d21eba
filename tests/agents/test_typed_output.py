"""What comes out of a run: the value of its declared type, and the error where there is no value."""

import json
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel

from batonflow import (
    AgentOutput,
    AgentResult,
    AgentWorkflow,
    Context,
    FunctionAgent,
    OutputUnfitError,
    ScriptedLLM,
    StopEvent,
)
from batonflow.agents import (
    AgentStreamStructuredOutput,
    BaseWorkflowAgent,
    Block,
    CodeActAgent,
    OutputMissingError,
    ReActAgent,
    Replace,
)
from batonflow.llms import ChatMessage, tool_call

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


# --- output_type ------------------------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


@pytest.mark.parametrize(
    ("output_type", "arguments", "expected"),
    [
        (Answer, {"number": 42}, Answer(number=42)),
        (Point, {"x": 1, "y": 2}, Point(1, 2)),
        (int, {"response": 42}, 42),
        (list[int], {"response": [1, 2]}, [1, 2]),
        (Literal["yes", "no"], {"response": "yes"}, "yes"),
        (Answer | Point, {"response": {"x": 1, "y": 2}}, Point(1, 2)),
        (Answer | None, {"response": None}, None),
        ([Answer, Point], {"response": {"number": 7}}, Answer(number=7)),
        (Answer | str, {"number": 7}, Answer(number=7)),
    ],
)
async def test_a_model_gives_an_output_by_the_tool_final_answer(output_type, arguments, expected):
    llm = ScriptedLLM([tool_call("final_answer", **arguments)])
    agent = FunctionAgent(llm=llm, output_type=output_type)
    output = await agent.run("Go.")
    assert output.output == expected
    assert output.structured_response == arguments
    assert json.loads(str(output)) == arguments
    assert [tool.name for tool in llm.requests[0].tools] == ["final_answer"]


async def test_a_plain_answer_is_the_output_where_text_is_a_member_of_the_union():
    output = await FunctionAgent(llm=ScriptedLLM(["I do not know."]), output_type=Answer | str).run("Go.")
    assert output.output == "I do not know."
    assert output.structured_response is None


async def test_a_plain_answer_that_is_json_of_the_type_is_taken():
    output = await FunctionAgent(llm=ScriptedLLM(['{"number": 42}']), output_type=Answer).run("Go.")
    assert output.output == Answer(number=42)


async def test_text_as_the_only_type_is_asked_for_in_no_special_way():
    llm = ScriptedLLM(["hi"])
    assert (await FunctionAgent(llm=llm, output_type=str).run("Go.")).output == "hi"
    assert not llm.requests[0].tools


async def test_an_answer_that_does_not_fit_goes_back_to_the_model_with_the_problems():
    llm = ScriptedLLM([tool_call("final_answer", number="many"), tool_call("final_answer", number=3)])
    output = await FunctionAgent(llm=llm, output_type=Answer).run("Go.")
    assert output.output == Answer(number=3)
    said = llm.requests[1].messages[-1].content
    assert "number: Input should be a valid integer" in said
    assert [call.tool_output.is_error for call in output.tool_calls] == [True, False]


async def test_a_text_in_place_of_the_tool_goes_back_to_the_model():
    llm = ScriptedLLM(["It is three.", tool_call("final_answer", number=3)])
    output = await FunctionAgent(llm=llm, output_type=Answer).run("Go.")
    assert output.output == Answer(number=3)
    assert "Call final_answer" in llm.requests[1].messages[-1].content


@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("turn", ["It is three.", tool_call("final_answer", number="three")])
async def test_the_run_fails_after_the_retries(retries, turn):
    llm = ScriptedLLM([turn] * 5)
    with pytest.raises(OutputUnfitError, match="does not fit Answer") as caught:
        await FunctionAgent(llm=llm, output_type=Answer, output_retries=retries).run("Go.")
    assert len(llm.requests) == retries + 1
    assert "three" in caught.value.text
    assert caught.value.errors
    assert caught.value.output_type is Answer


async def test_each_run_on_one_context_has_its_own_retries():
    llm = ScriptedLLM(["no", tool_call("final_answer", number=1)] * 2)
    agent = FunctionAgent(llm=llm, output_type=Answer)
    ctx = Context(agent)
    assert [(await agent.run("Go.", ctx=ctx)).output.number for _ in range(2)] == [1, 1]


class NativeLLM(ScriptedLLM):
    @property
    def native_output_schema(self) -> bool:
        return True


async def test_a_native_schema_is_used_where_the_model_has_one():
    llm = NativeLLM(['{"response": [1, 2]}'])
    output = await FunctionAgent(llm=llm, output_type=list[int]).run("Go.")
    assert output.output == [1, 2]
    assert not llm.requests[0].tools
    assert llm.requests[0].output_schema.parameters["required"] == ["response"]


@pytest.mark.parametrize("kind", [ReActAgent, CodeActAgent])
async def test_an_agent_that_answers_in_text_is_shown_the_schema(kind):
    answers = {ReActAgent: 'Thought: easy.\nAnswer: {"number": 42}', CodeActAgent: '{"number": 42}'}
    llm = ScriptedLLM(["Thought: hm.\nAnswer: no." if kind is ReActAgent else "no.", answers[kind]])
    output = await kind(llm=llm, output_type=Answer).run("Go.")
    assert output.output == Answer(number=42)
    assert '"number"' in "".join(message.content or "" for message in llm.requests[0].messages)
    assert "does not fit" in "".join(message.content or "" for message in llm.requests[1].messages)


async def test_the_result_of_a_function_is_the_output():
    seen = []

    async def book(ctx: Context, x: int, y: int) -> Point:
        "Book a seat."
        seen.append(await ctx.store.get("user_msg_str"))
        return Point(x, y)

    llm = ScriptedLLM([tool_call("book", x=1, y="two"), tool_call("book", x=1, y=2)])
    output = await FunctionAgent(llm=llm, output_type=book).run("Go.")
    assert output.output == Point(1, 2)
    assert output.structured_response == {"x": 1, "y": 2}
    assert seen == ["Go."]


async def test_an_output_of_a_tool_comes_with_the_results_of_all_calls():
    def look(harbour: str) -> str:
        "Look something up."
        return f"{harbour}: 4"

    llm = ScriptedLLM([tool_call("look", harbour="Brest"), tool_call("final_answer", response=4)])
    output = await FunctionAgent(llm=llm, tools=[look], output_type=int).run("Go.")
    assert output.output == 4
    assert output.tool_calls[0].tool_output.content == "Brest: 4"


class OneField(BaseModel):
    response: str


async def test_a_model_with_the_field_response_is_not_its_text():
    llm = ScriptedLLM([tool_call("final_answer", response="hey")])
    output = await FunctionAgent(llm=llm, output_type=OneField | str).run("Go.")
    assert output.output == OneField(response="hey")


async def test_hooks_act_on_a_function_that_makes_the_output():
    def book(x: int) -> int:
        "Book a seat."
        return x

    llm = ScriptedLLM([tool_call("book", x=1)])
    agent = FunctionAgent(llm=llm, output_type=[book, Answer], before_tool=[lambda ctx, call: Replace({"x": 5})])
    output = await agent.run("Go.")
    assert output.output == 5
    assert {tool.name for tool in llm.requests[0].tools} == {"book", "final_answer"}


async def test_a_value_that_is_not_json_is_the_output_in_the_process_of_the_run():
    class Booking:
        def __str__(self):
            return "booked"

    made = Booking()

    def book():
        "Book a seat."
        return made

    output = await FunctionAgent(llm=ScriptedLLM([tool_call("book")]), output_type=book).run("Go.")
    assert output.output is made


async def test_a_recorded_output_is_read_as_its_type(tmp_path):
    llm = ScriptedLLM([tool_call("final_answer", response=[1, 2])])
    agent = FunctionAgent(llm=llm, output_type=list[int], store=tmp_path / "runs.db")
    assert (await agent.run("Go.", run_id="one")).output == [1, 2]
    again = FunctionAgent(llm=ScriptedLLM([]), output_type=list[int], store=tmp_path / "runs.db")
    assert (await again.resume("one")).output == [1, 2]


async def test_a_team_asks_whichever_member_answers():
    handoff = tool_call("handoff", to_agent="writer", reason="writes")
    asks = FunctionAgent(name="asks", description="Asks.", llm=ScriptedLLM([handoff]))
    writer = FunctionAgent(
        name="writer", description="Writes.", llm=ScriptedLLM([tool_call("final_answer", response=[1])])
    )
    team = AgentWorkflow(agents=[asks, writer], root_agent="asks", output_type=list[int])
    output = await team.run("Go.")
    assert output.output == [1]
    assert [tool.name for tool in writer.llm.requests[0].tools][-1] == "final_answer"


async def test_a_member_with_a_type_in_a_team_without_one_has_text():
    member = FunctionAgent(name="a", llm=ScriptedLLM([tool_call("final_answer", number=1)]), output_type=Answer)
    output = await AgentWorkflow(agents=[member]).run("Go.")
    assert output.output == '{"number": 1}'
    assert output.structured_response == {"number": 1}


async def test_an_agent_with_a_type_as_a_tool_gives_its_output_as_json():
    inner = FunctionAgent(
        name="inner", llm=ScriptedLLM([tool_call("final_answer", response=[1, 2])]), output_type=list[int]
    )
    outer = FunctionAgent(llm=ScriptedLLM([tool_call("inner", input="Go."), "done"]), tools=[inner.as_tool()])
    output = await outer.run("Go.")
    assert output.tool_calls[0].tool_output.content == "[1, 2]"
    assert output.tool_calls[0].tool_output.raw_output == [1, 2]


async def test_the_output_is_missing_where_the_steps_ran_out():
    llm = ScriptedLLM([tool_call("add", a=1, b=2), "I could not finish."])
    agent = FunctionAgent(llm=llm, tools=[add], output_type=Answer, early_stopping_method="generate")
    output = await agent.run("Go.", max_iterations=1)
    assert str(output) == "I could not finish."
    assert "ran out" in output.blocked
    with pytest.raises(OutputMissingError, match="ran out"):
        _ = output.output


async def test_a_blocked_answer_has_no_output():
    llm = ScriptedLLM([tool_call("final_answer", number=1)])
    agent = FunctionAgent(llm=llm, output_type=Answer, output_guards=[lambda ctx, message: Block("not so")])
    output = await agent.run("Go.")
    assert output.structured_response is None
    assert output.blocked == "not so"


async def test_the_form_of_an_output_is_streamed():
    handler = FunctionAgent(llm=ScriptedLLM([tool_call("final_answer", number=1)]), output_type=Answer).run("Go.")
    forms = [event.output async for event in handler.stream_events() if isinstance(event, AgentStreamStructuredOutput)]
    assert forms == [{"number": 1}]


async def test_a_conversation_goes_on_after_an_output():
    llm = ScriptedLLM([tool_call("final_answer", number=1), tool_call("final_answer", number=2)])
    agent = FunctionAgent(llm=llm, output_type=Answer)
    ctx = Context(agent)
    await agent.run("Go.", ctx=ctx)
    await agent.run("Again.", ctx=ctx)
    assert [message.role.value for message in llm.requests[1].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


def test_an_agent_that_calls_tools_from_code_takes_no_functions_as_its_output():
    with pytest.raises(ValueError, match="takes types as output_type"):
        CodeActAgent(llm=ScriptedLLM([]), output_type=add)


# --- refused ----------------------------------------------------------------------------------------------------------


def final_answer() -> str:
    "A tool of the user."
    return ""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"output_type": Answer, "output_cls": Answer}, "output_type and output_cls"),
        ({"output_type": 5}, r"output_type is a type, a function, or a list of these, not 5$"),
        ({"output_type": [int, {"a": 1}]}, "output_type is a type, a function, or a list of these, not"),
        ({"output_type": []}, "the list is empty"),
        ({"output_type": "Answer"}, "output_type is a type, a function, or a list"),
        ({"output_type": object()}, "output_type"),
        ({"output_type": Context}, "has no JSON schema"),
        ({"output_type": Answer, "tools": [final_answer]}, "has a tool 'final_answer'"),
        ({"output_retries": -1}, "output_retries"),
    ],
)
def test_options_that_cannot_be_met_are_refused_at_construction(options, text):
    with pytest.raises(ValueError, match=text):
        FunctionAgent(llm=ScriptedLLM([]), **options)
    if "tools" not in options:
        with pytest.raises(ValueError, match=text):
            AgentWorkflow([FunctionAgent(llm=ScriptedLLM([]))], **options)

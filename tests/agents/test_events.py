"""Events that the loop makes without validation are those that their constructors would have made."""

import copy
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from batonflow.agents import AgentOutput, AgentStream, AgentWorkflowStartEvent, ToolCall, ToolCallResult
from batonflow.llms import ChatMessage, ChatResponse, ToolCallBlock
from batonflow.llms.answer import fold
from batonflow.llms.stream import Finish, TextDelta, ToolCallDelta
from batonflow.llms.tool_protocol import ToolSelection
from batonflow.tools import ToolOutput

ANSWER = ChatMessage("42", role="assistant")
CALL = ToolSelection(tool_id="1", tool_name="add", tool_kwargs={"a": 2, "b": 40})


def same(made: Any, validated: Any) -> bool:
    return made == validated and repr(made) == repr(validated) and made.model_dump() == validated.model_dump()


def test_an_output() -> None:
    made = AgentOutput.of(ANSWER, [CALL], "first", raw={"id": 7})
    assert same(made, AgentOutput(response=ANSWER, tool_calls=[CALL], raw={"id": 7}, current_agent_name="first"))


def test_an_output_of_what_is_no_selection_is_validated() -> None:
    calls: Any = [CALL.model_dump()]
    assert AgentOutput.of(ANSWER, calls, "first").tool_calls == [CALL]
    with pytest.raises(ValidationError):
        AgentOutput.of(ANSWER, ["add"], "first")  # type: ignore[list-item]


def test_a_result() -> None:
    call = ToolCall(tool_name="add", tool_kwargs={"a": 2}, tool_id="1")
    output = ToolOutput("add", "42")
    made = ToolCallResult.of(call, {"a": 3}, output, return_direct=True)
    fields: dict[str, Any] = {"tool_name": "add", "tool_kwargs": {"a": 3}, "tool_id": "1", "tool_output": output}
    assert same(made, ToolCallResult(**fields, return_direct=True))
    assert made.tool_output is output


def test_a_result_that_is_no_output_is_refused() -> None:
    call = ToolCall(tool_name="add", tool_kwargs={}, tool_id="1")
    with pytest.raises(ValidationError):
        ToolCallResult.of(call, {}, "42", return_direct=False)


def test_a_result_has_arguments_of_its_own() -> None:
    call = ToolCall(tool_name="add", tool_kwargs={"a": 2}, tool_id="1")
    made = ToolCallResult.of(call, call.tool_kwargs, ToolOutput("add", "42"), return_direct=False)
    call.tool_kwargs["a"] = 3
    assert made.tool_kwargs == {"a": 2}


def test_a_field_that_is_set_later_changes_no_other_event() -> None:
    first, second = (AgentOutput.of(ANSWER, [], "first") for _ in range(2))
    first.structured_response = {"a": 1}
    first["note"] = "seen"
    first.mark = 1  # type: ignore[attr-defined]
    assert (second.structured_response, dict(second.items())) == (None, {})
    assert second.model_fields_set == set(AgentOutput.model_fields)


async def pieces() -> list[ChatResponse]:
    async def answer() -> Any:
        yield TextDelta(text="Let me ")
        yield TextDelta(text="see.")
        yield ToolCallDelta(index=0, id="1", name="add", arguments='{"a": 2, ')
        yield ToolCallDelta(index=0, arguments='"b": 40}')
        yield Finish(reason="tool_calls")

    return [piece async for piece in fold(answer())]


async def test_pieces_of_an_answer_that_nobody_has_looked_at() -> None:
    shown = [AgentStream.of(piece, "first") for piece in await pieces()]
    assert [event.response for event in shown] == ["Let me ", *["Let me see."] * 4]
    assert [event.tool_calls for event in shown] == [[], [], [], [CALL], [CALL]]
    validated = AgentStream(
        delta="", response="Let me see.", current_agent_name="first", tool_calls=[CALL], raw=None, thinking_delta=None
    )
    assert same(shown[-1], validated)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda event: pickle.loads(pickle.dumps(event))])
async def test_a_piece_takes_data_like_every_event(copied: Any) -> None:
    event = AgentStream.of((await pieces())[-1], "first")
    assert (event.get("note"), len(event), "note" in event) == (None, 0, False)
    event["note"] = "seen"
    assert copied(event).get("note") == "seen"
    event = copied(AgentStream.of((await pieces())[-1], "first"))
    event.mark = 1
    assert dict(event.items()) == {"mark": 1}


async def test_the_message_behind_a_piece_is_one_that_a_constructor_makes() -> None:
    last = (await pieces())[-1]
    block = ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 2, "b": 40})
    validated = ChatMessage([*ChatMessage("Let me see.").blocks, block], role="assistant")
    assert same(last.message, validated)


def test_a_whole_without_its_first_pieces_is_the_rest() -> None:
    pieces = [
        AgentStream(delta=delta, response=delta, current_agent_name="a", thinking_delta=thinking)
        for delta, thinking in (("The ", None), ("", "hm"), ("answer", "m"), (" is 42", None))
    ]
    for had in range(len(pieces)):
        text, thinking = (sum(sizes) for sizes in zip((0, 0), *(piece.sizes() for piece in pieces[:had]), strict=True))
        assert AgentStream.joined(pieces).without(text, thinking) == AgentStream.joined(pieces[had:])


def test_the_form_of_a_start_asks_for_the_message():
    schema = AgentWorkflowStartEvent.model_json_schema()
    assert schema["required"] == ["user_msg"]
    assert set(schema["properties"]) == {"user_msg", "max_iterations"}

    class Own(AgentWorkflowStartEvent):
        topic: str

    assert Own.model_json_schema()["required"] == ["topic"]

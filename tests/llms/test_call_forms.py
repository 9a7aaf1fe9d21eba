"""Calls in the form in which programs of LlamaIndex ask messages for them, and put them into messages again."""

import json
import pickle
import tracemalloc
from collections.abc import Callable
from copy import copy, deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from batonflow.agents.memory.tokens import count_tokens
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import (
    ChatMessage,
    ChatResponse,
    MockFunctionCallingLLM,
    OpenAI,
    ScriptedLLM,
    TextBlock,
    ToolSelection,
    tool_call,
)
from batonflow.llms.answer import Answer
from batonflow.llms.stream import ChatRequest, ToolCallDelta
from batonflow.llms.tool_protocol import tool_selections
from batonflow.values.serializers import JsonSerializer


async def test_an_answer_that_calls_tools_says_so_as_programs_of_llamaindex_ask() -> None:
    llm = ScriptedLLM([["I look.", tool_call("add", a=2, b=40)]])
    chunks = [chunk async for chunk in await llm.astream_chat_with_tools([], "2 + 40?")]
    said = ["tool_calls" in chunk.message.additional_kwargs for chunk in chunks]
    assert (said[0], said[-1]) == (False, True)
    message = chunks[-1].message
    (call,) = message.additional_kwargs["tool_calls"]
    assert (call.type, call.function.name, call.function.arguments) == ("function", "add", '{"a":2,"b":40}')
    assert message.additional_kwargs.get("tool_calls", [])[0].id == call.id
    assert message.additional_kwargs.get("other", 1) == 1
    with pytest.raises(KeyError):
        message.additional_kwargs["other"]


async def test_programs_may_take_them_out() -> None:
    for take in (lambda kept: kept.pop("tool_calls"), lambda kept: kept.__delitem__("tool_calls")):
        message = (await ScriptedLLM([tool_call("add", a=2, b=40)]).achat([ChatMessage("2 + 40?")])).message
        kept: Any = pickle.loads(pickle.dumps(message.additional_kwargs, protocol=0))
        assert len(kept.setdefault("tool_calls", [])) == 1
        take(kept)
        assert "tool_calls" not in kept
        assert kept.pop("tool_calls", None) is None


@pytest.mark.parametrize(
    "take",
    [
        lambda kept: kept.clear(),
        lambda kept: [kept.__setitem__("tool_calls", []), kept.__delitem__("tool_calls")],
        lambda kept: [kept.update(tool_calls=[]), kept.__delitem__("tool_calls")],
        lambda kept: [kept.update(tool_calls=[]), kept.pop("tool_calls")],
    ],
)
async def test_what_was_taken_out_does_not_come_back(take: Callable[[Any], Any]) -> None:
    kept = (await ScriptedLLM([tool_call("add", a=2, b=40)]).achat([ChatMessage("2 + 40?")])).message.additional_kwargs
    take(kept)
    for there in (kept, deepcopy(kept), kept.copy(), dict(kept)):
        assert "tool_calls" not in there
        assert list(there) == list(there.items()) == []
        assert there.get("tool_calls") is None
    with pytest.raises(KeyError):
        del kept["tool_calls"]


async def test_what_a_program_puts_there_stands_for_them() -> None:
    kept = (await ScriptedLLM([tool_call("add", a=2, b=40)]).achat([ChatMessage("2 + 40?")])).message.additional_kwargs
    kept["tool_calls"] = None
    assert (kept["tool_calls"], kept.get("tool_calls", 1), list(kept.items())) == (None, None, [("tool_calls", None)])


def test_a_call_that_has_only_begun_is_among_them() -> None:
    answer = Answer()
    shown = answer.add(ToolCallDelta(index=0, id="c", name="add", arguments='{"a": '))
    assert shown is not None
    (call,) = shown.message.additional_kwargs["tool_calls"]
    assert (call.id, call.function.name, call.function.arguments) == ("c", "add", '{"a": ')
    assert shown.message.blocks == []


async def test_but_no_dump_and_no_size_knows_of_it() -> None:
    message = (await ScriptedLLM([tool_call("add", a=2, b=40)]).achat([ChatMessage("2 + 40?")])).message
    assert message.model_dump()["additional_kwargs"] == {}
    assert not message.additional_kwargs
    assert ChatMessage.model_validate_json(message.model_dump_json()) == message
    serializer = JsonSerializer()
    for one in (message, ChatMessage(message.blocks, additional_kwargs=message.additional_kwargs | {"x": 1})):
        assert "function" not in serializer.serialize(one)
        assert serializer.deserialize(serializer.serialize(one)) == one
        assert "function" not in str(redacted(one))
    assert count_tokens(message) == count_tokens(list(message.blocks))
    assert deepcopy(message).additional_kwargs["tool_calls"] == message.additional_kwargs["tool_calls"]
    assert len(tool_selections(message)) == 1


def _piece(answer: Answer, arguments: str, index: int = 0, **more: Any) -> ChatResponse:
    shown = answer.add(ToolCallDelta(index=index, arguments=arguments, **more))
    assert shown is not None
    return shown


def _calls(response: ChatResponse) -> list[tuple[str, str, str]]:
    calls = response.message.additional_kwargs["tool_calls"]
    return [(call.id, call.function.name, call.function.arguments) for call in calls]


def test_pieces_that_are_read_late_show_the_calls_as_they_were() -> None:
    answer = Answer()
    pieces = [
        _piece(answer, "", id="c"),
        _piece(answer, '{"a": '),
        _piece(answer, "[", index=1, id="d", name="sub"),
        _piece(answer, "1", index=1),
        _piece(answer, "1", name="add"),
        _piece(answer, ""),
        _piece(answer, ", "),
        _piece(answer, "2", index=1),
        _piece(answer, '"b": 2}'),
    ]
    answer.settle()
    assert [_calls(piece) for piece in pieces] == [
        [("c", "", "")],
        [("c", "", '{"a": ')],
        [("c", "", '{"a": '), ("d", "sub", "[")],
        [("c", "", '{"a": '), ("d", "sub", "[1")],
        [("c", "add", '{"a": 1'), ("d", "sub", "[1")],
        [("c", "add", '{"a": 1'), ("d", "sub", "[1")],
        [("c", "add", '{"a": 1, '), ("d", "sub", "[1")],
        [("c", "add", '{"a": 1, '), ("d", "sub", "[12")],
        [("c", "add", '{"a":1,"b":2}'), ("d", "sub", "[12")],
    ]


def test_a_long_call_takes_memory_by_its_length_though_every_message_is_kept() -> None:
    def taken(pieces: int) -> int:
        tracemalloc.start()
        try:
            answer = Answer()
            first = _piece(answer, '{"a": "', id="c", name="write")
            kept = [first.message, *(_piece(answer, "words ").message for _ in range(pieces))]
            assert len(kept) == pieces + 1
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    taken(10)
    # With the square of it, four times as many would take sixteen times as much.
    assert taken(2000) < 6 * taken(500)


async def _asked() -> ChatMessage:
    return (await ScriptedLLM([["I add.", tool_call("add", a=2, b=40)]]).achat([ChatMessage("2 + 40?")])).message


@pytest.mark.parametrize(
    "again",
    [
        lambda message: ChatMessage(message.content, additional_kwargs={**message.additional_kwargs}),
        lambda message: ChatMessage(message.content, additional_kwargs=dict(message.additional_kwargs)),
        lambda message: ChatMessage(additional_kwargs={"tool_calls": message.additional_kwargs["tool_calls"]}),
    ],
)
async def test_a_message_made_anew_has_the_calls_also_when_it_was_written(again: Callable[[Any], ChatMessage]) -> None:
    message = await _asked()
    made = again(message)
    for one in (made, deepcopy(made), ChatMessage.model_validate_json(made.model_dump_json())):
        assert tool_selections(one) == tool_selections(message)
        assert "tool_calls" in one.additional_kwargs


async def test_an_answer_that_is_replaced_by_words_does_not_call() -> None:
    # As a filter does that does not let a call through.
    message = await _asked()
    for kept in (message.additional_kwargs, message.additional_kwargs | {"x": 1}, message.additional_kwargs.copy()):
        made = ChatMessage("I may not do that.", role="assistant", additional_kwargs=kept)
        assert tool_selections(made) == []
        assert "tool_calls" not in made.additional_kwargs
        assert made.additional_kwargs.get("x") == kept.get("x")


async def test_they_can_be_written_as_json_whatever_is_beside_them() -> None:
    kept = (await _asked()).additional_kwargs
    kept["x"] = 1
    assert json.loads(json.dumps(kept)) == {"x": 1}


@pytest.mark.parametrize(
    "again",
    [
        lambda message: ChatMessage(blocks=message.blocks, additional_kwargs=message.additional_kwargs),
        lambda message: ChatMessage(message.blocks, additional_kwargs=message.additional_kwargs | {}),
        lambda message: ChatMessage(message.blocks, additional_kwargs={} | message.additional_kwargs),
        lambda message: ChatMessage(message.blocks, additional_kwargs=message.additional_kwargs.copy()),
        lambda message: ChatMessage(message.blocks, additional_kwargs=copy(message.additional_kwargs)),
    ],
)
async def test_beside_the_blocks_they_are_not_kept_twice(again: Callable[[Any], ChatMessage]) -> None:
    message = await _asked()
    made = again(message)
    assert made.additional_kwargs["tool_calls"] == message.additional_kwargs["tool_calls"]
    assert made.model_dump()["additional_kwargs"] == {}
    assert tool_selections(made) == tool_selections(message)


async def test_of_two_the_calls_of_the_latter_hold() -> None:
    one, other = await _asked(), await _asked()
    both = one.additional_kwargs | other.additional_kwargs
    assert both["tool_calls"] == other.additional_kwargs["tool_calls"]
    assert ({"tool_calls": []} | one.additional_kwargs)["tool_calls"] == one.additional_kwargs["tool_calls"]
    assert (one.additional_kwargs | {"tool_calls": []})["tool_calls"] == []


async def test_no_copy_is_empty_where_there_is_something_beside_them() -> None:
    kept = (await _asked()).additional_kwargs
    kept["x"] = 1
    assert list({**kept}) == list(kept) == list(kept.keys()) == list(kept.copy()) == ["x", "tool_calls"]
    assert dict(kept) == {"x": 1, "tool_calls": kept["tool_calls"]}
    assert ChatMessage("x", additional_kwargs=dict(kept)).additional_kwargs == dict(kept)


async def test_requests_and_selections_take_back_what_messages_give_out() -> None:
    message = await _asked()
    kept = ChatMessage(role="assistant", additional_kwargs={"tool_calls": message.additional_kwargs["tool_calls"]})
    result = ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": tool_selections(message)[0].tool_id})
    llm = OpenAI("m-1", api_key="k")
    body: Any = llm._body(ChatRequest(messages=[ChatMessage("2 + 40?"), kept, result]))
    (call,) = body["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a":2,"b":40}'}
    assert call["id"] == body["messages"][2]["tool_call_id"]
    for one in (llm, MockFunctionCallingLLM()):
        assert one.get_tool_calls_from_response(ChatResponse(message=kept)) == tool_selections(message)


def test_the_objects_of_a_vendors_sdk_are_taken_too() -> None:
    function = SimpleNamespace(name="add", arguments='{"a": 2}')
    calls: list[Any] = [SimpleNamespace(id="c", function=function), SimpleNamespace(function=function)]
    one, other = tool_selections(ChatMessage(additional_kwargs={"tool_calls": calls}))
    assert one == ToolSelection(tool_id="c", tool_name="add", tool_kwargs={"a": 2})
    assert other.tool_id
    with pytest.raises(TypeError, match="is not a tool call"):
        tool_selections(ChatMessage(additional_kwargs={"tool_calls": [TextBlock(text="x")]}))


async def test_arguments_that_are_no_json_go_back_as_they_came() -> None:
    answer = Answer()
    begun = _piece(answer, '{"a": ', id="c", name="add").message
    (call,) = tool_selections(ChatMessage(begun.content, additional_kwargs={**begun.additional_kwargs}))
    assert (call.tool_kwargs, call.invalid_arguments) == ({}, '{"a": ')
    assert json.loads(ChatMessage(additional_kwargs={**begun.additional_kwargs}).model_dump_json())["additional_kwargs"]


async def test_they_are_plain_data_where_a_program_keeps_them_by_themselves() -> None:
    kept = (await _asked()).additional_kwargs
    back = JsonSerializer().deserialize(JsonSerializer().serialize({"kwargs": kept}))["kwargs"]
    assert type(back) is dict
    assert back == {**kept}
    assert back["tool_calls"][0].function.name == "add"

"""What models and tools say to one another, in the words of vendors."""

import pickle
from copy import deepcopy
from typing import Any

import pytest

from batonflow.agents.memory.tokens import count_tokens
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.llms.answer import Answer
from batonflow.llms.stream import ToolCallDelta
from batonflow.llms.tool_protocol import tool_selections, wire_name

LONG = "library__" + "find_everything_about_" * 4


@pytest.mark.parametrize(
    ("name", "sent"),
    [("add", "add"), ("to-do", "to-do"), ("a b.c", "a_b_c"), ("höhe", "h_he"), ("", "_"), ("1a", "1a")],
)
def test_a_tools_name_has_letters_and_digits_only(name: str, sent: str) -> None:
    assert wire_name(name) == sent


def test_a_long_one_is_cut_and_stays_apart_from_others_that_begin_alike() -> None:
    one, other = wire_name(LONG + "a"), wire_name(LONG + "b")
    assert one != other
    assert {len(one), len(other)} == {64}
    assert LONG.startswith(one[:50])
    assert wire_name(one) == one


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


def test_a_call_that_has_only_begun_is_among_them() -> None:
    answer = Answer()
    shown = answer.shown(ToolCallDelta(index=0, id="c", name="add", arguments='{"a": '))
    assert shown is not None
    (call,) = shown.message.additional_kwargs["tool_calls"]
    assert (call.id, call.function.name, call.function.arguments) == ("c", "add", '{"a": ')
    assert shown.message.blocks == []


async def test_but_no_dump_and_no_size_knows_of_it() -> None:
    message = (await ScriptedLLM([tool_call("add", a=2, b=40)]).achat([ChatMessage("2 + 40?")])).message
    assert message.model_dump()["additional_kwargs"] == {}
    assert not message.additional_kwargs
    assert ChatMessage.model_validate_json(message.model_dump_json()) == message
    assert count_tokens(message) == count_tokens(list(message.blocks))
    assert deepcopy(message).additional_kwargs["tool_calls"] == message.additional_kwargs["tool_calls"]
    assert len(tool_selections(message)) == 1

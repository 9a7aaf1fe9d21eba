"""Conversations as models and tools have them, for property tests."""

from typing import Any

from hypothesis import strategies as st

from batonflow.agents.memory.turns import observation
from batonflow.llms import ChatMessage, MessageRole, ToolCallBlock
from batonflow.tools import ToolSelection

__all__ = ["called", "calls_of", "conversations", "of_size", "result", "shows_whole_calls", "turns"]


def of_size(role: str, tokens: int, mark: str = "") -> ChatMessage:
    """A message of so many tokens."""
    return ChatMessage(mark.ljust(4 * tokens, ".")[: 4 * tokens], role=MessageRole(role))


def called(*ids: str, form: str = "blocks") -> ChatMessage:
    """A model's message that calls a tool once for each id, in one of the forms in which calls are kept."""
    if form == "blocks":
        return ChatMessage([ToolCallBlock(tool_call_id=one, tool_name="tide") for one in ids], role="assistant")
    calls: list[Any] = [ToolSelection(tool_id=one, tool_name="tide", tool_kwargs={}) for one in ids]
    if form == "data":
        calls = [{"id": one, "type": "function", "function": {"name": "tide", "arguments": "{}"}} for one in ids]
    return ChatMessage(None, role="assistant", additional_kwargs={"tool_calls": calls})


def result(of: str, tokens: int = 5) -> ChatMessage:
    """What a tool gave back for a call."""
    return ChatMessage("r" * 4 * tokens, role="tool", additional_kwargs={"tool_call_id": of})


def calls_of(message: ChatMessage) -> list[str]:
    """The ids of a message's calls, read independently of the code under test."""
    found = [block.tool_call_id for block in message.blocks if isinstance(block, ToolCallBlock)]
    older = message.model_dump()["additional_kwargs"].get("tool_calls", [])
    found += [call.get("id") or call["tool_id"] for call in older]
    return [one for one in found if one is not None]


def shows_whole_calls(shown: list[ChatMessage], kept: list[ChatMessage]) -> bool:
    """Whether every result shown has its call before it, and every call shown all the results that are kept."""
    ids = [message.additional_kwargs.get("tool_call_id") for message in shown]
    results_of = [message.additional_kwargs.get("tool_call_id") for message in kept]
    for position, one in enumerate(ids):
        if one is not None and not any(one in calls_of(message) for message in shown[:position]):
            return False
    return all(ids.count(call) == results_of.count(call) for message in shown for call in calls_of(message))


@st.composite
def turns(draw: st.DrawFn, number: int = 0) -> list[ChatMessage]:
    """A question, calls with their results in any order, code with what came of it, and perhaps an answer."""
    sizes = st.integers(1, 30)
    said = [of_size("user", draw(sizes), f"q{number} ")]
    for round_ in range(draw(st.integers(0, 2))):
        ids = [f"{number}/{round_}/{call}" for call in range(draw(st.integers(1, 3)))]
        said.append(called(*ids, form=draw(st.sampled_from(["blocks", "selections", "data"]))))
        said += [result(one, draw(sizes)) for one in draw(st.permutations(ids))]
    for round_ in range(draw(st.integers(0, 2))):
        said.append(of_size("assistant", draw(sizes), f"c{number} "))
        said.append(observation(f"o{number}/{round_} ".ljust(4 * draw(sizes), ".")))
    if draw(st.booleans()):
        said.append(of_size("assistant", draw(sizes), f"a{number} "))
    return said


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """Several turns; results may come late, when the user has gone on already, or never."""
    said: list[ChatMessage] = []
    late: list[ChatMessage] = []
    if draw(st.booleans()):
        said.append(of_size("system", draw(st.integers(1, 10))))
    for number in range(draw(st.integers(0, 6))):
        for message in draw(turns(number)):
            if message.role == "tool":
                fate = draw(st.sampled_from(["now", "now", "now", "late", "never"]))
                if fate != "now":
                    late += [message] if fate == "late" else []
                    continue
            said.append(message)
        if late and draw(st.booleans()):
            said += late
            late = []
    return said + late

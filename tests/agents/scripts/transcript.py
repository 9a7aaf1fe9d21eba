"""What a request shows, in no vendor's form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from batonflow.llms import ChatMessage
from batonflow.llms.anthropic import anthropic_messages
from batonflow.llms.openai import openai_messages
from batonflow.llms.openai_responses import responses_input

__all__ = ["Entry", "bodies", "entries"]


@dataclass(frozen=True)
class Entry:
    """A text, a group of calls, or a result.

    Args:
        role: Whose it is.
        text: What it says.
        calls: The ids of the calls in it.
        id: For a result: of which call.
    """

    role: Literal["user", "assistant", "result"]
    text: str
    calls: tuple[str, ...] = ()
    id: str = ""


def bodies(messages: Sequence[ChatMessage]) -> dict[str, dict[str, Any]]:
    """What each API's adapter makes of ``messages``, by the path it is sent to."""
    return {
        "/chat/completions": {"messages": openai_messages(messages)},
        "/responses": {"input": responses_input(messages)},
        "/messages": {"messages": anthropic_messages(messages)[1]},
    }


def entries(body: Mapping[str, Any]) -> list[Entry]:
    """What a body of any of the three APIs shows, without what the system says."""
    return list(_of_items(body["input"]) if "input" in body else _of_messages(body["messages"]))


def _of_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    for message in messages:
        content, role = message.get("content"), message["role"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        if role == "assistant":
            used = [block["id"] for block in blocks if block["type"] == "tool_use"]
            calls = used or [call["id"] for call in message.get("tool_calls") or ()]
            yield Entry("assistant", text, tuple(calls))
        elif role == "tool":
            yield Entry("result", text, id=message["tool_call_id"])
        elif role == "user":
            for block in blocks:
                if block["type"] == "tool_result":
                    told = "\n".join(inner["text"] for inner in block["content"])
                    yield Entry("result", told, id=block["tool_use_id"])
                else:
                    yield Entry("user", block["text"])


def _of_items(items: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    calls: list[str] = []
    for item in [*items, {"type": "end"}]:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(item["call_id"])
            continue
        if calls:
            yield Entry("assistant", "", tuple(calls))
            calls = []
        if kind == "function_call_output":
            yield Entry("result", item["output"], id=item["call_id"])
        elif kind == "message" and item["role"] in ("user", "assistant"):
            yield Entry(item["role"], item["content"])

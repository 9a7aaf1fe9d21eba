"""What the vendors demand of calls and their results in a request, judged on the body as it is sent.

Whatever the API: each call has exactly one result, results come in the order of the calls, and nothing stands between
them and the message that called. Where an API is more lenient than that, these rules are not: a model should never be
shown results in another order than that of its calls.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["BrokenRule", "check", "check_anthropic", "check_chat", "check_responses"]

_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
# What a model of the Responses API says between its calls without ending the group.
_AMONG_CALLS = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call")


class BrokenRule(AssertionError):
    """A request that the vendor would refuse; the text names the place and the id."""


def check(path: str, body: Mapping[str, Any]) -> None:
    """Judge a body by the rules of the API that is served under ``path``.

    Raises:
        BrokenRule: The vendor would refuse it.
        ValueError: No API that has rules here is served under ``path``.
    """
    for end, rules in _RULES.items():
        if path.endswith(end):
            rules(body)
            return
    raise ValueError(f"no rules for {path}; there are some for {', '.join(_RULES)}")


def _paired(calls: Sequence[str], results: Sequence[str], place: str) -> None:
    """Whether ``results`` answers ``calls``, one to one and in order."""
    for number, call_id in enumerate(calls):
        if not call_id:
            raise BrokenRule(f"{place}: call {number} has no id")
        if call_id in calls[:number]:
            raise BrokenRule(f"{place}: the id {call_id!r} names two calls")
    for number, call_id in enumerate(results):
        if call_id not in calls:
            raise BrokenRule(f"{place}: result {number} answers {call_id!r}, which was not called there")
        if call_id in results[:number]:
            raise BrokenRule(f"{place}: {call_id!r} has two results")
    missing = [call_id for call_id in calls if call_id not in results]
    if missing:
        raise BrokenRule(f"{place}: {missing[0]!r} has no result directly behind the message that called")
    if list(calls) != list(results):
        raise BrokenRule(f"{place}: the results come in the order {list(results)}, the calls were {list(calls)}")


def _named(call: Mapping[str, Any], place: str) -> None:
    """Whether a call names a function as vendors take names, also one that there is not."""
    if not _NAME.fullmatch(str(call.get("name") or "")):
        raise BrokenRule(f"{place}: {call.get('name')!r} is no name of a function")


# --- chat completions -------------------------------------------------------------------------------------------------


def check_chat(body: Mapping[str, Any]) -> None:
    """Rules of OpenAI's chat completions: ``tool`` messages directly behind the ``assistant`` that called.

    Raises:
        BrokenRule: The request breaks one.
    """
    messages: list[dict[str, Any]] = body["messages"]
    if not messages:
        raise BrokenRule("messages: there are none")
    place = 0
    while place < len(messages):
        message, here = messages[place], f"messages[{place}]"
        match message.get("role"):
            case "system" | "developer" | "user":
                if message.get("content") is None:
                    raise BrokenRule(f"{here}: a message of the {message['role']} without content")
                place += 1
            case "assistant":
                place = _check_chat_answer(messages, place)
            case "tool":
                raise BrokenRule(f"{here}: the result {message.get('tool_call_id')!r} is behind no message that called")
            case role:
                raise BrokenRule(f"{here}: there is no role {role!r}")


def _check_chat_answer(messages: Sequence[Mapping[str, Any]], place: int) -> int:
    """Check an assistant's message with its results; returns the position behind them."""
    message, here = messages[place], f"messages[{place}]"
    calls: list[dict[str, Any]] | None = message.get("tool_calls")
    if calls is None:
        if message.get("content") is None:
            raise BrokenRule(f"{here}: an assistant's message with neither content nor calls")
        return place + 1
    if not calls:
        raise BrokenRule(f"{here}: tool_calls is empty")
    for number, call in enumerate(calls):
        function = call.get("function") or {}
        if call.get("type") != "function" or not isinstance(function.get("arguments"), str):
            raise BrokenRule(f"{here}: call {number}, {call.get('id')!r}, is no call of a function with arguments")
        _named(function, f"{here}: call {number}")
    end = place + 1
    while end < len(messages) and messages[end].get("role") == "tool":
        if messages[end].get("content") is None:
            raise BrokenRule(f"messages[{end}]: the result {messages[end].get('tool_call_id')!r} has no content")
        end += 1
    results = [str(one.get("tool_call_id")) for one in messages[place + 1 : end]]
    _paired([str(call.get("id") or "") for call in calls], results, here)
    return end


# --- Responses --------------------------------------------------------------------------------------------------------


def check_responses(body: Mapping[str, Any]) -> None:
    """Rules of OpenAI's Responses: a group of ``function_call`` items, then one ``function_call_output`` for each.

    Behind a thought stands what it led to.

    Raises:
        BrokenRule: The request breaks one.
    """
    items: list[dict[str, Any]] = body["input"]
    if not items:
        raise BrokenRule("input: it is empty")
    _check_thoughts(items)
    calls: list[str] = []
    begin, place = 0, 0
    while place < len(items):
        item, here = items[place], f"input[{place}]"
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if not calls:
                raise BrokenRule(f"{here}: the result {item.get('call_id')!r} is behind no call")
            end = place
            while end < len(items) and items[end].get("type") == "function_call_output":
                if items[end].get("output") is None:
                    raise BrokenRule(f"input[{end}]: the result {items[end].get('call_id')!r} has no output")
                end += 1
            _paired(calls, [str(one.get("call_id")) for one in items[place:end]], f"input[{begin}]")
            calls, place = [], end
            continue
        if kind == "function_call":
            if not isinstance(item.get("arguments"), str):
                raise BrokenRule(f"{here}: the call {item.get('call_id')!r} has no arguments")
            _named(item, here)
            begin = begin if calls else place
            calls.append(str(item.get("call_id") or ""))
        elif kind == "message":
            if item.get("role") not in ("user", "assistant", "system", "developer"):
                raise BrokenRule(f"{here}: there is no role {item.get('role')!r}")
            if item.get("content") is None:
                raise BrokenRule(f"{here}: a message without content")
        if calls and kind != "function_call" and kind not in _AMONG_CALLS:
            _paired(calls, [], f"input[{begin}]")
        place += 1
    _paired(calls, [], f"input[{begin}]")


def _check_thoughts(items: Sequence[Mapping[str, Any]]) -> None:
    for place, item in enumerate(items):
        if item.get("type") == "reasoning":
            behind = items[place + 1] if place + 1 < len(items) else {"type": "function_call_output"}
            if behind.get("type") == "function_call_output" or behind.get("role", "assistant") != "assistant":
                raise BrokenRule(f"input[{place}]: the thought {item.get('id')!r} is without what it led to")


# --- Anthropic --------------------------------------------------------------------------------------------------------


def check_anthropic(body: Mapping[str, Any]) -> None:
    """Rules of Anthropic's messages: ``tool_result`` blocks first in the user's message behind the one that called.

    Ids of calls are unique in the whole request, roles take turns, the user speaks first and last.

    Raises:
        BrokenRule: The request breaks one.
    """
    messages: list[dict[str, Any]] = body["messages"]
    if not messages:
        raise BrokenRule("messages: there are none")
    calls: list[str] = []
    seen: dict[str, int] = {}
    for place, message in enumerate(messages):
        here, expected = f"messages[{place}]", "assistant" if place % 2 else "user"
        if message.get("role") != expected:
            raise BrokenRule(f"{here}: the role is {message.get('role')!r} where the {expected}'s turn is")
        blocks = _anthropic_blocks(message, here)
        if expected == "user":
            _check_anthropic_results(blocks, calls, here)
            calls = []
            continue
        calls = list(_anthropic_calls(blocks, here))
        for call_id in calls:
            if call_id in seen:
                raise BrokenRule(f"{here}: the id {call_id!r} names a call of messages[{seen[call_id]}] too")
        _paired(calls, calls, here)
        seen |= dict.fromkeys(calls, place)
    _paired(calls, [], f"messages[{len(messages) - 1}]")
    if len(messages) % 2 == 0:
        raise BrokenRule(f"messages[{len(messages) - 1}]: the assistant speaks last")


def _anthropic_blocks(message: Mapping[str, Any], here: str) -> list[dict[str, Any]]:
    content: str | list[dict[str, Any]] | None = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not blocks:
        raise BrokenRule(f"{here}: a message without content")
    for number, block in enumerate(blocks):
        if block.get("type") == "text" and not str(block.get("text")).strip():
            raise BrokenRule(f"{here}: block {number} is an empty text")
    return blocks


def _check_anthropic_results(blocks: Sequence[Mapping[str, Any]], calls: Sequence[str], here: str) -> None:
    results: list[str] = []
    for number, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            raise BrokenRule(f"{here}: block {number}, {block.get('id')!r}, is a call by the user")
        if block.get("type") == "tool_result":
            if len(results) != number:
                raise BrokenRule(f"{here}: something stands before block {number}, result {block.get('tool_use_id')!r}")
            results.append(str(block.get("tool_use_id")))
    _paired(calls, results, here)


def _anthropic_calls(blocks: Sequence[Mapping[str, Any]], here: str) -> Iterator[str]:
    for number, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            raise BrokenRule(f"{here}: block {number}, result {block.get('tool_use_id')!r}, is the assistant's")
        if block.get("type") != "tool_use":
            continue
        call_id = str(block.get("id") or "")
        if not _ANTHROPIC_ID.fullmatch(call_id):
            raise BrokenRule(
                f"{here}: block {number} has the id {call_id!r}, which may hold letters, digits, _ and - only"
            )
        _named(block, f"{here}: the call {call_id!r}")
        if not isinstance(block.get("input"), dict):
            raise BrokenRule(f"{here}: the call {call_id!r} has an input that is no object")
        yield call_id


_RULES: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "/chat/completions": check_chat,
    "/responses": check_responses,
    "/messages": check_anthropic,
}

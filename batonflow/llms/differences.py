"""Differences between two calls of a model, as text for people."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

__all__ = [
    "TextDifference", "answer_difference", "comparable", "message_as_text", "renumbered", "request_difference",
    "request_differences",
]  # fmt: skip

Data = Mapping[str, Any]

_PARTS: dict[str, Any] = {"messages": [], "tool_specs": [], "options": {}, "answer": None}


@dataclass(frozen=True)
class TextDifference:
    """A difference between two texts.

    Attributes:
        where: The place of the difference, such as ``"message 1 (system)"``.
        left: The first text; empty if it is missing.
        right: The second text.
    """

    where: str
    left: str
    right: str

    def lines(self, left: str, right: str) -> list[str]:
        """Return the lines of a unified diff.

        Args:
            left: The name of the first text.
            right: The name of the second text.
        """
        texts = self.left.splitlines(), self.right.splitlines()
        return list(difflib.unified_diff(*texts, left, right, lineterm=""))


def comparable(call: Data, ignore: Sequence[str] = ()) -> dict[str, Any]:
    """Return the request and the answer of a call as data that two runs can share.

    Ids of tool calls become numbers in their order.

    Args:
        call: The data of a ``ModelCall``, with messages, tools and answer as plain data.
        ignore: Regular expressions; the texts that match them become ``...``.
    """
    found = {name: call.get(name) or default for name, default in _PARTS.items()}
    found = cast("dict[str, Any]", renumbered(found, {}))
    return cast("dict[str, Any]", _without(found, [re.compile(one) for one in ignore])) if ignore else found


def renumbered(value: Any, ids: dict[str, str]) -> Any:
    """Return data with the ids of tool calls replaced by their numbers.

    Args:
        value: Data of messages.
        ids: The new ids, to which the ids found are added.
    """
    if isinstance(value, list):
        return [renumbered(inner, ids) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, inner in cast("dict[str, Any]", value).items():
        if name in {"tool_call_id", "tool_id"} and isinstance(inner, str):
            made[name] = ids.setdefault(inner, f"call-{len(ids) + 1}")
        elif name == "tool_call_extras" and isinstance(inner, dict):
            extras = cast("dict[str, Any]", inner)
            made[name] = {ids.get(one, one): extra for one, extra in extras.items()}
        else:
            made[name] = renumbered(inner, ids)
    return made


def _without(value: Any, ignore: Sequence[re.Pattern[str]]) -> Any:
    if isinstance(value, str):
        for pattern in ignore:
            value = pattern.sub("...", value)
        return value
    if isinstance(value, list):
        return [_without(one, ignore) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _without(one, ignore) for name, one in cast("dict[str, Any]", value).items()}
    return value


def request_difference(left: Data, right: Data) -> TextDifference | None:
    """Return the first difference of two requests: in a message, a tool or an option.

    Args:
        left: The first call, from ``comparable``.
        right: The second call.
    """
    return next(_differences(left, right), None)


def request_differences(left: Data, right: Data) -> list[TextDifference]:
    """Return all differences of two requests.

    Args:
        left: The first call, from ``comparable``.
        right: The second call.
    """
    return list(_differences(left, right))


def _differences(left: Data, right: Data) -> Iterator[TextDifference]:
    messages: list[tuple[Any, Any]] = list(zip_longest(left["messages"], right["messages"]))
    for number, (one, other) in enumerate(messages, start=1):
        if one != other:
            role = (one or other).get("role", "")
            yield _of(f"message {number} ({role})", one, other, message_as_text)
    tools, others = ({tool["name"]: tool for tool in call["tool_specs"]} for call in (left, right))
    for name in dict.fromkeys([*tools, *others]):
        if tools.get(name) != others.get(name):
            yield _of(f"tool {name}", tools.get(name), others.get(name), _indented)
    if list(tools) != list(others):
        yield TextDifference("order of the tools", "\n".join(tools), "\n".join(others))
    for name in dict.fromkeys([*left["options"], *right["options"]]):
        one, other = (call["options"].get(name) for call in (left, right))
        if one != other:
            yield _of(f"option {name}", one, other, _indented)


def answer_difference(left: Data, right: Data) -> TextDifference | None:
    """Return the difference of two answers, if there is one.

    Args:
        left: The first call, from ``comparable``.
        right: The second call.
    """
    one, other = left["answer"], right["answer"]
    return None if one == other else _of("answer", one, other, message_as_text)


def _of(where: str, left: Any, right: Any, as_text: Any) -> TextDifference:
    one, other = ("" if value is None else as_text(value) for value in (left, right))
    if one == other:  # the difference is in data that the short form leaves out
        one, other = _indented(left), _indented(right)
    return TextDifference(where, one, other)


def message_as_text(message: Data) -> str:
    """Return a message as text: its text and its tool calls.

    Args:
        message: The data of a ``ChatMessage``.
    """
    lines: list[str] = []
    for block in message.get("blocks") or ():
        if block.get("block_type") == "text":
            lines.append(str(block.get("text", "")))
        elif block.get("block_type") == "tool_call":
            lines.append(f"calls {block.get('tool_name')}({_short(block.get('tool_kwargs'))})")
        else:
            lines.append(_short(block))
    return "\n".join(lines)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)

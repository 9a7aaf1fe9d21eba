"""Events of records in a few words: what agents say is nested, and its dump says little in a line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from batonflow.cli.text import call, one_line, shown, summary

__all__ = ["briefly", "content_of", "field", "message_text"]

Fields = Mapping[str, Any]

_LONGEST = 100


def briefly(qualified_name: str, value: Any) -> str:
    """An event in a line.

    Args:
        qualified_name: Of its class.
        value: Its fields as data.
    """
    name = qualified_name.rpartition(".")[2]
    way = _WAYS.get(qualified_name)
    if way is None or not isinstance(value, Mapping) or "$large" in value:
        return summary(name, value)
    return f"{name} {way(cast('Fields', value))}".rstrip()


def field(value: Any, name: str) -> Any:
    """A field of an object given as data, None when there is none."""
    return _mapping(value).get(name)


def _mapping(value: Any) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _texts(blocks: Any) -> str:
    found = cast("list[Any]", blocks) if isinstance(blocks, list) else list[Any]()
    return "".join(str(_mapping(block).get("text", "")) for block in found)


def message_text(message: Any) -> str:
    """The text of a message given as data."""
    fields = _mapping(message)
    return str(fields.get("content") or _texts(fields.get("blocks")))


def content_of(output: Any) -> str:
    """The text of a tool's output given as data."""
    return message_text(output)


def _input(value: Fields) -> str:
    messages = cast("Sequence[Any]", value.get("input") or ())
    return f"{one_line(str(value.get('current_agent_name')))}: {len(messages)} messages"


def _output(value: Fields) -> str:
    calls = cast("Sequence[Any]", value.get("tool_calls") or ())
    names = [one_line(str(_mapping(one).get("tool_name"))) for one in calls]
    said = message_text(value.get("response"))
    parts = ([shown(said, _LONGEST)] if said else []) + ([f"calls {', '.join(names)}"] if names else [])
    return f"{one_line(str(value.get('current_agent_name')))}: {'; '.join(parts)}"


def _call(value: Fields) -> str:
    return call(str(value.get("tool_name")), _mapping(value.get("tool_kwargs")))


def _result(value: Fields) -> str:
    output = _mapping(value.get("tool_output"))
    failed = "failed: " if output.get("is_error") else ""
    return f"{one_line(str(value.get('tool_name')))}: {failed}{shown(content_of(output), _LONGEST)}"


def _required(value: Fields) -> str:
    return f"{one_line(str(value.get('id')))}: {call(str(value.get('tool_name')), _mapping(value.get('arguments')))}"


def _response(value: Fields) -> str:
    said = "approved" if value.get("approved") else "denied"
    reason = f": {shown(value['reason'])}" if value.get("reason") else ""
    other = f" with {shown(value['arguments'])}" if value.get("arguments") else ""
    return f"{one_line(str(value.get('id')))}{'' if 'approved' not in value else f' {said}{other}{reason}'}"


def _stop(value: Fields) -> str:
    result = value.get("result")
    answer = _mapping(result)
    if "current_agent_name" in answer:
        return shown(message_text(answer.get("response")), _LONGEST)
    return "" if result is None else shown(result, _LONGEST)


_AGENTS = "batonflow.agents"
_WAYS: dict[str, Callable[[Fields], str]] = {
    f"{_AGENTS}.events.AgentInput": _input,
    f"{_AGENTS}.events.AgentSetup": _input,
    f"{_AGENTS}.events.AgentOutput": _output,
    f"{_AGENTS}.events.ToolCall": _call,
    f"{_AGENTS}.events.ToolCallResult": _result,
    f"{_AGENTS}.approvals.ApprovalRequired": _required,
    f"{_AGENTS}.approvals.ApprovalResponse": _response,
    "batonflow.workflow_core.events.StopEvent": _stop,
}

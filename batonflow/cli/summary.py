"""Events of records in one short line each. Agents' events are nested and would be unreadable as a dump."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from batonflow.agents.approvals import ApprovalRequired, ApprovalResponse
from batonflow.agents.events import AgentInput, AgentOutput, AgentSetup, ToolCall, ToolCallResult
from batonflow.cli.text import call, one_line, shown, summary
from batonflow.values.names import qualified_name
from batonflow.workflow_core.events import StopEvent

__all__ = ["event_line", "field", "message_text"]

Fields = Mapping[str, Any]

_LONGEST = 100


def event_line(class_name: str, value: Any) -> str:
    """Return an event in one line.

    Args:
        class_name: The qualified name of its class.
        value: Its fields as data.
    """
    name = class_name.rpartition(".")[2]
    describe = _DESCRIPTIONS.get(class_name)
    if describe is None or not isinstance(value, Mapping) or "$large" in value:
        return summary(name, value)
    return f"{name} {describe(cast('Fields', value))}".rstrip()


def field(value: Any, name: str) -> Any:
    """Return a field of an object given as data, or None."""
    return _mapping(value).get(name)


def _mapping(value: Any) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _texts(blocks: Any) -> str:
    found = cast("list[Any]", blocks) if isinstance(blocks, list) else list[Any]()
    return "".join(str(_mapping(block).get("text", "")) for block in found)


def message_text(message: Any) -> str:
    """Return the text of a message or of a tool's output, given as data."""
    fields = _mapping(message)
    return str(fields.get("content") or _texts(fields.get("blocks")))


def _input(value: Fields) -> str:
    messages = cast("Sequence[Any]", value.get("input") or ())
    return (
        f"{one_line(str(value.get('current_agent_name')))}: {len(messages)} message{'' if len(messages) == 1 else 's'}"
    )


def _output(value: Fields) -> str:
    calls = cast("Sequence[Any]", value.get("tool_calls") or ())
    names = [one_line(str(_mapping(one).get("tool_name"))) for one in calls]
    text = message_text(value.get("response"))
    parts = ([shown(text, _LONGEST)] if text else []) + ([f"calls {', '.join(names)}"] if names else [])
    return f"{one_line(str(value.get('current_agent_name')))}: {'; '.join(parts)}"


def _call(value: Fields) -> str:
    return call(str(value.get("tool_name")), _mapping(value.get("tool_kwargs")))


def _result(value: Fields) -> str:
    output = _mapping(value.get("tool_output"))
    failed = "failed: " if output.get("is_error") else ""
    return f"{one_line(str(value.get('tool_name')))}: {failed}{shown(message_text(output), _LONGEST)}"


def _required(value: Fields) -> str:
    return f"{one_line(str(value.get('id')))}: {call(str(value.get('tool_name')), _mapping(value.get('arguments')))}"


def _response(value: Fields) -> str:
    answer = "approved" if value.get("approved") else "denied"
    reason = f": {shown(value['reason'])}" if value.get("reason") else ""
    other = f" with {shown(value['arguments'])}" if value.get("arguments") else ""
    return f"{one_line(str(value.get('id')))}{'' if 'approved' not in value else f' {answer}{other}{reason}'}"


def _stop(value: Fields) -> str:
    result = value.get("result")
    answer = _mapping(result)
    if "current_agent_name" in answer:
        return shown(message_text(answer.get("response")), _LONGEST)
    return "" if result is None else shown(result, _LONGEST)


_DESCRIPTIONS: dict[str, Callable[[Fields], str]] = {
    qualified_name(cls): describe
    for cls, describe in {
        AgentInput: _input,
        AgentSetup: _input,
        AgentOutput: _output,
        ToolCall: _call,
        ToolCallResult: _result,
        ApprovalRequired: _required,
        ApprovalResponse: _response,
        StopEvent: _stop,
    }.items()
}

"""Events about calls of tools."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["ToolCallEndEvent", "ToolCallStartEvent"]


class ToolCallStartEvent(BaseEvent):
    """The body of a tool is about to run.

    Args:
        tool_name: Name of the tool.
        tool_kwargs: Its validated arguments.
    """

    tool_name: str
    tool_kwargs: dict[str, Any]


class ToolCallEndEvent(BaseEvent):
    """The body of a tool has returned.

    Args:
        tool_name: Name of the tool.
        output: The content in at most 200 characters.
        is_error: Whether the output reports an error to the model.
    """

    tool_name: str
    output: str = ""
    is_error: bool = False

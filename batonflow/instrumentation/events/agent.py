"""Events about agents."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = [
    "AgentChatWithStepEndEvent",
    "AgentChatWithStepStartEvent",
    "AgentRunStepEndEvent",
    "AgentRunStepStartEvent",
    "AgentToolCallEvent",
]


class AgentRunStepStartEvent(BaseEvent):
    """A turn of an agent starts.

    Args:
        task_id: The run.
        step: The turn: its number, or an object that describes it.
        input: The user's message as text.
    """

    task_id: str
    step: Any = None
    input: str | None = None


class AgentRunStepEndEvent(BaseEvent):
    """A turn of an agent ended; ``step_output`` is its AgentOutput."""

    step_output: Any


class AgentChatWithStepStartEvent(BaseEvent):
    """A conversation with an agent starts with the user's message."""

    user_msg: str


class AgentChatWithStepEndEvent(BaseEvent):
    """A conversation with an agent ended with its answer."""

    response: Any = None


class AgentToolCallEvent(BaseEvent):
    """An agent calls a tool.

    Args:
        arguments: The arguments as JSON text.
        tool: The tool's metadata.
    """

    arguments: str
    tool: Any

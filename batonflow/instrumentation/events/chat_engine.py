"""Events about the answers of chat engines."""

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["StreamChatDeltaReceivedEvent", "StreamChatEndEvent", "StreamChatErrorEvent", "StreamChatStartEvent"]


class StreamChatStartEvent(BaseEvent):
    """A chat engine begins to read an answer."""


class StreamChatDeltaReceivedEvent(BaseEvent):
    """A piece of the answer has come."""

    delta: str


class StreamChatErrorEvent(BaseEvent):
    """The answer ended with an error."""

    exception: Exception


class StreamChatEndEvent(BaseEvent):
    """The answer is complete."""

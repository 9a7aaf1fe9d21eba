"""Events about calls to language models.

Messages and responses are the objects of ``batonflow.llms``; the core does not know their classes.
"""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = [
    "LLMChatEndEvent",
    "LLMChatInProgressEvent",
    "LLMChatStartEvent",
    "LLMCompletionEndEvent",
    "LLMCompletionInProgressEvent",
    "LLMCompletionStartEvent",
    "LLMPredictEndEvent",
    "LLMPredictStartEvent",
    "LLMStructuredPredictEndEvent",
    "LLMStructuredPredictInProgressEvent",
    "LLMStructuredPredictStartEvent",
]


class LLMPredictStartEvent(BaseEvent):
    """A prompt template is about to be filled and sent."""

    template: Any
    template_args: dict[str, Any] | None = None


class LLMPredictEndEvent(BaseEvent):
    """The text of the answer to a prompt template."""

    output: str


class LLMStructuredPredictStartEvent(BaseEvent):
    """A prompt template is about to be sent for an answer of type ``output_cls``."""

    output_cls: Any
    template: Any
    template_args: dict[str, Any] | None = None


class LLMStructuredPredictInProgressEvent(BaseEvent):
    """The received part of a structured answer."""

    output: Any


class LLMStructuredPredictEndEvent(BaseEvent):
    """A complete structured answer."""

    output: Any


class LLMCompletionStartEvent(BaseEvent):
    """A prompt is about to be completed."""

    prompt: str
    additional_kwargs: dict[str, Any]
    model_dict: dict[str, Any]


class LLMCompletionInProgressEvent(BaseEvent):
    """The received part of a completion."""

    prompt: str
    response: Any


class LLMCompletionEndEvent(BaseEvent):
    """A complete completion."""

    prompt: str
    response: Any


class LLMChatStartEvent(BaseEvent):
    """Messages are about to be sent to a model.

    Args:
        messages: The conversation.
        additional_kwargs: Other arguments of the call.
        model_dict: The description of the model, with ``class_name`` and ``model``.
    """

    messages: list[Any]
    additional_kwargs: dict[str, Any]
    model_dict: dict[str, Any]


class LLMChatInProgressEvent(BaseEvent):
    """The received part of a response."""

    messages: list[Any]
    response: Any


class LLMChatEndEvent(BaseEvent):
    """A complete response; of a stream its last chunk, None for an empty stream."""

    messages: list[Any]
    response: Any = None

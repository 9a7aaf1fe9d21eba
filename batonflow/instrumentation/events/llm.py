"""Events about calls of language models.

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
    """The text that came back for a prompt template."""

    output: str


class LLMStructuredPredictStartEvent(BaseEvent):
    """A prompt template is about to be sent, to be answered as an instance of ``output_cls``."""

    output_cls: Any
    template: Any
    template_args: dict[str, Any] | None = None


class LLMStructuredPredictInProgressEvent(BaseEvent):
    """The part of a structured answer that has arrived."""

    output: Any


class LLMStructuredPredictEndEvent(BaseEvent):
    """A structured answer, whole."""

    output: Any


class LLMCompletionStartEvent(BaseEvent):
    """A prompt is about to be completed."""

    prompt: str
    additional_kwargs: dict[str, Any]
    model_dict: dict[str, Any]


class LLMCompletionInProgressEvent(BaseEvent):
    """The part of a completion that has arrived."""

    prompt: str
    response: Any


class LLMCompletionEndEvent(BaseEvent):
    """A completion, whole."""

    prompt: str
    response: Any


class LLMChatStartEvent(BaseEvent):
    """Messages are about to be sent to a model.

    Args:
        messages: The conversation.
        additional_kwargs: Other arguments of the call.
        model_dict: What describes the model: ``class_name``, ``model``.
    """

    messages: list[Any]
    additional_kwargs: dict[str, Any]
    model_dict: dict[str, Any]


class LLMChatInProgressEvent(BaseEvent):
    """The part of an answer that has arrived."""

    messages: list[Any]
    response: Any


class LLMChatEndEvent(BaseEvent):
    """An answer, whole; of a streamed one its last piece, None when there was none."""

    messages: list[Any]
    response: Any = None

"""Decorators for the methods of a model of one's own: handlers are told of its calls."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from batonflow.llms.telling import CHAT, COMPLETION, told

__all__ = ["llm_chat_callback", "llm_completion_callback"]

_F = TypeVar("_F", bound=Callable[..., Any])


def llm_chat_callback() -> Callable[[_F], _F]:
    """A decorator for ``chat``, ``achat``, ``stream_chat`` and ``astream_chat`` that tells handlers of each call.

    They hear LLMChatStartEvent, LLMChatInProgressEvent for each piece of an answer that is streamed, and
    LLMChatEndEvent, or ExceptionEvent when there is no answer or it is left before its end. What the method calls of
    its own model is a part of the call, and is not told again. With nobody listening it costs a truth test.

    Example:
        >>> class Mine(LLM):
        ...     @llm_chat_callback()
        ...     def chat(self, messages, **kwargs): ...
    """
    return partial(told, CHAT)


def llm_completion_callback() -> Callable[[_F], _F]:
    """The same for ``complete``, ``acomplete``, ``stream_complete`` and ``astream_complete``.

    They hear LLMCompletionStartEvent, LLMCompletionInProgressEvent, LLMCompletionEndEvent and ExceptionEvent.

    Example:
        >>> class Mine(CustomLLM):
        ...     @llm_completion_callback()
        ...     def complete(self, prompt, formatted=False, **kwargs): ...
    """
    return partial(told, COMPLETION)

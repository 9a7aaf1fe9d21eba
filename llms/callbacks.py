"""Decorators that models written for LlamaIndex have on their methods."""

from collections.abc import Callable
from typing import TypeVar

__all__ = ["llm_chat_callback", "llm_completion_callback"]

_F = TypeVar("_F", bound=Callable[..., object])


def llm_chat_callback() -> Callable[[_F], _F]:
    """A decorator for ``chat``, ``achat``, ``stream_chat`` and ``astream_chat`` that leaves them as they are.

    Spans and events of a call come from ``LLM`` itself.

    Example:
        >>> class Mine(LLM):
        ...     @llm_chat_callback()
        ...     def chat(self, messages, **kwargs): ...
    """
    return _unchanged


def llm_completion_callback() -> Callable[[_F], _F]:
    """The same for ``complete``, ``acomplete``, ``stream_complete`` and ``astream_complete``.

    Example:
        >>> class Mine(CustomLLM):
        ...     @llm_completion_callback()
        ...     def complete(self, prompt, formatted=False, **kwargs): ...
    """
    return _unchanged


def _unchanged(function: _F) -> _F:
    return function

"""Tells whether a model's answer comes straight from the stream that its adapter writes."""

import asyncio
from collections.abc import AsyncGenerator
from types import MethodType
from typing import Any

from batonflow.llms.stream import StreamEvent

__all__ = ["generated", "is_own"]


def is_own(method: Any, function: Any) -> bool:
    """Whether a bound method is a function itself: whoever overrides or wraps one means it to be called.

    Args:
        method: As an object has it.
        function: As the class that wrote it has it.
    """
    # Wrappers hand on what the method that they wrap has.
    return type(method) is MethodType and method.__func__ is function


def generated(events: AsyncGenerator[StreamEvent, None], model: str) -> AsyncGenerator[StreamEvent, None]:
    """What a ``_stream`` gave.

    Args:
        events: What it gave.
        model: The name of its class.

    Raises:
        TypeError: It is no asynchronous generator.
    """
    if not hasattr(events, "aclose"):
        if asyncio.iscoroutine(events):
            events.close()
        raise TypeError(f"{model}._stream is no asynchronous generator: write it with `yield`")
    return events

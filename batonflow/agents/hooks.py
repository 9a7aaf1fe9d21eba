"""Functions of the user that an agent calls: hooks around tool calls, and guards of messages."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.llms import ChatMessage
from batonflow.tools import ToolOutput
from batonflow.tools.call import error_output
from batonflow.tools.schema import context_for
from batonflow.workflow_core import Context

__all__ = [
    "AfterTool",
    "BeforeTool",
    "Block",
    "Deny",
    "Guard",
    "Replace",
    "call_hook",
    "failure_of",
    "is_cancelled",
    "name_of",
]


@dataclass(frozen=True)
class Deny:
    """The decision that a tool does not run.

    Args:
        reason: The text for the model.
    """

    reason: str


@dataclass(frozen=True)
class Replace:
    """The decision that a tool runs with other arguments, which are validated like the model's.

    Args:
        arguments: All arguments by name.
    """

    arguments: dict[str, Any]


@dataclass(frozen=True)
class Block:
    """The decision to block a message, which ends the run.

    Args:
        reason: The answer of the run instead.
    """

    reason: str


BeforeTool = Callable[[Context[Any], ToolCall], Deny | Replace | Awaitable[Deny | Replace | None] | None]
AfterTool = Callable[[Context[Any], ToolCallResult], ToolOutput | Awaitable[ToolOutput | None] | None]
Guard = Callable[[Context[Any], ChatMessage], Block | Awaitable[Block | None] | None]


def is_cancelled(ctx: Context[Any]) -> bool:
    """Return whether the step itself is cancelled, not a task that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0 or (ctx.run is not None and ctx.run.ending.over)


async def call_hook(
    hook: Callable[..., Any], allowed: tuple[type[Any], ...], ctx: Context[Any], *arguments: Any
) -> Any:
    """Call a hook or guard and return its decision, or None.

    Args:
        hook: A function or coroutine function.
        allowed: The classes of decisions.
        ctx: The run's context; the hook gets it with the typed state that its annotation names.
        arguments: The other arguments of the hook.

    Raises:
        TypeError: The hook returned another value.
    """
    try:
        decision = hook(context_for(hook, ctx), *arguments)
        if inspect.isawaitable(decision):
            decision = await decision
    except asyncio.CancelledError as cancelled:
        if is_cancelled(ctx):
            raise
        raise RuntimeError("a call that it awaited was cancelled") from cancelled
    if decision is not None and not isinstance(decision, allowed):
        names = ", ".join(one.__name__ for one in allowed)
        raise TypeError(f"{name_of(hook)} returned {type(decision).__name__}: a hook here returns None, {names}")
    return decision


def name_of(hook: Callable[..., Any]) -> str:
    """Return the name of a hook for messages."""
    return getattr(hook, "__qualname__", None) or type(hook).__name__


def failure_of(hook: Callable[..., Any], error: Exception) -> str:
    """Return a text about a hook that raised an exception."""
    return f"the check {name_of(hook)} failed: {error_output('', {}, error, f'{type(error).__name__}: ').content}"

"""What users hang into an agent's run: looks at tool calls before and after, and at what comes in and goes out."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import ChatMessage
from batonflow.tools import ToolOutput
from batonflow.tools.call import error_output, own
from batonflow.workflow_core import Context

logger = logger_named(__name__)

__all__ = ["AfterTool", "BeforeTool", "Block", "Deny", "Guard", "Replace", "after_tool", "before_tool", "blocked"]


@dataclass(frozen=True)
class Deny:
    """The tool does not run.

    Args:
        reason: What the model is told.
    """

    reason: str


@dataclass(frozen=True)
class Replace:
    """The tool runs with other arguments; they are checked like the model's.

    Args:
        arguments: All of them, by name.
    """

    arguments: dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A message does not come in, or does not go out; the run ends.

    Args:
        reason: The answer of the run instead.
    """

    reason: str


BeforeTool = Callable[[Context[Any], ToolCall], Deny | Replace | Awaitable[Deny | Replace | None] | None]
AfterTool = Callable[[Context[Any], ToolCallResult], ToolOutput | Awaitable[ToolOutput | None] | None]
Guard = Callable[[Context[Any], ChatMessage], Block | Awaitable[Block | None] | None]


def is_cancelled(ctx: Context[Any]) -> bool:
    """Whether a cancellation that arrives here is of the step that acts, and not of something that it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0 or (ctx.run is not None and ctx.run.ending.over)


async def _said(hook: Callable[..., Any], allowed: tuple[type[Any], ...], ctx: Context[Any], *arguments: Any) -> Any:
    try:
        said = hook(ctx, *arguments)
        if inspect.isawaitable(said):
            said = await said
    except asyncio.CancelledError as cancelled:
        if is_cancelled(ctx):
            raise
        raise RuntimeError("what it waited for was cancelled") from cancelled
    if said is not None and not isinstance(said, allowed):
        names = ", ".join(one.__name__ for one in allowed)
        raise TypeError(f"{_name(hook)} returned {type(said).__name__}: a hook here returns None, {names}")
    return said


NOT_CHECKED = "The message could not be checked."
"""What is answered where a guard fails; which one, and how, is for the program's log."""


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__name__


def _failed(hook: Callable[..., Any], error: Exception) -> str:
    return f"the check {_name(hook)} failed: {error_output('', {}, error, f'{type(error).__name__}: ').content}"


async def before_tool(hooks: Sequence[BeforeTool], ctx: Context[Any], call: ToolCall) -> dict[str, Any] | Deny:
    """The arguments to run a tool with, or why it does not run; a hook that raises counts as a denial.

    Args:
        hooks: Asked in order; each sees the arguments as those before left them.
        ctx: The run's context.
        call: What the model asks for.
    """
    # A copy, as what the model has asked for is told to it again, whatever a hook does with it.
    call = call.model_copy(update={"tool_kwargs": own(call.tool_kwargs)})
    for hook in hooks:
        try:
            said = await _said(hook, (Deny, Replace), ctx, call)
            if isinstance(said, Replace):
                call = ToolCall(tool_name=call.tool_name, tool_kwargs=said.arguments, tool_id=call.tool_id)
        except Exception as err:
            # A check of the user's may raise anything, and then has not agreed.
            logger.exception("The hook %s failed, so %s does not run", _name(hook), call.tool_name)
            return Deny(_failed(hook, err))
        if isinstance(said, Deny):
            return said
    return call.tool_kwargs


async def after_tool(hooks: Sequence[AfterTool], ctx: Context[Any], result: ToolCallResult) -> ToolOutput:
    """What the model is told of a tool's output; a hook that raises withholds it.

    Args:
        hooks: Asked in order; each sees the output as those before left it.
        ctx: The run's context.
        result: The call with what came of it.
    """
    for hook in hooks:
        try:
            said = await _said(hook, (ToolOutput,), ctx, result)
        except Exception as err:
            logger.exception("The hook %s failed, so the result of %s is withheld", _name(hook), result.tool_name)
            words = f"The result of {result.tool_name} is withheld: {_failed(hook, err)}"
            return ToolOutput(
                tool_name=result.tool_name, content=words, raw_input=result.tool_kwargs, is_error=True, exception=err
            )
        if said is not None:
            result = result.model_copy(update={"tool_output": cast("ToolOutput", said)})
    return result.tool_output


async def blocked(guards: Sequence[Guard], ctx: Context[Any], message: ChatMessage) -> str | None:
    """Why a message may not pass, None when it may; a guard that raises blocks it, and its error is logged.

    Args:
        guards: Asked in order; the first that blocks decides.
        ctx: The run's context.
        message: The user's message, or the answer.
    """
    for guard in guards:
        try:
            said = await _said(guard, (Block,), ctx, message)
        except Exception:
            # The reason is the answer, which users of the program read: what is broken inside is for its log.
            logger.exception("The guard %s failed, so the message is blocked", _name(guard))
            return NOT_CHECKED
        if said is not None:
            return cast("Block", said).reason
    return None

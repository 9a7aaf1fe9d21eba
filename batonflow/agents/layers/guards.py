"""Guards: functions of the user that permit or block messages, at both ends of a turn."""

from collections.abc import Sequence
from typing import Any, cast

from batonflow.agents.events import AgentOutput, ToolCallResult
from batonflow.agents.hooks import Block, Guard, call_hook, name_of
from batonflow.agents.members import Member
from batonflow.instrumentation.logs import logger_named
from batonflow.llms import ChatMessage, MessageRole
from batonflow.tools import ToolSelection
from batonflow.workflow_core import Context

__all__ = ["block_input", "block_output", "blocked", "blocked_output"]

logger = logger_named("batonflow.agent")

NOT_CHECKED = "The message could not be checked."
"""The answer where a guard fails; its name and error are in the program's log."""


async def blocked(guards: Sequence[Guard], ctx: Context[Any], message: ChatMessage) -> str | None:
    """Return the reason for blocking a message, or None; an exception of a guard blocks it.

    Args:
        guards: The guards, in order; the first one that blocks decides.
        ctx: The run's context.
        message: The user's message, or the answer.
    """
    for guard in guards:
        try:
            decision = await call_hook(guard, (Block,), ctx, message)
        except Exception:
            # The reason becomes the answer for users, so details go to the log only.
            logger.exception("The guard %s failed, so the message is blocked", name_of(guard))
            return NOT_CHECKED
        if decision is not None:
            return cast("Block", decision).reason
    return None


async def block_input(ctx: Context[Any], agent: Member, message: ChatMessage) -> AgentOutput | None:
    """Return the output of a run with a blocked input; None if the message is permitted.

    Args:
        ctx: The run's context.
        agent: The agent that is asked.
        message: The user's message.
    """
    reason = await blocked(agent.input_guards, ctx, message)
    return None if reason is None else blocked_output(agent, reason, "input")


async def block_output(
    ctx: Context[Any], agent: Member, message: ChatMessage, calls: Sequence[ToolSelection | ToolCallResult] = ()
) -> AgentOutput | None:
    """Return the output in place of a blocked answer; None if the answer is permitted.

    Args:
        ctx: The run's context.
        agent: The agent that answers.
        message: The answer.
        calls: The calls that the output lists.
    """
    reason = await blocked(agent.output_guards, ctx, message)
    return None if reason is None else blocked_output(agent, reason, "output", calls)


def blocked_output(
    agent: Member, reason: str, end: str, calls: Sequence[ToolSelection | ToolCallResult] = ()
) -> AgentOutput:
    """Return the reason as the answer; ``output.get("blocked")`` is ``"input"`` or ``"output"``."""
    message = ChatMessage(reason, role=MessageRole.ASSISTANT)
    output = AgentOutput(response=message, current_agent_name=agent.name, tool_calls=list(calls))
    output["blocked"] = end
    return output

"""Turns that a failed run has left unfinished: they come into the memory before the conversation goes on."""

from typing import Any

from batonflow.agents.calling import ARRIVED, REFUSED
from batonflow.agents.events import AgentOutput, ToolCallResult
from batonflow.agents.members import Member
from batonflow.agents.memory import BaseMemory
from batonflow.agents.prompts import CALL_CUT_OFF
from batonflow.llms import ChatMessage, MessageRole
from batonflow.llms.tool_protocol import tool_selections
from batonflow.tools import ToolOutput, ToolSelection
from batonflow.workflow_core import Context

__all__ = ["close_turn", "left_over"]


async def left_over(ctx: Context[Any], agent: Member) -> list[Any]:
    """The messages or thoughts of a turn that ``agent`` has begun and not finished, and its calls in another form.

    Args:
        ctx: The context of the earlier run.
        agent: Who acted last.
    """
    return list(await agent.unfinished(ctx))


async def close_turn(ctx: Context[Any], agent: Member, left: list[Any], memory: BaseMemory) -> None:
    """Move a turn into the memory; calls without a result get one, as vendors refuse a conversation otherwise.

    Args:
        ctx: The context of the earlier run.
        agent: Whose turn it is.
        left: What ``left_over`` found.
        memory: The conversation as the agent knows it.
    """
    calls = _unanswered([message for message in left if isinstance(message, ChatMessage)])
    refused: dict[str, str] = await ctx.store.get(REFUSED, default=None) or {}
    kept: dict[str, ToolCallResult] = await ctx.store.get(ARRIVED, default=None) or {}

    def result_of(position: int, call: ToolSelection) -> ToolCallResult:
        # All of an answer's results become known together: what is left is one answer, whose calls have these places.
        found = kept.get(str(position))
        if found is not None and (found.tool_id, found.tool_name) == (call.tool_id, call.tool_name):
            return found.model_copy(update={"return_direct": False})  # the turn is over
        return ToolCallResult(
            tool_name=call.tool_name,
            tool_kwargs=call.tool_kwargs,
            tool_id=call.tool_id,
            tool_output=ToolOutput(
                tool_name=call.tool_name, content=refused.get(call.tool_id, CALL_CUT_OFF), is_error=True
            ),
            return_direct=False,
        )

    calls += [one for one in left if isinstance(one, ToolSelection)]
    results = [result_of(position, call) for position, call in enumerate(calls)]
    if results:
        await agent.handle_tool_call_results(ctx, results, memory)
    nothing = AgentOutput(response=ChatMessage("", role=MessageRole.ASSISTANT), current_agent_name=agent.name)
    await agent.finalize(ctx, nothing, memory)


def _unanswered(messages: list[ChatMessage]) -> list[ToolSelection]:
    """The calls that have no result behind them; models use ids more than once."""
    calls: list[ToolSelection] = []
    for message in messages:
        answers = message.additional_kwargs.get("tool_call_id")
        answered = next((call for call in calls if call.tool_id == answers), None)
        if answered is not None:
            calls.remove(answered)
        calls.extend(tool_selections(message))
    return calls

"""Unfinished turns: the turn of a failed run is moved into the memory before the conversation continues."""

from typing import Any

from batonflow.agents.events import ToolCallResult
from batonflow.agents.ledger import ARRIVED, REFUSED
from batonflow.agents.members import Member, empty_output
from batonflow.agents.memory import BaseMemory
from batonflow.agents.prompts import CALL_CUT_OFF
from batonflow.llms import ChatMessage
from batonflow.llms.tool_protocol import tool_selections
from batonflow.tools import ToolOutput, ToolSelection
from batonflow.workflow_core import Context

__all__ = ["close_turn", "unanswered"]


async def close_turn(ctx: Context[Any], agent: Member, left: list[Any], memory: BaseMemory) -> None:
    """Move a turn into the memory; add results to calls without one, because vendors require them.

    Args:
        ctx: The context of the earlier run.
        agent: The agent of the turn.
        left: The messages or thoughts of the turn, and calls in another form.
        memory: The conversation as the agent knows it.
    """
    calls = unanswered([message for message in left if isinstance(message, ChatMessage)])
    refused: dict[str, str] = await ctx.store.get(REFUSED, default=None) or {}
    kept: dict[str, ToolCallResult] = await ctx.store.get(ARRIVED, default=None) or {}

    def result_of(position: int, call: ToolSelection) -> ToolCallResult:
        # The results of an answer are kept together, so the remaining calls belong to one answer, in order.
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
    await agent.finalize(ctx, empty_output(agent), memory)


def unanswered(messages: list[ChatMessage]) -> list[ToolSelection]:
    """Return the calls without a result; models may repeat ids."""
    calls: list[ToolSelection] = []
    for message in messages:
        answers = message.additional_kwargs.get("tool_call_id")
        answered = next((call for call in calls if call.tool_id == answers), None)
        if answered is not None:
            calls.remove(answered)
        calls.extend(tool_selections(message))
    return calls

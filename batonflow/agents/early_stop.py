"""Early stop: the end of a run when its steps or budget are used up."""

from collections.abc import Sequence

from batonflow.agents import layers
from batonflow.agents.asking import with_reason
from batonflow.agents.budget import BudgetExceededError
from batonflow.agents.events import AgentInput, AgentOutput, ToolCallResult
from batonflow.agents.invocation import refusal_output, result_of
from batonflow.agents.layers.limits import limits_for, within_time
from batonflow.agents.layers.usage import count_usage
from batonflow.agents.members import empty_output
from batonflow.agents.prompts import NO_STEPS_LEFT
from batonflow.agents.tool_calls import requests_of
from batonflow.agents.turn import Turn
from batonflow.llms import ChatMessage, MessageRole
from batonflow.tools import ToolSelection
from batonflow.workflow_core import StopEvent

__all__ = ["answer_early", "refuse_calls"]


async def refuse_calls(turn: Turn, calls: Sequence[ToolSelection | ToolCallResult]) -> None:
    """Give the calls of the last allowed step a result, as vendors refuse a conversation without it.

    Args:
        turn: The turn.
        calls: The calls.
    """
    if not calls:
        return
    ctx, results = turn.ctx, list[ToolCallResult]()
    for request in requests_of(turn.team, turn.agent, calls):
        ctx.write_event_to_stream(request)
        results.append(result_of(request, refusal_output(request, NO_STEPS_LEFT), return_direct=False))
        ctx.write_event_to_stream(results[-1])
    so_far: list[ToolCallResult] = await ctx.store.get("current_tool_calls", default=[])
    await ctx.store.set("current_tool_calls", [*so_far, *results])
    await turn.agent.handle_tool_call_results(ctx, results, turn.memory)


async def answer_early(turn: Turn, words: str, *, over_budget: bool = False) -> StopEvent:
    """End the run with an answer from the results so far.

    Args:
        turn: The turn.
        words: The message that asks the model for it.
        over_budget: Whether a budget is used up; it does not hold for this answer.
    """
    ctx, agent = turn.ctx, turn.agent
    await agent.finalize(ctx, empty_output(agent), turn.memory)
    so_far: AgentInput = await turn.next_input()
    shown = [*(await turn.team.loop.setup_agent(ctx, so_far)).input, ChatMessage(words, role=MessageRole.SYSTEM)]
    output = await _last_answer(turn, shown, over_budget=over_budget)
    output.tool_calls = await ctx.store.get("current_tool_calls", default=[])
    await turn.memory.aput(output.response)
    await turn.add_form(output)
    ended = await turn.end(output)
    ctx.write_event_to_stream(output)
    return ended


async def _last_answer(turn: Turn, shown: list[ChatMessage], *, over_budget: bool) -> AgentOutput:
    """Ask for an answer within the budgets, and outside of the budget that calls for it.

    Raises:
        BudgetExceededError: It may take more than is left of a budget that raises.
    """
    ctx, agent, response = turn.ctx, turn.agent, None
    limits = await limits_for(ctx, turn.team, agent)
    if limits is not None and not over_budget:
        try:
            async with count_usage(ctx, agent.name, limits):
                response = await within_time(agent.answer_now(ctx, shown), limits)
        except BudgetExceededError as err:
            if not limits.wants_answer(err):
                raise
    if response is None:
        async with count_usage(ctx, agent.name, limits, only_around=True):
            response = await agent.answer_now(ctx, shown)
    if agent.output_guards:
        blocked = await layers.block_output(ctx, agent, response.message)
        if blocked is not None:
            return blocked
    output = AgentOutput(response=response.message, raw=response.raw, current_agent_name=agent.name)
    return with_reason(output, response.stop_reason)

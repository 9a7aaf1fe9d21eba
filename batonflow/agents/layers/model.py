"""Layers around a model: count usage, apply budgets and trace ``take_step`` of an agent."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from batonflow.agents import layers
from batonflow.agents.budget import BudgetExceededError, Limits
from batonflow.agents.events import AgentOutput
from batonflow.agents.ledger import BUDGET_ANSWER, count_usage, limits_for, request_changes, within_time
from batonflow.agents.members import Member, Team, empty_output, output_of
from batonflow.agents.memory import BaseMemory
from batonflow.agents.tracing import dispatcher, traced
from batonflow.instrumentation.logs import in_words, logger_named
from batonflow.llms import ChatMessage
from batonflow.tools import AsyncBaseTool
from batonflow.workflow_core import Context

__all__ = ["OVER_BUDGET", "ask_model"]

logger = logger_named("batonflow.agent")

OVER_BUDGET = "over_budget"
"""The field that marks an output without an answer, because a budget was used up."""


async def ask_model(
    ctx: Context[Any],
    team: Team,
    agent: Member,
    shown: list[ChatMessage],
    tools: Sequence[AsyncBaseTool],
    memory: BaseMemory,
) -> AgentOutput:
    """Let an agent take a step, and return the output, with the usage of the model.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
        shown: The messages for the model.
        tools: The tools for the model.
        memory: The memory of the agent.
    """
    limits = await limits_for(ctx, team, agent)
    async with count_usage(ctx, agent.name, limits, "turn") as spent:
        if logger.isEnabledFor(logging.DEBUG):
            about = in_words(f"agent {agent.name}")
            logger.debug("%s calls its model with %d messages and %d tools", about, len(shown), len(tools))
        step: Callable[..., Any] = partial(_take_step, ctx, team, agent, memory)
        if agent.middleware or team.middleware:
            step = partial(layers.around_model, ctx, team, agent, step)
        running = step(shown, tools) if limits is None else _within_budget(ctx, agent, limits, step, shown, tools)
        with layers.changed_requests(ctx.run) if request_changes(ctx.run) else nullcontext():
            output = await output_of(running, agent, "take_step")
    if spent.requests:
        output.usage = spent.usage
    return output


def _take_step(
    ctx: Context[Any],
    team: Team,
    agent: Member,
    memory: BaseMemory,
    shown: list[ChatMessage],
    tools: Sequence[AsyncBaseTool],
) -> Any:
    """Let the agent call its model, inside a span if tracing is on."""
    running = agent.take_step(ctx, shown, tools, memory)
    return traced(team, agent, (ctx, shown, tools, memory), running) if dispatcher.enabled else running


async def _within_budget(
    ctx: Context[Any],
    agent: Member,
    limits: Limits,
    step: Callable[..., Any],
    shown: list[ChatMessage],
    tools: Sequence[AsyncBaseTool],
) -> AgentOutput:
    """Take a step within the budgets; return an output marked ``OVER_BUDGET`` if the agent must answer instead."""
    nothing = empty_output(agent)
    nothing[OVER_BUDGET] = True
    used_up: Any = await ctx.store.get(BUDGET_ANSWER, default=None)
    if used_up is True or agent.name in (used_up or ()):
        return nothing
    try:
        limits.check_unseen(agent.llm_or_none(), shown)
        output = await within_time(step(shown, tools), limits)
        limits.charge_unseen(agent.llm_or_none(), shown, output.response)
    except BudgetExceededError as err:
        if not limits.wants_answer(err):
            raise
        return nothing
    return output

"""Limits of a run: the budgets that apply, and their keys in the state store."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from batonflow.agents.budget import Budget, Limits, ledger_of, payers
from batonflow.agents.members import Member, Team
from batonflow.workflow_core import Context

__all__ = [
    "ARRIVED",
    "BUDGET_ANSWER",
    "INSTRUCTIONS",
    "LEDGER",
    "OUTPUT_RETRIES",
    "REFUSED",
    "RUN_OPTIONS",
    "TOOLS_RUN",
    "has_options",
    "limits_for",
    "options_given",
    "within_time",
]

T = TypeVar("T")

LEDGER = "ledger"
"""The key of the amounts that the run has spent, kept while a budget holds."""

BUDGET_ANSWER = "budget_answer"
"""The key that says an answer is due, as a budget is used up: True for all agents, or the names of some."""

REFUSED = "refused_calls"
"""The key of calls that a run ended before making: the reason by id of the call."""

ARRIVED = "arrived_results"
"""The key of results that arrived before the last one of their answer, by place in the answer."""

INSTRUCTIONS = "instructions"
"""The key of the texts of functions in the system messages of a turn, by agent."""

OUTPUT_RETRIES = "output_retries"
"""The key of the number of answers in a run that did not fit the declared output."""

RUN_OPTIONS = "run_options"
"""The key of the options of one run that are recorded, see ``run_options.py``."""

TOOLS_RUN = "tools_run"
"""The key of the calls that limited tools have made: places by tool."""

options_given: "WeakKeyDictionary[Any, dict[str, Any]]" = WeakKeyDictionary()
"""The options of runs in this process."""

_options: Any = options_given  # with the plain dict in it, which is quick to ask


def has_options(run: Any) -> bool:
    """Tell whether a run has a model, instructions or a choice of tools of its own."""
    kept = run.cell.state.__pydantic_extra__
    return bool(kept and kept.get(RUN_OPTIONS)) or (bool(_options.data) and run in _options)


async def limits_for(ctx: Context[Any], team: Team, agent: Member) -> Limits | None:
    """Return the budgets that apply to an agent; None without budgets, as in most runs.

    Args:
        ctx: The run's context, inside a step.
        team: The agents of the loop.
        agent: The agent that acts.
    """
    given: Any = await ctx.store.get("budget", default=None)
    of_all = team.budget
    if given is None and of_all is None and agent.budget is None and not payers.get():
        return None
    budgets = [one for one in (given, of_all) if isinstance(one, Budget)]
    if not budgets and agent.budget is None and not payers.get():
        return None
    kept: dict[str, Any] = await ctx.store.get(LEDGER, default=None) or {}
    return Limits(ledger_of(ctx, kept), budgets, agent.name, agent.budget)


async def within_time(running: Awaitable[T], limits: Limits | None) -> T:
    """Await ``running``, and cancel it when the time of the budgets is used up.

    Args:
        running: A coroutine or future.
        limits: The budgets that apply; None without budgets.

    Raises:
        BudgetExceededError: The time was used up before the result.
    """
    if limits is None:
        return await running
    try:
        limits.check_time()
    except BaseException:
        if inspect.iscoroutine(running):
            running.close()
        elif isinstance(running, asyncio.Future):
            cast("asyncio.Future[Any]", running).cancel()
        raise
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)

    def set_clock() -> None:
        left = limits.seconds_left()
        if not limit.expired():
            limit.reschedule(None if left is None else loop.time() + left)

    try:
        async with limit:
            with limits.watched(set_clock):
                set_clock()
                return await running
    except TimeoutError:
        if limit.expired():
            raise limits.out_of_time() from None
        raise

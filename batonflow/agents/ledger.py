"""Amounts of a run: its budgets, the models' usage by agent, and their keys in the state store."""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from batonflow.agents.budget import Budget, Limits, ledger_of, payers
from batonflow.agents.members import Member, Team
from batonflow.instrumentation.context import model_caller
from batonflow.llms import Usage, UsageTotals
from batonflow.llms.usage import begin_counting, counting_here, end_counting
from batonflow.workflow_core import Context

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = [
    "ARRIVED",
    "BUDGET_ANSWER",
    "INSTRUCTIONS",
    "LEDGER",
    "OUTPUT_RETRIES",
    "REFUSED",
    "REQUEST_CHANGES",
    "RUN_OPTIONS",
    "TOOLS_RUN",
    "account_here",
    "count_earlier_usage",
    "count_usage",
    "has_options",
    "limits_for",
    "options_given",
    "request_changes",
    "state_lock",
    "within_time",
]

T = TypeVar("T")

LEDGER = "ledger"
"""The key of the amounts that the run has spent, kept while a budget holds."""

BUDGET_ANSWER = "budget_answer"
"""The key that says an answer is due, as a budget is used up. It is True for all agents, or some names."""

REFUSED = "refused_calls"
"""The key of calls that a run ended before making: the reason by id of the call."""

ARRIVED = "arrived_results"
"""The key of results that arrived before the last one of their answer, by place in the answer."""

INSTRUCTIONS = "instructions"
"""The key of the texts of functions in the system messages of a turn, by agent."""

OUTPUT_RETRIES = "output_retries"
"""The key of the number of answers in a run that did not fit the declared output."""

REQUEST_CHANGES = "request_changes"
"""The key of the changes of the requests of a fork, see ``request_changes.py``."""

RUN_OPTIONS = "run_options"
"""The key of the options of one run that are recorded, see ``run_options.py``."""

TOOLS_RUN = "tools_run"
"""The key of the calls that limited tools have made: places by tool."""

options_given: "WeakKeyDictionary[Any, dict[str, Any]]" = WeakKeyDictionary()
"""The options of runs in this process."""

_options: Any = options_given  # with the plain dict in it, which is quick to ask


def has_options(run: Any) -> bool:
    """Tell whether a run has a model, instructions or a choice of tools of its own."""
    if _options.data and run in _options:
        return True
    kept = run.cell.state.__pydantic_extra__
    return kept is not None and (kept.get(RUN_OPTIONS) or kept.get(REQUEST_CHANGES)) is not None


def request_changes(run: Any) -> Mapping[str, Any]:
    """Return the changes of the requests of a fork, also in child runs; empty in most runs."""
    kept = (run if run.family is None else run.root).cell.state.__pydantic_extra__
    return (kept and kept.get(REQUEST_CHANGES)) or {}


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


class count_usage(UsageTotals):  # noqa: N801 - used like a function
    """Count the usage of models inside the block for an agent, within the budgets that hold.

    Args:
        ctx: The run's context, inside a step.
        agent: The name of the agent.
        limits: The budgets.
        purpose: The purpose of the calls; see ``ModelCall``.
        only_around: Exclude the budgets of this run.
    """

    __slots__ = ("_caller", "_ctx", "_held", "_limits", "_purpose", "_token", "agent", "run")

    _token: Token[Any]
    _caller: Token[Any]

    def __init__(
        self, ctx: Context[Any], agent: str, limits: Limits | None, purpose: str, *, only_around: bool = False
    ) -> None:
        super().__init__()
        self._ctx, self.agent, self._purpose = ctx, agent, purpose
        self._limits = limits
        self._held = None if limits is None else limits.only_around() if only_around else limits.hold()
        self.run = ctx.run

    # A class, because an asynchronous generator costs five times as much.

    async def __aenter__(self) -> Self:
        around = _accounts() if counting_here() else []
        # Code of an agent calls tools inside a call; their usage must not count twice.
        inside = around and around[-1].run is self.run is not None
        self._token = begin_counting(self, self.agent, instead_of=around[-1] if inside else None)
        self._caller = model_caller.set((self.agent, self._purpose))
        if self._held is not None:
            self._held.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.__exit__(kind, error, traceback)
        model_caller.reset(self._caller)
        end_counting(self._token)
        if self._limits is not None:
            await self._ctx.store.set(LEDGER, self._limits.ledger.dump())
        if not self.requests:
            return
        # Usage counts under the agent's name; usage of agents called as tools under their names.
        async with state_lock(self.run):
            store = self._ctx.store
            totals: dict[str, Usage] = dict(await store.get("usage", default={}))
            for spender, usage in self.by_spender.items():
                name = spender or self.agent
                totals[name] = totals[name] + usage if name in totals else usage
            await store.set("usage", totals)


def _accounts() -> list[count_usage]:
    """Return the accounts of agents around this code, the outermost first."""
    return [one for one in counting_here() if isinstance(one, count_usage)]


def account_here() -> count_usage | None:
    """Return the innermost account of an agent around this code."""
    found = _accounts() if counting_here() else []
    return found[-1] if found else None


def count_earlier_usage(usage: Mapping[str, Usage]) -> None:
    """Count the usage of a run inside this step from before its interruption.

    Args:
        usage: By agent.
    """
    for account in _accounts():
        for name, taken in usage.items():
            account.add(taken, "", name)


# By run, because several calls of a run may write concurrently.
_locks: "WeakKeyDictionary[Run, asyncio.Lock]" = WeakKeyDictionary()


def state_lock(run: "Run | None") -> AbstractAsyncContextManager[None]:
    """Return the lock for reading, changing and writing a value of the state store."""
    if run is None:
        return nullcontext()
    lock = _locks.get(run)
    if lock is None:
        lock = _locks[run] = asyncio.Lock()
    return lock

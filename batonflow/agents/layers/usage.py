"""Usage: the tokens and costs of models, counted by agent in the run's state."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from batonflow.agents.budget import Limits
from batonflow.agents.layers.limits import LEDGER
from batonflow.llms import Usage, UsageTotals
from batonflow.llms.usage import begin_counting, counting_here, end_counting
from batonflow.workflow_core import Context

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = ["account_here", "count_earlier_usage", "count_usage", "state_lock"]


class count_usage(UsageTotals):  # noqa: N801 - used like a function
    """Count the usage of models inside the block for an agent, within the budgets that hold.

    Args:
        ctx: The run's context, inside a step.
        agent: The name of the agent.
        limits: The budgets.
        only_around: Exclude the budgets of this run.
    """

    __slots__ = ("_ctx", "_held", "_limits", "_token", "agent", "run")

    _token: Token[Any]

    def __init__(self, ctx: Context[Any], agent: str, limits: Limits | None, *, only_around: bool = False) -> None:
        super().__init__()
        self._ctx, self.agent = ctx, agent
        self._limits = limits
        self._held = None if limits is None else limits.only_around() if only_around else limits.hold()
        self.run = ctx.run

    # A class, because an asynchronous generator costs five times as much.

    async def __aenter__(self) -> Self:
        around = _accounts() if counting_here() else []
        # Code of an agent calls tools inside a call; their usage must not count twice.
        inside = around and around[-1].run is self.run is not None
        self._token = begin_counting(self, self.agent, instead_of=around[-1] if inside else None)
        if self._held is not None:
            self._held.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.__exit__(kind, error, traceback)
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

"""Budgets: what a run may spend at most. Checked before a model is asked or a tool runs, settled after."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field

from batonflow.agents.memory.tokens import count_tokens
from batonflow.llms import ChatMessage, ChatResponse, Usage, price
from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.gates import Settle
from batonflow.llms.limits import estimated_tokens
from batonflow.llms.stream import ChatRequest
from batonflow.llms.usage import prices_available
from batonflow.workflow_core.clock import current_source
from batonflow.workflow_core.errors import BatonflowError

__all__ = ["Budget", "BudgetExceededError", "Ledger", "Limits", "ledger_of"]

_RUN = ""
"""Whose account it is that everything in a run is charged to; others are named like agents."""


class Budget(BaseModel):
    """What may be spent at most.

    On an agent it holds for what this agent does in a run, the agents it calls as tools included; on a team or given to
    ``run(budget=...)``, for everything in the run. Where several hold, each does, so that the stricter wins.

    Args:
        max_tokens: Tokens that models read and write. Before a request, what it will read is estimated and what it may
            write is taken to be ``max_tokens`` of the model, or 1,024; afterwards the vendor's count is used.
        max_cost: US dollars for models; needs the extra ``prices``.
        max_tool_calls: Calls of tools.
        seconds: Seconds since the beginning of the run; time in which people are asked to approve is left out.
        on_exceeded: ``"raise"`` a :class:`BudgetExceededError`, or have the model ``"answer"`` from what was gathered:
            that one request is made outside of the budget.

    Raises:
        ValidationError: A limit is not above zero.

    Example:
        >>> agent = FunctionAgent(llm=llm, tools=[search], budget=Budget(max_tokens=50_000, max_tool_calls=20))
        >>> output = await agent.run("Write about tides.", budget=Budget(seconds=60, on_exceeded="answer"))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int | None = Field(default=None, gt=0)
    max_cost: float | None = Field(default=None, gt=0)
    max_tool_calls: int | None = Field(default=None, gt=0)
    seconds: float | None = Field(default=None, gt=0)
    on_exceeded: Literal["raise", "answer"] = "raise"


class BudgetExceededError(BatonflowError, RuntimeError):
    """A budget is used up, or would be by what comes next.

    Attributes:
        limit: Which of its limits: ``"max_tokens"``, ``"max_cost"``, ``"max_tool_calls"`` or ``"seconds"``.
        budget: The budget.
        agent: Whose it is; None for that of the run.
        spent: What was spent before.
        needed: What would have been spent now.
    """

    def __init__(self, limit: str, budget: Budget, agent: str | None, spent: float, needed: float) -> None:
        self.limit, self.budget, self.agent, self.spent, self.needed = limit, budget, agent, spent, needed
        whose = "of the run" if agent is None else f"of agent {agent}"
        left = "" if limit == "seconds" else f", and about {needed:g} more would be needed"
        super().__init__(
            f"The budget {whose} is used up: {limit}={getattr(budget, limit):g}, {spent:g} spent{left}. Give a larger "
            "one, or on_exceeded='answer' for an answer from what was gathered"
        )


@dataclass
class _Spent:
    """What was charged to one account, and what is set aside for requests under way."""

    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    reserved_tokens: int = 0
    reserved_cost: float = 0.0


class Ledger:
    """What the run of an agent or team has spent, by account; shared by all of its steps that run at a time.

    Args:
        kept: What ``dump`` gave, in this process or another.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        self._started: float = kept.get("started", current_source().now())
        self._waited: float = kept.get("waited", 0.0)
        self._asked, self._asked_since = 0, 0.0
        self._spent: dict[str, _Spent] = {name: _Spent(*values) for name, values in kept.get("spent", {}).items()}

    def dump(self) -> dict[str, Any]:
        """What was spent, as data of JSON."""
        spent = {name: [one.tokens, one.cost, one.calls] for name, one in self._spent.items()}
        return {"started": self._started, "waited": self._waited, "spent": spent}

    def account(self, name: str | None) -> _Spent:
        """What was charged to an agent; for None, to the run."""
        return self._spent.setdefault(name or _RUN, _Spent())

    def seconds(self) -> float:
        """How long the run has worked."""
        return current_source().now() - self._started - self._waited

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """A person is asked inside the block: that time does not count, however many are asked at once."""
        if self._asked == 0:
            self._asked_since = current_source().now()
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
            if self._asked == 0:
                self._waited += current_source().now() - self._asked_since


# By run id, for as long as a step of the run holds it.
_ledgers: WeakValueDictionary[str, Ledger] = WeakValueDictionary()


def ledger_of(run_id: str, kept: dict[str, Any]) -> Ledger:
    """The ledger of a run; made of ``kept`` when no step holds it."""
    ledger = _ledgers.get(run_id)
    if ledger is None:
        ledger = _ledgers[run_id] = Ledger(kept)
    return ledger


@dataclass(frozen=True)
class _Limit:
    budget: Budget
    agent: str | None


class Limits:
    """The budgets that hold for a step of an agent.

    Args:
        ledger: Of the run.
        run_budgets: Those of the run and of the team.
        agent: Who acts.
        own: The agent's own budget.
    """

    def __init__(self, ledger: Ledger, run_budgets: Sequence[Budget], agent: str, own: Budget | None) -> None:
        self.ledger = ledger
        self._limits = [_Limit(budget, None) for budget in run_budgets]
        if own is not None:
            self._limits.append(_Limit(own, agent))
        self._accounts = [ledger.account(None), ledger.account(agent)]
        self._asked = False

    def check_time(self) -> float | None:
        """Seconds that are left, None when there is no limit.

        Raises:
            BudgetExceededError: There are none left.
        """
        left: float | None = None
        for limit in self._limits:
            if limit.budget.seconds is None:
                continue
            spent = self.ledger.seconds()
            if spent >= limit.budget.seconds:
                raise BudgetExceededError("seconds", limit.budget, limit.agent, spent, 0)
            left = min(limit.budget.seconds - spent, left if left is not None else limit.budget.seconds)
        return left

    def out_of_time(self) -> BudgetExceededError:
        """The error for a step that took until there was no time left."""
        timed = [limit for limit in self._limits if limit.budget.seconds is not None]
        first = min(timed, key=lambda limit: limit.budget.seconds or 0)
        return BudgetExceededError("seconds", first.budget, first.agent, self.ledger.seconds(), 0)

    def charge_call(self) -> None:
        """A tool is about to run.

        Raises:
            BudgetExceededError: No more calls are allowed, or no time is left.
        """
        self.check_time()
        for limit in self._limits:
            spent = self.ledger.account(limit.agent).calls
            if limit.budget.max_tool_calls is not None and spent >= limit.budget.max_tool_calls:
                raise BudgetExceededError("max_tool_calls", limit.budget, limit.agent, spent, 1)
        for account in self._accounts:
            account.calls += 1

    def admit(self, llm: Any, request: ChatRequest) -> Settle:
        """A gate (see ``batonflow.llms.gates``): sets aside what a request may take, then charges what it took.

        Raises:
            BudgetExceededError: It may take more than is left.
            LLMConfigurationError: There is a limit in dollars, and nobody knows the price.
        """
        self._asked = True
        self.check_time()
        given: Any = getattr(llm, "max_tokens", None)
        whole = estimated_tokens(request, given if isinstance(given, int) else None)
        read = estimated_tokens(request, 0)
        dollars = self._price(llm, Usage(input_tokens=read, output_tokens=whole - read))
        for limit in self._limits:
            account = self.ledger.account(limit.agent)
            if limit.budget.max_tokens is not None:
                spent = account.tokens + account.reserved_tokens
                if spent + whole > limit.budget.max_tokens:
                    raise BudgetExceededError("max_tokens", limit.budget, limit.agent, spent, whole)
            if limit.budget.max_cost is not None and dollars is not None:
                used = account.cost + account.reserved_cost
                if used + dollars > limit.budget.max_cost:
                    raise BudgetExceededError("max_cost", limit.budget, limit.agent, used, dollars)
        for account in self._accounts:
            account.reserved_tokens += whole
            account.reserved_cost += dollars or 0.0

        def settle(response: ChatResponse | None) -> None:
            tokens, cost = _taken(response, read, dollars)
            for account in self._accounts:
                account.reserved_tokens -= whole
                account.reserved_cost -= dollars or 0.0
                account.tokens += tokens
                account.cost += cost

        return settle

    def charge_unseen(self, shown: Sequence[ChatMessage], said: ChatMessage) -> None:
        """Charge an answer by estimate, if it came from a model that stands behind no gate."""
        if self._asked:
            return
        for account in self._accounts:
            account.tokens += count_tokens(list(shown)) + count_tokens(said)

    def _price(self, llm: Any, usage: Usage) -> float | None:
        if all(limit.budget.max_cost is None for limit in self._limits):
            return None
        model = llm.metadata.model_name
        found = price(usage, model, getattr(llm, "vendor", None)) if prices_available() else None
        if found is None:
            remedy = "use max_tokens instead" if prices_available() else "install batonflow[prices], or use max_tokens"
            raise LLMConfigurationError(f"max_cost cannot be kept: nobody knows what {model} costs; {remedy}")
        return found


def _taken(response: ChatResponse | None, read: int, dollars: float | None) -> tuple[int, float]:
    """Tokens and dollars of an answer; estimated, where it broke off or the vendor does not say."""
    usage = None if response is None else response.usage
    if usage is not None:
        return usage.total_tokens, usage.cost if usage.cost is not None else dollars or 0.0
    written = 0 if response is None else count_tokens(response.message)
    return read + written, dollars or 0.0

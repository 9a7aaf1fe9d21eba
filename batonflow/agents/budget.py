"""Budgets: limits of a run. Each request or tool call reserves its share first, and is charged at its end."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, model_validator

from batonflow.agents.memory.tokens import count_tokens
from batonflow.clock import current_source
from batonflow.llms import ChatMessage, ChatResponse, Usage
from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.stream import ChatRequest, Settle, estimated_tokens, request_gates
from batonflow.llms.usage import prices_available, record_usage, with_cost
from batonflow.workflow_core import Context
from batonflow.workflow_core.errors import BatonflowError

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = ["Budget", "BudgetExceededError", "Ledger", "Limits", "ledger_of", "payers", "run_inside"]

_RUN = ""
"""The account of the whole run; other accounts have the names of agents."""


class Budget(BaseModel):
    """The limits of an agent or a run.

    The budget of an agent limits its work in a run, including agents that it calls as tools. The budget of a team or of
    ``run(budget=...)`` limits the whole run. If there are several budgets, all apply.

    Args:
        max_tokens: Input and output tokens of models. Before a request, the input is estimated, and the output counts
            as the ``max_tokens`` of the request or the model, or as 1,024. Afterwards, the vendor's count is charged.
        max_cost: US dollars spent on models, as computed by ``LLM.cost_of``. A request fails if the price of its model
            is unknown.
        max_tool_calls: Tool calls, including failed ones, but not calls with wrong arguments.
        seconds: Seconds of work in all processes, without the time spent waiting for approvals.
        on_exceeded: ``"raise"`` a :class:`BudgetExceededError`, or let the model ``"answer"`` from the results so far,
            with one more request, which the budget does not limit.

    Raises:
        ValidationError: A limit is not positive.

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

    if not TYPE_CHECKING:  # type checkers derive the signature from the fields

        def __init__(self, *given: Any, **limits: Any) -> None:
            if given:
                raise TypeError(f"Budget takes its limits by name, for example Budget(max_tokens={given[0]!r})")
            super().__init__(**limits)

    @model_validator(mode="before")
    @classmethod
    def _bf_knows_fields(cls, data: Any) -> Any:
        given = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
        if unknown := [name for name in given if name not in cls.model_fields]:
            raise ValueError(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(cls.model_fields)}")
        return cast("Any", data)


class BudgetExceededError(BatonflowError, RuntimeError):
    """The error for a budget that is used up, or that the next action would exceed.

    Attributes:
        limit: The name of the limit: ``"max_tokens"``, ``"max_cost"``, ``"max_tool_calls"`` or ``"seconds"``.
        budget: The budget.
        agent: The name of the agent that the budget limits; None for a budget of the run.
        spent: The amount already spent.
        needed: The amount that the action would have needed.
        begun: Whether the tool call had already started.
    """

    __batonflow_kept__: ClassVar[Mapping[str, Any]] = {
        "limit": str, "budget": Budget, "agent": str | None, "spent": int | float, "needed": int | float, "begun": bool
    }  # fmt: skip

    begun = False

    def __init__(self, limit: str, budget: Budget, agent: str | None, spent: float, needed: float) -> None:
        self.limit, self.budget, self.agent, self.spent, self.needed = limit, budget, agent, spent, needed
        whose = "of the run" if agent is None else f"of agent {agent}"
        left = f", and about {needed:g} more would be needed" if needed else ""
        super().__init__(
            f"The budget {whose} is used up: {limit}={getattr(budget, limit):g}, {spent:g} spent{left}. Set a larger "
            "budget (a new turn with the context of this run continues from here), or set on_exceeded='answer' to get "
            "an answer from the results so far"
        )


@dataclass
class _Spent:
    """The amounts charged to an account, and the amounts reserved for running requests and calls."""

    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    reserved_tokens: int = 0
    reserved_cost: float = 0.0
    reserved_calls: int = 0


@dataclass(eq=False)
class _Inside:
    """The amounts that a running child run has charged to this ledger. The child also keeps its own ledger."""

    agent: str
    tokens: int = 0
    cost: float = 0.0
    calls: int = 0

    def add(self, tokens: int, cost: float, calls: int) -> None:
        self.tokens += tokens
        self.cost += cost
        self.calls += calls


class Ledger:
    """The amounts that a run has spent, by account. All steps of the run share one ledger.

    Args:
        kept: The result of ``dump``, in this process or another.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        # Time in which no process drives the run does not count.
        self._worked: float = kept.get("seconds", 0.0)
        self._since = current_source().now()
        self._asked = 0
        self._spent: dict[str, _Spent] = {name: _Spent(*values) for name, values in kept.get("spent", {}).items()}
        self._watchers: set[Callable[[], None]] = set()
        self._inside: list[_Inside] = []

    def dump(self) -> dict[str, Any]:
        """Return the spent amounts as JSON data, without requests, tool calls and child runs that are not finished."""
        spent: dict[str, list[float]] = {}
        for name, one in self._spent.items():
            under_way = [run for run in self._inside if name in (_RUN, run.agent)]
            spent[name] = [
                one.tokens - sum(run.tokens for run in under_way),
                one.cost - sum(run.cost for run in under_way),
                one.calls - sum(run.calls for run in under_way),
            ]
        return {"seconds": self.seconds(), "spent": spent}

    @contextmanager
    def holding(self, agent: str) -> Generator[_Inside, None, None]:
        """Track the amounts of a child run of ``agent`` while the block runs."""
        run = _Inside(agent)
        self._inside.append(run)
        try:
            yield run
        finally:
            self._inside.remove(run)

    def account(self, name: str | None) -> _Spent:
        """Return the account of an agent; ``name=None`` is the account of the run."""
        return self._spent.setdefault(name or _RUN, _Spent())

    def seconds(self) -> float:
        """Return the seconds that the run has worked."""
        return self._worked if self._asked else self._worked + current_source().now() - self._since

    @property
    def stands(self) -> bool:
        """True while the clock is stopped for a question to a person."""
        return self._asked > 0

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """Stop the clock inside the block, for a question to a person. It continues after the last open question."""
        if not self._asked:
            self._worked = self.seconds()
        self._asked += 1
        self._tell()
        try:
            yield
        finally:
            self._asked -= 1
            self._since = current_source().now()
            self._tell()

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Generator[None, None, None]:
        """Call ``watcher`` inside the block when the clock stops or continues."""
        self._watchers.add(watcher)
        try:
            yield
        finally:
            self._watchers.discard(watcher)

    def _tell(self) -> None:
        for watcher in list(self._watchers):
            watcher()


# The key is the run object, because a resumed run is a new object that needs a new ledger.
_ledgers: "WeakKeyDictionary[Run, Ledger]" = WeakKeyDictionary()


def ledger_of(ctx: Context[Any], kept: dict[str, Any]) -> Ledger:
    """Return the ledger of the context's run; the first call creates it from ``kept``, the result of ``dump``."""
    run = ctx.run
    if run is None:
        return Ledger(kept)
    ledger = _ledgers.get(run)
    if ledger is None:
        ledger = _ledgers[run] = Ledger(kept)
    return ledger


@dataclass(frozen=True)
class _Limit:
    budget: Budget
    agent: str | None
    ledger: Ledger

    def spent(self) -> _Spent:
        return self.ledger.account(self.agent)

    def exceeded(self, limit: str, spent: float, needed: float = 0) -> BudgetExceededError:
        return BudgetExceededError(limit, self.budget, self.agent, spent, needed)


payers: ContextVar[tuple["Limits", ...]] = ContextVar("batonflow_paying", default=())
"""The limits that the running code is charged to: one for each enclosing run, the outermost first."""


# The child runs that the running code is part of, as tracked in the ledgers of their enclosing runs.
_inside: ContextVar[tuple[_Inside, ...]] = ContextVar("batonflow_inside", default=())


@contextmanager
def run_inside() -> Generator[Callable[[Mapping[str, Any]], None], None, None]:
    """Charge a child run inside the block to the enclosing run.

    Yields:
        A function that takes the child run's dumped ledger from before an interruption, and charges these amounts too.
    """
    if not payers.get():
        yield lambda _: None
        return
    payer = payers.get()[-1]
    with payer.ledger.holding(payer.agent) as run:
        token = _inside.set((*_inside.get(), run))

        def charge(kept: Mapping[str, Any]) -> None:
            earlier = kept.get("spent", {}).get(_RUN, (0, 0.0, 0))
            payer.charge(*earlier)
            run.add(*earlier)

        try:
            yield charge
        finally:
            _inside.reset(token)


class Limits:
    """The budgets for a step of an agent: the budgets of its run and of the enclosing runs.

    Args:
        ledger: The ledger of the run.
        run_budgets: The budgets of the run and of the team.
        agent: The name of the agent.
        of_agent: The budget of the agent.
    """

    def __init__(self, ledger: Ledger, run_budgets: Sequence[Budget], agent: str, of_agent: Budget | None) -> None:
        self.ledger = ledger
        self.agent = agent
        self._runs = _inside.get()
        self._of_run = [_Limit(budget, None, ledger) for budget in run_budgets]
        if of_agent is not None:
            self._of_run.append(_Limit(of_agent, agent, ledger))
        # Code written by an agent calls tools from within a tool call. Leave out this run, to charge it once only.
        self._around: tuple[Limits, ...] = tuple(one for one in payers.get() if one.ledger is not ledger)
        self._limits: list[_Limit] = [limit for one in (*self._around, self) for limit in one._of_run]
        self._accounts: list[_Spent] = [
            *(account for one in self._around for account in one._accounts[-2:]),
            ledger.account(None),
            ledger.account(agent),
        ]
        self._asked = False

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """Apply the budgets inside the block, including tasks and runs started there."""
        token = payers.set((*self._around, self))
        try:
            with request_gates(self.admit, instead=True):
                yield
        finally:
            payers.reset(token)

    @contextmanager
    def only_around(self) -> Generator[None, None, None]:
        """Apply only the budgets of enclosing runs inside the block; usage is still charged to this run too."""
        token = payers.set(self._around)
        try:
            with request_gates(self._note, instead=True):
                yield
        finally:
            payers.reset(token)

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """Stop the clocks of this run and its enclosing runs inside the block, for questions to people."""
        with ExitStack() as stack:
            for ledger in self._ledgers():
                stack.enter_context(ledger.waiting())
            yield

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Generator[None, None, None]:
        """Call ``watcher`` inside the block when the clock of ``seconds_left`` stops or continues."""
        with ExitStack() as stack:
            for ledger in self._ledgers():
                stack.enter_context(ledger.watched(watcher))
            yield

    def _ledgers(self) -> list[Ledger]:
        return [one.ledger for one in (*self._around, self)]

    def owns(self, error: BudgetExceededError) -> bool:
        """Return whether the budget of an error belongs to this run."""
        return any(limit.budget is error.budget for limit in self._of_run)

    def wants_answer(self, error: BudgetExceededError) -> bool:
        """Return whether an error is about a budget of this run with ``on_exceeded="answer"``."""
        return error.budget.on_exceeded == "answer" and self.owns(error)

    def is_of_run(self, error: BudgetExceededError) -> bool:
        """Return whether the budget of an error limits the whole run, and not only one agent."""
        return any(limit.budget is error.budget and limit.agent is None for limit in self._of_run)

    def is_around(self, error: BudgetExceededError) -> bool:
        """Return whether the budget of an error belongs to an enclosing run."""
        return any(one.owns(error) for one in self._around)

    def check_time(self) -> None:
        """Check that time is left.

        Raises:
            BudgetExceededError: The time is used up.
        """
        for limit in self._limits:
            if limit.budget.seconds is not None and limit.ledger.seconds() >= limit.budget.seconds:
                raise limit.exceeded("seconds", limit.ledger.seconds())

    def seconds_left(self) -> float | None:
        """Return the seconds until the first budget runs out of time. None means that no clock with a limit runs."""
        left = [
            limit.budget.seconds - limit.ledger.seconds()
            for limit in self._limits
            if limit.budget.seconds is not None and not limit.ledger.stands
        ]
        return max(0.0, min(left)) if left else None

    def out_of_time(self) -> BudgetExceededError:
        """Return the error for a step that ran out of time."""
        timed = [(limit, limit.budget.seconds) for limit in self._limits if limit.budget.seconds is not None]
        first, _ = min(timed, key=lambda one: one[1] - one[0].ledger.seconds())
        return first.exceeded("seconds", first.ledger.seconds())

    def charge_call(self) -> Callable[[bool], None]:
        """Reserve a tool call.

        Returns:
            A function to call at the end of the tool call; its argument tells whether the call counts.

        Raises:
            BudgetExceededError: No tool calls are left, or no time.
        """
        self.check_time()
        for limit in self._limits:
            spent = limit.spent().calls + limit.spent().reserved_calls
            if limit.budget.max_tool_calls is not None and spent >= limit.budget.max_tool_calls:
                raise limit.exceeded("max_tool_calls", spent, 1)
        for account in self._accounts:
            account.reserved_calls += 1

        def settle(counts: bool) -> None:
            for account in self._accounts:
                account.reserved_calls -= 1
            self.charge(0, 0.0, int(counts))

        return settle

    def charge(self, tokens: int, cost: float, calls: int) -> None:
        """Charge amounts to the accounts of this run and of the enclosing runs."""
        for account in self._accounts:
            account.tokens += tokens
            account.cost += cost
            account.calls += calls
        for run in self._runs:
            run.add(tokens, cost, calls)

    def admit(self, llm: Any, request: ChatRequest) -> Settle:
        """Reserve the most that a request may use, and return the function that settles it. A ``Gate`` for requests.

        Raises:
            BudgetExceededError: The request may need more than is left.
            LLMConfigurationError: ``max_cost`` is set, and the price of the model is unknown.
        """
        self.check_time()
        return self._reserve(llm, request, self._limits)

    def _note(self, llm: Any, request: ChatRequest) -> Settle:
        """Admit a request even if the budgets of this run are used up; a ``Gate`` for requests."""
        return self._reserve(llm, request, [limit for limit in self._limits if limit not in self._of_run])

    def _reserve(self, llm: Any, request: ChatRequest, limits: Sequence[_Limit]) -> Settle:
        self._note_asked()
        given: Any = getattr(llm, "max_tokens", None)
        empty = request.model_copy(update={"messages": [], "tools": []})
        may_write = estimated_tokens(empty, given if isinstance(given, int) else None)
        read = _read(request)
        dollars = _cost(limits, llm, Usage(input_tokens=read, output_tokens=may_write))
        _check(limits, read + may_write, dollars)
        for account in self._accounts:
            account.reserved_tokens += read + may_write
            account.reserved_cost += dollars or 0.0

        def settle(response: ChatResponse | None) -> None:
            for account in self._accounts:
                account.reserved_tokens -= read + may_write
                account.reserved_cost -= dollars or 0.0
            if response is not None and response.usage is not None:
                self.charge(response.usage.total_tokens, response.usage.cost or 0.0, 0)
            else:
                written = 0 if response is None else count_tokens(response.message)
                self._charge_estimate(llm, Usage(input_tokens=read, output_tokens=written))

        return settle

    def _note_asked(self) -> None:
        for one in (*self._around, self):
            one._asked = True

    def check_unseen(self, llm: Any, shown: Sequence[ChatMessage]) -> None:
        """Check the budgets before a request, for models whose requests pass through no gate.

        Raises:
            BudgetExceededError: A budget is used up.
            LLMConfigurationError: ``max_cost`` is set, and the price of the model is unknown.
        """
        read = count_tokens(list(shown))
        _check(self._limits, read, None if llm is None else _cost(self._limits, llm, Usage(input_tokens=read)))

    def charge_unseen(self, llm: Any, shown: Sequence[ChatMessage], said: ChatMessage) -> None:
        """Charge an estimate for an answer, for models whose requests pass through no gate.

        Raises:
            LLMConfigurationError: ``max_cost`` is set, and the price of the model is unknown.
        """
        if self._asked or llm is None:
            return
        self._note_asked()
        usage = Usage(input_tokens=count_tokens(list(shown)), output_tokens=count_tokens(said))
        _cost(self._limits, llm, usage)
        self._charge_estimate(llm, usage)

    def _charge_estimate(self, llm: Any, usage: Usage) -> None:
        """Charge an estimate, and add it to the usage of the run, so that usage and ledger agree."""
        usage = with_cost(usage, getattr(llm, "cost_of", None))
        record_usage(usage, llm.metadata.model_name)
        self.charge(usage.total_tokens, usage.cost or 0.0, 0)


def _check(limits: Sequence[_Limit], tokens: int, dollars: float | None) -> None:
    for limit in limits:
        account = limit.spent()
        if limit.budget.max_tokens is not None:
            spent = account.tokens + account.reserved_tokens
            if spent + tokens > limit.budget.max_tokens:
                raise limit.exceeded("max_tokens", spent, tokens)
        if limit.budget.max_cost is not None and dollars is not None:
            used = account.cost + account.reserved_cost
            if used + dollars > limit.budget.max_cost:
                raise limit.exceeded("max_cost", used, dollars)


def _cost(limits: Sequence[_Limit], llm: Any, usage: Usage) -> float | None:
    """Return the cost of ``usage`` in US dollars; None if no budget has ``max_cost``."""
    if all(limit.budget.max_cost is None for limit in limits):
        return None
    cost = with_cost(usage, getattr(llm, "cost_of", None)).cost
    if cost is None:
        extra = "" if prices_available() else ", install batonflow[prices] for the public prices of vendors"
        raise LLMConfigurationError(
            f"max_cost cannot be enforced: the price of the model {llm.metadata.model_name} is unknown; give the model "
            f"price=Price(input=..., output=...) in US dollars per million tokens{extra}, or use max_tokens"
        )
    return cost


def _read(request: ChatRequest) -> int:
    """Return the estimated input tokens of a request."""
    tools = [f"{tool.name} {tool.description} {tool.parameters}" for tool in request.tools]
    return count_tokens(list(request.messages)) + sum(map(count_tokens, tools))

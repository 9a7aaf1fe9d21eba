"""One tool call of an agent: from what its model asks for to what the model is told."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from batonflow.agents.approvals import approved_arguments
from batonflow.agents.arguments import as_sent
from batonflow.agents.budget import Budget, BudgetExceededError, Limits
from batonflow.agents.effects import is_begun, is_recorded, recorded, writable, writable_value
from batonflow.agents.events import HANDOFF_TOOL, ToolCall, ToolCallResult, ToolProgress
from batonflow.agents.hooks import AfterTool, BeforeTool, Deny, after_tool, before_tool, is_cancelled
from batonflow.agents.prompts import BUDGET_CUT_OFF, BUDGET_USED_UP, TOOL_DENIED, TOOL_USED_UP
from batonflow.agents.results import READ_RESULT, shortened
from batonflow.agents.tracing import is_traced, spoken
from batonflow.llms import Usage, UsageTotals
from batonflow.llms.usage import begin_counting, counting_here, end_counting
from batonflow.tools import AsyncBaseTool, ToolArgumentsError, ToolOutput
from batonflow.tools.call import checked_arguments, error_output, needs_approval, own
from batonflow.workflow_core import Context
from batonflow.workflow_core.events import Event

if TYPE_CHECKING:
    from batonflow.workflow_core.run import Run

__all__ = [
    "ARRIVED",
    "BUDGET_ANSWER",
    "LEDGER",
    "REFUSED",
    "TOOLS_RUN",
    "CallTool",
    "Caller",
    "alone",
    "call_options",
    "in_time",
    "perform",
    "refusal_output",
    "spending",
    "spent_earlier",
]

T = TypeVar("T")

ARRIVED = "arrived_results"
"""Where the state store keeps results of an answer's calls until the last one is there, by place in the answer."""

REFUSED = "refused_calls"
"""Where the state store keeps why calls were not made with which the run ended: words by id of the call."""

TOOLS_RUN = "tools_run"
"""Where the state store keeps which calls of limited tools have run: places by tool."""

LEDGER = "ledger"
"""Where the state store keeps what the run has spent, when somebody asks."""

BUDGET_ANSWER = "budget_answer"
"""Where the state store says that a budget is used up and an answer is due: True, or the names of whose it is due."""

# The call that is under way here: of which run, and what ``run_tool`` is to know of it.
_under_way: ContextVar[tuple["Run | None", dict[str, Any]]] = ContextVar("batonflow_call", default=(None, {}))


def call_options() -> dict[str, Any]:
    """What ``run_tool`` is to know of the call that is under way here, beside tool and arguments."""
    return _under_way.get()[1]


class spending(UsageTotals):  # noqa: N801 - used like a function
    """Count what models take inside the block in the name of an agent, within the budgets that hold.

    Args:
        ctx: The run's context, inside a step.
        agent: Whose work it is.
        limits: The budgets.
        only_around: Leave those of this run out.
    """

    __slots__ = ("_agent", "_ctx", "_held", "_token", "run")

    _token: Token[Any]

    def __init__(self, ctx: Context[Any], agent: str, limits: Limits | None, *, only_around: bool = False) -> None:
        super().__init__()
        self._ctx, self._agent = ctx, agent
        self._held = None if limits is None else limits.only_around() if only_around else limits.hold()
        self.run = ctx.run

    # Written out: every step of an agent does this, and an asynchronous generator would cost five times as much.

    async def __aenter__(self) -> UsageTotals:
        around = _accounts()
        # Code that an agent runs calls tools inside a call: what they take counts there, and not once more around.
        inside = around and around[-1].run is self.run is not None
        self._token = begin_counting(self, self._agent, instead_of=around[-1] if inside else None)
        if self._held is not None:
            self._held.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.__exit__(kind, error, traceback)
        end_counting(self._token)
        if error is None and self.requests:
            await _add_usage(self._ctx, self._agent, self)


def _accounts() -> list[spending]:
    """The accounts that what is spent here is counted in, the outermost first."""
    counting = counting_here()
    return [one for one in counting if isinstance(one, spending)] if counting else []


async def _add_usage(ctx: Context[Any], agent: str, spent: UsageTotals) -> None:
    """Count what was spent under the agent's name, what agents did that it called as tools under theirs."""
    async with alone(ctx):
        totals: dict[str, Usage] = dict(await ctx.store.get("usage", default={}))
        for spender, usage in spent.by_spender.items():
            who = spender or agent
            totals[who] = totals[who] + usage if who in totals else usage
        await ctx.store.set("usage", totals)


def spent_earlier(usage: Mapping[str, Usage]) -> None:
    """Count what a run inside this step's had taken before it was interrupted.

    Args:
        usage: By agent.
    """
    for account in _accounts():
        for name, taken in usage.items():
            account.add(taken, "", name)


CallTool = Callable[[Context[Any], AsyncBaseTool, dict[str, Any]], Awaitable[ToolOutput]]
"""Calls a tool; what it raises becomes an output."""


class Caller(Protocol):
    """What is asked of an agent that calls tools; each of these is explained at ``BaseWorkflowAgent``."""

    name: str
    budget: Budget | None
    before_tool: Sequence[BeforeTool]
    after_tool: Sequence[AfterTool]
    max_result_chars: int | None

    @property
    def reads_on(self) -> bool:
        """Whether the model can read on in a result that is too long for it."""
        ...

    def call_one_tool(
        self, ctx: Context[Any], tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> Coroutine[Any, Any, ToolOutput]:
        """Call a tool; what it raises becomes an output."""
        ...


def refusal_output(call: ToolCall, words: str) -> ToolOutput:
    """What the model is told of a call that is not made."""
    return ToolOutput(tool_name=call.tool_name, content=words, raw_input=call.tool_kwargs, is_error=True)


class Performed(NamedTuple):
    """What came of a call.

    Attributes:
        output: For the model.
        arguments: With what the tool was called, which hooks and people may have changed; as a model sends it.
        handle: Under which the whole text is kept, if the model is shown the beginning only.
    """

    output: ToolOutput
    arguments: dict[str, Any]
    handle: str | None = None


def _refused(call: ToolCall, words: str) -> Performed:
    return Performed(refusal_output(call, words), call.tool_kwargs)


async def perform(
    ctx: Context[Any], agent: Caller, tool: AsyncBaseTool, call: ToolCall, place: str, limits: Limits | None = None
) -> Performed:
    """Make a call, unless a hook, a person, the tool's policy or a budget is against it.

    Args:
        ctx: The run's context, inside a step.
        agent: Whose call it is.
        tool: The tool.
        call: What the model asks for.
        place: Names the call within its run; the same after a restore.
        limits: The budgets that hold.

    Raises:
        BudgetExceededError: A budget that is to raise it does not allow the call.
    """
    # What is called with may be objects, which records and snapshots cannot hold; what is told of it is data.
    arguments = told = call.tool_kwargs
    if agent.before_tool:
        said = await before_tool(agent.before_tool, ctx, call)
        if isinstance(said, Deny):
            return _refused(call, TOOL_DENIED.format(tool_name=call.tool_name, reason=said.reason))
        arguments, told = said, as_sent(said)
    policy: Any = getattr(tool, "policy", None)
    most: int | None = getattr(policy, "max_calls", None)
    agreed: _Agreed | None = None
    if most is not None or getattr(policy, "requires_approval", False) is not False:
        if most is not None and not await _may_run(ctx, tool.metadata.get_name(), place, most):
            return _refused(call, TOOL_USED_UP.format(tool_name=call.tool_name, limit=most))
        try:
            agreed = await _agreed(ctx, agent, tool, arguments, told, call.tool_id, place, limits)
            arguments, told = agreed.arguments, agreed.told
        except _Refused as refused:
            return _refused(call, str(refused))
        except Exception as err:  # noqa: BLE001 - a predicate or validator of the user's may raise anything
            return Performed(error_output(call.tool_name, call.tool_kwargs, err), call.tool_kwargs)
        if most is not None and not await _counted(ctx, tool.metadata.get_name(), place, most):
            return _refused(call, TOOL_USED_UP.format(tool_name=call.tool_name, limit=most))
    options = _options(ctx, call, place, agreed)
    try:
        if is_recorded(ctx, tool):
            running = partial(_run_and_count, ctx, agent, tool, arguments, limits, options)
            approved = agreed is not None and agreed.checked
            output = await recorded(ctx, agent, tool, call, arguments, place, running, approved=approved)
        else:
            output = writable(ctx, await _run(ctx, agent, tool, arguments, limits, options))
    except BudgetExceededError as err:
        return Performed(await _over_budget(ctx, agent, call, err, limits), told)
    if agent.after_tool:
        result = ToolCallResult.of(call, own(told), output, return_direct=tool.metadata.return_direct)
        output = await after_tool(agent.after_tool, ctx, result)
    longest: int | None = getattr(policy, "max_result_chars", None) or agent.max_result_chars
    if longest is None or len(output.content) <= longest:
        return Performed(output, told)
    # Code gets the whole of what it calls, who takes over is told the whole task, and one tool gives pages that fit.
    if _under_way.get()[0] is ctx.run is not None or call.tool_name in (READ_RESULT, HANDOFF_TOOL):
        return Performed(output, told)
    if tool.metadata.return_direct and not (agent.reads_on or output.is_error):  # nothing would keep the whole answer
        return Performed(output, told)
    async with alone(ctx):
        output, handle = await shortened(ctx, output, longest, handle=place if agent.reads_on else None)
    return Performed(output, told, handle)


async def _run_and_count(
    ctx: Context[Any],
    agent: Caller,
    tool: AsyncBaseTool,
    arguments: dict[str, Any],
    limits: Limits | None,
    options: dict[str, Any],
) -> ToolOutput:
    """Run a tool; what it takes is written down with its result, as nobody runs it again for that."""
    async with spending(ctx, agent.name, None):
        output = await _run(ctx, agent, tool, arguments, limits, options)
    if limits is not None:
        await ctx.store.set(LEDGER, limits.ledger.dump())
    return output


async def _run(
    ctx: Context[Any],
    agent: Caller,
    tool: AsyncBaseTool,
    arguments: dict[str, Any],
    limits: Limits | None,
    options: dict[str, Any],
) -> ToolOutput:
    """Run a tool on the account of the budgets that hold.

    Raises:
        BudgetExceededError: One of them does not allow it, or not all of it.
    """
    settle = None if limits is None else limits.charge_call()
    counts = True
    run = ctx.run
    token = _under_way.set((run, options))
    try:
        # A team may have a way of its own, also for the tools that its members' code calls.
        caller = None if run is None else getattr(run.workflow, "_bf_caller", None)
        running = (agent.call_one_tool if caller is None else caller(agent))(ctx, tool, arguments)
        if limits is not None:
            running = in_time(running, limits)
        output = await (spoken(agent.name, running) if is_traced() else running)
        if settle is not None:
            counts = not isinstance(output.exception, ToolArgumentsError)
    except BudgetExceededError as error:
        error.begun = True
        raise
    except asyncio.CancelledError:
        if is_cancelled(ctx):
            raise
        # Nobody cancels the step: something that the tool waited for was cancelled, and that is the tool's failure.
        error = RuntimeError(f"Tool {tool.metadata.get_name()!r} gave no result: what it waited for was cancelled")
        output = error_output(tool.metadata.get_name(), arguments, error)
    finally:
        _under_way.reset(token)
        if settle is not None:
            settle(counts)
    if limits is not None:
        error = output.exception
        # Of an agent that works behind the tool: its own budget is its own affair.
        if isinstance(error, BudgetExceededError) and (limits.owns(error) or limits.is_around(error)):
            error.begun = True
            raise error
    return output


class _Agreed(NamedTuple):
    """What to call a tool with that a person may have been asked about.

    Attributes:
        arguments: What to call it with.
        told: The same, as a model sends it.
        checked: Whether the tool has checked the arguments.
    """

    arguments: dict[str, Any]
    told: dict[str, Any]
    checked: bool


class _Refused(Exception):
    """A person is against a call; the text is for the model."""


async def _agreed(
    ctx: Context[Any],
    agent: Caller,
    tool: AsyncBaseTool,
    arguments: dict[str, Any],
    told: dict[str, Any],
    tool_id: str,
    place: str,
    limits: Limits | None,
) -> _Agreed:
    """What to call with: as it is where no person is asked, else what a person approved.

    Raises:
        _Refused: A person is against the call.
    """
    checked = checked_arguments(tool, arguments)
    if not await needs_approval(tool, checked):
        return _Agreed(arguments, told, checked=False)
    with nullcontext() if limits is None else limits.waiting():
        begun = is_begun(ctx, tool, place)
        said = await approved_arguments(
            ctx, tool, checked, call=place, tool_id=tool_id, agent=agent.name, sent=arguments, begun=begun
        )
    if isinstance(said, str):
        raise _Refused(said)
    return _Agreed(said.arguments, as_sent(said.arguments) if said.edited else told, checked=True)


async def _runs(ctx: Context[Any]) -> dict[str, list[str]]:
    """The places of the calls of limited tools that have run, by tool."""
    return await ctx.store.get(TOOLS_RUN, default=None) or {}


async def _may_run(ctx: Context[Any], tool_name: str, place: str, most: int) -> bool:
    """Whether a tool may run once more; nobody is asked in vain when it may not."""
    places = (await _runs(ctx)).get(tool_name, [])
    # After a restore the same call comes again.
    return place in places or len(places) < most


async def _counted(ctx: Context[Any], tool_name: str, place: str, most: int) -> bool:
    """Whether a tool may run once more; then that it does is written down."""
    async with alone(ctx):
        if not await _may_run(ctx, tool_name, place, most):
            return False
        run = await _runs(ctx)
        places = run.get(tool_name, [])
        if place not in places:
            await ctx.store.set(TOOLS_RUN, {**run, tool_name: [*places, place]})
        return True


async def _over_budget(
    ctx: Context[Any], agent: Caller, call: ToolCall, error: BudgetExceededError, limits: Limits | None
) -> ToolOutput:
    most = getattr(error.budget, error.limit)
    said = BUDGET_CUT_OFF if error.begun else BUDGET_USED_UP
    words = said.format(tool_name=call.tool_name, limit=error.limit, most=most)
    if limits is None or not limits.wants_answer(error):
        if not error.begun:
            refused: dict[str, str] = await ctx.store.get(REFUSED, default=None) or {}
            await ctx.store.set(REFUSED, {**refused, call.tool_id: words})
        raise error
    used_up: Any = await ctx.store.get(BUDGET_ANSWER, default=None)
    if used_up is not True:
        # The budget of one agent is no affair of the others.
        its_own = error.budget is agent.budget and not limits.is_of_run(error)
        await ctx.store.set(BUDGET_ANSWER, [*(used_up or ()), agent.name] if its_own else True)
    return refusal_output(call, words)


def _options(ctx: Context[Any], call: ToolCall, place: str, agreed: _Agreed | None) -> dict[str, Any]:
    def report(value: Any) -> None:
        if not isinstance(value, Event):
            told = writable_value(ctx, value)
            value = ToolProgress(tool_name=call.tool_name, tool_id=call.tool_id, value=told)
        ctx.write_event_to_stream(value)

    return {
        "approved": agreed is not None,
        # Not checked again, as it may become something else: what was approved is what runs. A copy, as a guard that
        # stands before the tool may change what it is given, and that is checked.
        "checked": own(agreed.arguments) if agreed is not None and agreed.checked else None,
        "idempotency_key": f"{ctx.run_id}/{place}",
        "report": report,
        "call_id": call.tool_id,
    }


async def in_time(running: Awaitable[T], limits: Limits | None) -> T:
    """What ``running`` gives, if it does so before the time of the budgets is up.

    Raises:
        BudgetExceededError: It does not.
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


# By run, as several of its calls may be writing down what they did.
_writing: "WeakKeyDictionary[Run, asyncio.Lock]" = WeakKeyDictionary()


def alone(ctx: Context[Any]) -> AbstractAsyncContextManager[None]:
    """For a value of the state store that is read, changed and written: nobody else does so inside the block."""
    run = ctx.run
    if run is None:
        return nullcontext()
    lock = _writing.get(run)
    if lock is None:
        lock = _writing[run] = asyncio.Lock()
    return lock

"""Budgets around a tool: the charge for the call, and the answer after a used-up budget."""

from typing import Any

from batonflow.agents.budget import BudgetExceededError
from batonflow.agents.invocation import CallNext, ToolInvocation, refusal_output
from batonflow.agents.ledger import BUDGET_ANSWER, REFUSED, within_time
from batonflow.agents.prompts import BUDGET_CUT_OFF, BUDGET_USED_UP
from batonflow.tools import ToolArgumentsError, ToolOutput

__all__ = ["answer_over_budget", "charge_call"]


async def answer_over_budget(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Tell the model that a budget is used up, if that budget requires an answer.

    Raises:
        BudgetExceededError: The budget has ``on_exceeded="raise"``.
    """
    try:
        return await call_next(invocation)
    except BudgetExceededError as error:
        invocation.refused = True
        return await _over_budget(invocation, error)


async def _over_budget(invocation: ToolInvocation, error: BudgetExceededError) -> ToolOutput:
    call, store, limits = invocation.call, invocation.ctx.store, invocation.limits
    text = BUDGET_CUT_OFF if error.begun else BUDGET_USED_UP
    words = text.format(tool_name=call.tool_name, limit=error.limit, most=getattr(error.budget, error.limit))
    if limits is None or not limits.wants_answer(error):
        if not error.begun:
            refused: dict[str, str] = await store.get(REFUSED, default=None) or {}
            await store.set(REFUSED, {**refused, call.tool_id: words})
        raise error
    used_up: Any = await store.get(BUDGET_ANSWER, default=None)
    if used_up is not True:
        # The budget of one agent does not end the work of other agents.
        agent = invocation.agent
        of_agent = error.budget is agent.budget and not limits.is_of_run(error)
        await store.set(BUDGET_ANSWER, [*(used_up or ()), agent.name] if of_agent else True)
    return refusal_output(call, words)


async def charge_call(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Charge a call to the budgets, and cancel it when their time is used up.

    Raises:
        BudgetExceededError: A budget does not permit the call, or its time was used up during the call.
    """
    limits = invocation.limits
    assert limits is not None
    settle, counts = limits.charge_call(), True
    try:
        output = await within_time(call_next(invocation), limits)
        counts = not isinstance(output.exception, ToolArgumentsError)
    except BudgetExceededError as error:
        error.begun = True
        raise
    finally:
        settle(counts)
    error = output.exception
    # The budget of an agent that is called as a tool is its own, so its error stays a result.
    if isinstance(error, BudgetExceededError) and (limits.owns(error) or limits.is_around(error)):
        error.begun = True
        raise error
    return output

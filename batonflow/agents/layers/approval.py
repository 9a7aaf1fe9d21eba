"""Approval: a question to a person before a tool runs, if its policy requires it."""

from contextlib import nullcontext

from batonflow.agents.approvals import ask_for_approval
from batonflow.agents.arguments import as_sent
from batonflow.agents.invocation import Approval, CallNext, ToolInvocation
from batonflow.agents.layers.record import is_begun
from batonflow.agents.ledger import request_changes
from batonflow.tools import ToolOutput
from batonflow.tools.call import checked_arguments, error_output, needs_approval
from batonflow.tools.call import own as copy_containers

__all__ = ["check_approval"]


async def check_approval(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Validate the arguments, ask a person if the policy requires it, and continue with the approved arguments."""
    call = invocation.call
    try:
        refusal = None if _is_approved(invocation) else await _refusal(invocation)
    except Exception as err:  # noqa: BLE001 - a predicate or validator of the program may raise anything
        invocation.refused, invocation.reported = True, call.tool_kwargs
        return error_output(call.tool_name, call.tool_kwargs, err)
    if refusal is not None:
        return invocation.refuse(refusal)
    invocation.approved = True
    return await call_next(invocation)


def _is_approved(invocation: ToolInvocation) -> bool:
    """Use the approval of an earlier run of the tool with the same arguments. Return whether there is one."""
    approval = invocation.approval
    if approval is None or approval.asked is not invocation.arguments:
        return False
    invocation.arguments, invocation.checked = approval.arguments, copy_containers(approval.arguments)
    invocation.reported = approval.reported
    return True


async def _refusal(invocation: ToolInvocation) -> str | None:
    """Return the text of a refusal; None if the call is permitted, with the arguments in the invocation."""
    ctx, tool, limits = invocation.ctx, invocation.tool, invocation.limits
    checked = checked_arguments(tool, invocation.arguments)
    if not request_changes(ctx.run).get("ask_before_tools") and not await needs_approval(tool, checked, ctx):
        return None
    with nullcontext() if limits is None else limits.waiting():
        answer = await ask_for_approval(
            ctx,
            tool,
            checked,
            call=invocation.place,
            tool_id=invocation.call.tool_id,
            agent=invocation.agent.name,
            sent=invocation.arguments,
            begun=is_begun(ctx, tool, invocation.place),
        )
    if isinstance(answer, str):
        return answer
    asked = invocation.arguments
    # An overridden method may change its arguments; changed ones are validated again.
    invocation.arguments, invocation.checked = answer.arguments, copy_containers(answer.arguments)
    if answer.edited:
        invocation.reported = as_sent(answer.arguments)
    invocation.approval = Approval(asked, invocation.arguments, invocation.reported)
    return None

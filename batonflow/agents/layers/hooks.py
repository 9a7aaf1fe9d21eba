"""Hooks: functions of the user around a tool call, ``before_tool`` and ``after_tool``."""

from collections.abc import Sequence
from typing import Any, cast

from batonflow.agents.arguments import as_sent
from batonflow.agents.events import ToolCall, ToolCallResult
from batonflow.agents.hooks import AfterTool, BeforeTool, Deny, Replace, call_hook, failure_of, name_of
from batonflow.agents.invocation import CallNext, ToolInvocation
from batonflow.agents.prompts import TOOL_DENIED
from batonflow.instrumentation.logs import logger_named
from batonflow.tools import ToolOutput
from batonflow.tools.call import own as copy_containers
from batonflow.workflow_core import Context

__all__ = ["call_hooks"]

logger = logger_named("batonflow.agent")


async def call_hooks(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Call the hooks before the tool, and with its output the hooks after it. A refused call skips the latter."""
    ctx, agent, call = invocation.ctx, invocation.agent, invocation.call
    if agent.before_tool:
        decision = await _before_tool(agent.before_tool, ctx, call)
        if isinstance(decision, Deny):
            return invocation.refuse(TOOL_DENIED.format(tool_name=call.tool_name, reason=decision.reason))
        invocation.arguments, invocation.reported = decision, as_sent(decision)
    output = await call_next(invocation)
    if invocation.refused or not agent.after_tool:
        return output
    direct = invocation.tool.metadata.return_direct
    result = ToolCallResult.of(call, copy_containers(invocation.reported), output, return_direct=direct)
    return await _after_tool(agent.after_tool, ctx, result)


async def _before_tool(hooks: Sequence[BeforeTool], ctx: Context[Any], call: ToolCall) -> dict[str, Any] | Deny:
    """Return the arguments for a tool, or a denial; an exception of a hook counts as a denial.

    Args:
        hooks: The hooks, in order; each gets the arguments from the one before.
        ctx: The run's context.
        call: The call of the model.
    """
    # A copy, because a hook may change the arguments, which are also sent back to the model.
    call = call.model_copy(update={"tool_kwargs": copy_containers(call.tool_kwargs)})
    for hook in hooks:
        try:
            decision = await call_hook(hook, (Deny, Replace), ctx, call)
            if isinstance(decision, Replace):
                call = ToolCall(tool_name=call.tool_name, tool_kwargs=decision.arguments, tool_id=call.tool_id)
        except Exception as err:
            # A check with an exception does not permit the call.
            logger.exception("The hook %s failed, so %s does not run", name_of(hook), call.tool_name)
            return Deny(failure_of(hook, err))
        if isinstance(decision, Deny):
            return decision
    return call.tool_kwargs


async def _after_tool(hooks: Sequence[AfterTool], ctx: Context[Any], result: ToolCallResult) -> ToolOutput:
    """Return the output for the model; an exception of a hook replaces it by an error.

    Args:
        hooks: The hooks, in order; each gets the output of the one before.
        ctx: The run's context.
        result: The call with its output.
    """
    for hook in hooks:
        try:
            output = await call_hook(hook, (ToolOutput,), ctx, result)
        except Exception as err:
            logger.exception("The hook %s failed, so the result of %s is withheld", name_of(hook), result.tool_name)
            words = f"The result of {result.tool_name} is withheld: {failure_of(hook, err)}"
            return ToolOutput(
                tool_name=result.tool_name, content=words, raw_input=result.tool_kwargs, is_error=True, exception=err
            )
        if output is not None:
            result = result.model_copy(update={"tool_output": cast("ToolOutput", output)})
    return result.tool_output

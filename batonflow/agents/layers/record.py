"""Record: tool calls of stored runs are recorded before and after, and not repeated without a decision."""

from typing import Any

from batonflow import values
from batonflow.agents.approvals import OTHER_ARGUMENTS, Agreed, ask_for_approval
from batonflow.agents.arguments import as_sent, digest_of
from batonflow.agents.invocation import CallNext, ToolInvocation, refusal_output
from batonflow.agents.ledger import LEDGER, count_usage
from batonflow.agents.prompts import TOOL_OUTCOME_UNKNOWN
from batonflow.tools import AsyncBaseTool, ToolOutput
from batonflow.workflow_core import Context
from batonflow.workflow_core.context.once import begun_earlier
from batonflow.workflow_core.errors import UnknownOutcomeError

__all__ = ["is_begun", "is_recorded", "make_writable", "record_call"]


def is_recorded(ctx: Context[Any], tool: AsyncBaseTool) -> bool:
    """Return whether calls of ``tool`` are recorded, in a run with a store.

    Tools that are part of the agent, such as handoffs, have no effects outside of the run.
    """
    run = ctx.run
    return run is not None and run.root.drive is not None and getattr(tool, "policy", None) is not None


async def record_call(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Record the intent before a call, and the outcome before anything else can read it.

    If a process ended in the middle of the call, the policy of the tool decides: an ``idempotent`` tool runs again
    under the same key, another tool according to ``on_unknown``.
    """
    ctx, call, limits = invocation.ctx, invocation.call, invocation.limits
    key, policy = _key(invocation.place), invocation.policy

    async def run_and_count() -> ToolOutput:
        # The usage is recorded with the outcome, because the tool does not run again for it.
        async with count_usage(ctx, invocation.agent.name, None, "tool"):
            output = await call_next(invocation)
        if limits is not None:
            await ctx.store.set(LEDGER, limits.ledger.dump())
        return _writable(ctx, output)

    about = {"tool": call.tool_name, "digest": digest_of(call.tool_name, as_sent(invocation.arguments))}
    # Arguments that are computed at the moment of the call may differ from the approved ones; then a person decides.
    changed = invocation.checked is not None and (begun_earlier(key) or {}).get("about", about) != about
    repeat = not changed and (policy.idempotent or policy.on_unknown == "retry")
    try:
        return await ctx.effect(key, run_and_count, about=about, repeat=repeat)
    except UnknownOutcomeError as unknown:
        if policy.on_unknown == "fail":
            return refusal_output(call, TOOL_OUTCOME_UNKNOWN.format(tool_name=call.tool_name))
        answer = await _ask_again(invocation, unknown.times, changed=changed)
        if isinstance(answer, str):
            return refusal_output(call, answer)
    return await ctx.effect(key, run_and_count, about=about, repeat=True)


async def _ask_again(invocation: ToolInvocation, times: int, *, changed: bool) -> Agreed | str:
    """Ask a person whether to make a call again that may have happened."""
    # Each time it is a new question, because the earlier answer was used for the call.
    question = f"{invocation.place}?" if times == 1 else f"{invocation.place}?{times}"
    return await ask_for_approval(
        invocation.ctx,
        invocation.tool,
        invocation.arguments,
        call=question,
        tool_id=invocation.call.tool_id,
        agent=invocation.agent.name,
        reason="unknown_outcome",
        problem=OTHER_ARGUMENTS if changed else None,
    )


def _key(place: str) -> str:
    """Return the name of a tool call in the records."""
    return f"tool {place}"


def is_begun(ctx: Context[Any], tool: AsyncBaseTool, place: str) -> bool:
    """Return whether the records contain the start of a call."""
    return is_recorded(ctx, tool) and begun_earlier(_key(place)) is not None


async def make_writable(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Replace values in the output that the store cannot write by texts; the model gets only the text."""
    return _writable(invocation.ctx, await call_next(invocation))


def _writable(ctx: Context[Any], output: ToolOutput) -> ToolOutput:
    recorder = None if ctx.run is None else ctx.run.recorder
    if recorder is None:
        return output
    if not recorder.can_write(output.raw_output):
        output.raw_output = repr(output.raw_output)
    if not recorder.can_write(output.raw_input):
        output.raw_input = values.in_words(output.raw_input, recorder.can_write)
    return output

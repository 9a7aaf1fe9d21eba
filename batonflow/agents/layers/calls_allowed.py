"""Limits of calls. A tool runs at most ``max_calls`` times in a run, if its policy has a limit."""

from typing import Any

from batonflow.agents.invocation import CallNext, ToolInvocation
from batonflow.agents.ledger import TOOLS_RUN, state_lock
from batonflow.agents.prompts import TOOL_USED_UP
from batonflow.tools import ToolOutput
from batonflow.workflow_core import Context

__all__ = ["count_call", "refuse_used_up"]


async def refuse_used_up(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Refuse the call of a tool without calls left, before a person is asked about it."""
    places = (await _calls_made(invocation.ctx)).get(invocation.tool.metadata.get_name(), [])
    return await call_next(invocation) if _may_run(invocation, places) else _refuse(invocation)


async def count_call(invocation: ToolInvocation, call_next: CallNext) -> ToolOutput:
    """Count a call, or refuse it without calls left."""
    ctx, name = invocation.ctx, invocation.tool.metadata.get_name()
    async with state_lock(ctx.run):
        made = await _calls_made(ctx)
        places = made.get(name, [])
        if not _may_run(invocation, places):
            return _refuse(invocation)
        if invocation.place not in places:
            await ctx.store.set(TOOLS_RUN, {**made, name: [*places, invocation.place]})
    return await call_next(invocation)


async def _calls_made(ctx: Context[Any]) -> dict[str, list[str]]:
    """Return the places of calls that limited tools have made, by tool."""
    return await ctx.store.get(TOOLS_RUN, default=None) or {}


def _may_run(invocation: ToolInvocation, places: list[str]) -> bool:
    # After a restore, the same call comes again at the same place.
    return invocation.place in places or len(places) < invocation.policy.max_calls


def _refuse(invocation: ToolInvocation) -> ToolOutput:
    name, limit = invocation.call.tool_name, invocation.policy.max_calls
    return invocation.refuse(TOOL_USED_UP.format(tool_name=name, limit=limit))

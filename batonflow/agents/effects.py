"""Tool calls of runs that a store keeps: written down before and after, and never silently repeated."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from batonflow.agents.approvals import OTHER_ARGUMENTS, approved_arguments
from batonflow.agents.arguments import as_sent, digest_of
from batonflow.agents.events import ToolCall
from batonflow.agents.prompts import TOOL_OUTCOME_UNKNOWN
from batonflow.lazy import at_first_use
from batonflow.tools import AsyncBaseTool, ToolOutput
from batonflow.workflow_core import Context
from batonflow.workflow_core.context.once import begun_earlier
from batonflow.workflow_core.errors import UnknownOutcomeError

__all__ = ["is_begun", "is_recorded", "recorded", "writable", "writable_value"]

in_words = at_first_use("batonflow.workflow_core.state_data", "in_words")


class _Named(Protocol):
    name: str


def is_recorded(ctx: Context[Any], tool: AsyncBaseTool) -> bool:
    """Whether calls of ``tool`` are written down: a store keeps the run.

    Tools that are part of the agent, as handoffs are, touch nothing outside of the run.
    """
    run = ctx.run
    return run is not None and run.root.drive is not None and getattr(tool, "policy", None) is not None


async def recorded(
    ctx: Context[Any],
    agent: _Named,
    tool: AsyncBaseTool,
    call: ToolCall,
    arguments: dict[str, Any],
    place: str,
    run_tool: Callable[[], Awaitable[ToolOutput]],
    *,
    approved: bool = False,
) -> ToolOutput:
    """Make a tool call; the intent is written before it, and the result before anybody learns of it.

    When a process ended in the middle of the call, the tool's policy says what that means: one that is ``idempotent``
    runs again under the same key, another as ``on_unknown`` says.

    Args:
        ctx: The run's context, inside a step.
        agent: Whose call it is.
        tool: The tool.
        call: What the model asked for.
        arguments: What the tool is called with.
        place: Names the call within its run; the same after a restore.
        run_tool: Makes the call.
        approved: Whether a person has approved it with just these arguments.
    """
    policy: Any = getattr(tool, "policy", None)
    key = _key(place)

    async def run_writable() -> ToolOutput:
        return writable(ctx, await run_tool())

    about = {"tool": call.tool_name, "digest": digest_of(call.tool_name, as_sent(arguments))}
    # What a person has approved is not made again as something else without a word: what is checked or looked up
    # at the moment of the call may have become that.
    changed = approved and (begun_earlier(key) or {}).get("about", about) != about
    repeat = not changed and (policy.idempotent or policy.on_unknown == "retry")
    try:
        return await ctx.effect(key, run_writable, about=about, repeat=repeat)
    except UnknownOutcomeError as unknown:
        if policy.on_unknown == "fail":
            return _told(call, TOOL_OUTCOME_UNKNOWN.format(tool_name=call.tool_name))
        # Each time it is another question: the answer to an earlier one was used when the call was begun again.
        question = f"{place}?" if unknown.times == 1 else f"{place}?{unknown.times}"
        said = await approved_arguments(
            ctx,
            tool,
            arguments,
            call=question,
            tool_id=call.tool_id,
            agent=agent.name,
            reason="unknown_outcome",
            problem=OTHER_ARGUMENTS if changed else None,
        )
        if isinstance(said, str):
            return _told(call, said)
    return await ctx.effect(key, run_writable, about=about, repeat=True)


def _key(place: str) -> str:
    """What the records call a tool call."""
    return f"tool {place}"


def is_begun(ctx: Context[Any], tool: AsyncBaseTool, place: str) -> bool:
    """Whether the records say that a call was begun already, whatever became of it."""
    return is_recorded(ctx, tool) and begun_earlier(_key(place)) is not None


def _told(call: ToolCall, words: str) -> ToolOutput:
    return ToolOutput(tool_name=call.tool_name, content=words, raw_input=call.tool_kwargs, is_error=True)


def writable_value(ctx: Context[Any], value: Any) -> Any:
    """A value itself, where a store keeps the run as data that it can write."""
    recorder = None if ctx.run is None else ctx.run.recorder
    return value if recorder is None or recorder.can_write(value) else as_sent({"value": value})["value"]


def writable(ctx: Context[Any], output: ToolOutput) -> ToolOutput:
    """The output itself, where a store keeps the run without values that it cannot: the model has read the text."""
    recorder = None if ctx.run is None else ctx.run.recorder
    if recorder is None:
        return output
    if not recorder.can_write(output.raw_output):
        output.raw_output = repr(output.raw_output)
    if not recorder.can_write(output.raw_input):
        output.raw_input = in_words(output.raw_input, recorder.can_write)
    return output

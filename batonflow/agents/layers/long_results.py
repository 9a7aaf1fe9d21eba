"""Long results: the model gets the beginning of a result, and reads the rest with a tool."""

from functools import cache
from itertools import count
from typing import Any

from batonflow.agents.events import HANDOFF_TOOL, ToolCallResult
from batonflow.agents.invocation import HANDLE, LONG_RESULTS, READ_RESULT, ToolInvocation, invocation_here
from batonflow.agents.ledger import state_lock
from batonflow.agents.prompts import RESULT_CUT, RESULT_CUT_OFF, RESULT_END, RESULT_UNKNOWN
from batonflow.llms import TextBlock
from batonflow.tools import FunctionTool, ToolOutput, ToolPolicy
from batonflow.workflow_core import Context

__all__ = ["cut_result", "cut_text", "read_result", "whole_text"]

_PAGE = 20_000


async def cut_result(invocation: ToolInvocation, output: ToolOutput, limit: int) -> ToolOutput:
    """Return ``output`` with at most ``limit`` characters of text, and a note. A handle keeps the whole text.

    Args:
        invocation: The call.
        output: A result that is longer.
        limit: Characters that the model is to see at once.
    """
    # Handoffs pass the whole task on, and this tool returns pages of the right size.
    if invocation.call.tool_name in (READ_RESULT, HANDOFF_TOOL) or invocation_here(invocation.ctx) is not None:
        return output  # code of an agent gets whole results
    if invocation.tool.metadata.return_direct and not (
        invocation.agent.reads_on or output.is_error
    ):  # the whole answer would be lost
        return output
    text, store = output.content, invocation.ctx.store
    others = [block for block in output.blocks if not isinstance(block, TextBlock)]
    note = RESULT_CUT_OFF.format(shown=limit, size=len(text))
    if invocation.agent.reads_on:
        async with state_lock(invocation.ctx.run):
            kept: dict[str, str] = dict(await store.get(LONG_RESULTS, default={}))
            # An earlier run of the conversation may have used the handle for another text.
            names = (invocation.place if number == 1 else f"{invocation.place}-{number}" for number in count(1))
            handle = invocation.handle = next(name for name in names if kept.get(name, text) == text)
            kept[handle] = text
            await store.set(LONG_RESULTS, kept)
        note = RESULT_CUT.format(shown=limit, size=len(text), tool=READ_RESULT, handle=handle)
    return output.model_copy(update={"blocks": [TextBlock(text=f"{text[:limit]}\n\n{note}"), *others]})


async def whole_text(ctx: Context[Any], result: ToolCallResult) -> str:
    """Return the whole text of a result."""
    kept: dict[str, str] = await ctx.store.get(LONG_RESULTS, default={}) if HANDLE in result else {}
    return kept.get(result.get(HANDLE), result.tool_output.content)


def cut_text(result: ToolCallResult) -> str:
    """Return the beginning of a long result that the model has; empty for other results."""
    return result.tool_output.content if HANDLE in result else ""


@cache
def read_result(page: int | None = None) -> FunctionTool:
    """Return the tool that reads on.

    Args:
        page: The characters per call; at most 20,000.
    """
    size = min(page or _PAGE, _PAGE)

    async def read(ctx: Context[Any], handle: str, offset: int = 0) -> str:
        """Read on in a tool's result that was too long to be shown as a whole.

        Args:
            ctx: The run's context.
            handle: Which result, as the note below its beginning says.
            offset: The character to begin with.
        """
        kept: dict[str, str] = await ctx.store.get(LONG_RESULTS, default={})
        text = kept.get(handle)
        if text is None:
            return RESULT_UNKNOWN.format(handle=handle, known=", ".join(kept) or "none")
        shown = text[max(0, offset) : max(0, offset) + size]
        end = max(0, offset) + len(shown)
        if end >= len(text):
            return f"{shown}\n\n{RESULT_END.format(size=len(text))}"
        return f"{shown}\n\n{RESULT_CUT.format(shown=end, size=len(text), tool=READ_RESULT, handle=handle)}"

    return FunctionTool.from_defaults(async_fn=read, name=READ_RESULT, policy=ToolPolicy(idempotent=True))

"""Results that are too long for a model: it is shown the beginning, and can read on."""

from functools import cache
from typing import Any

from batonflow.agents.prompts import RESULT_CUT, RESULT_END, RESULT_UNKNOWN
from batonflow.llms import TextBlock
from batonflow.tools import FunctionTool, ToolOutput
from batonflow.workflow_core import Context

__all__ = ["LONG_RESULTS", "READ_RESULT", "read_result", "shortened"]

READ_RESULT = "read_result"
"""The name of the tool that reads on."""

LONG_RESULTS = "long_results"
"""Where the state store keeps whole results by handle."""

_PAGE = 20_000


async def shortened(ctx: Context[Any], output: ToolOutput, limit: int, handle: str) -> ToolOutput:
    """``output`` with at most ``limit`` characters of text; the whole text is kept under ``handle``.

    Args:
        ctx: The run's context, inside a step.
        output: What a tool gave back.
        limit: The characters to show.
        handle: Names the result within the run.
    """
    text = output.content
    if len(text) <= limit:
        return output
    kept: dict[str, str] = dict(await ctx.store.get(LONG_RESULTS, default={}))
    kept[handle] = text
    await ctx.store.set(LONG_RESULTS, kept)
    note = RESULT_CUT.format(shown=limit, size=len(text), tool=READ_RESULT, handle=handle)
    others = [block for block in output.blocks if not isinstance(block, TextBlock)]
    return output.model_copy(update={"blocks": [TextBlock(text=f"{text[:limit]}\n\n{note}"), *others]})


async def _read_result(ctx: Context[Any], handle: str, offset: int = 0) -> str:
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
    page = text[max(0, offset) : max(0, offset) + _PAGE]
    end = max(0, offset) + len(page)
    note = RESULT_END if end >= len(text) else RESULT_CUT
    return f"{page}\n\n" + note.format(shown=end, size=len(text), tool=READ_RESULT, handle=handle)


@cache
def read_result() -> FunctionTool:
    """The tool that reads on."""
    return FunctionTool.from_defaults(async_fn=_read_result, name=READ_RESULT)

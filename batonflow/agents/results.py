"""Results that are too long for a model: it is shown the beginning, and can read on."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from batonflow.agents.events import ToolCallResult
from batonflow.agents.prompts import RESULT_CUT, RESULT_CUT_OFF, RESULT_END, RESULT_UNKNOWN
from batonflow.llms import TextBlock
from batonflow.tools import FunctionTool, ToolOutput, ToolPolicy
from batonflow.workflow_core import Context

__all__ = ["HANDLE", "LONG_RESULTS", "READ_RESULT", "cut_text", "read_result", "shortened", "whole_text"]

READ_RESULT = "read_result"
"""The name of the tool that reads on."""

LONG_RESULTS = "long_results"
"""Where the state store keeps whole results by handle."""

HANDLE = "handle"
"""Where a result says under which handle its whole text is kept."""

_PAGE = 20_000


async def shortened(
    ctx: Context[Any], output: ToolOutput, limit: int, handle: str | None
) -> tuple[ToolOutput, str | None]:
    """``output`` with at most ``limit`` characters of text; the whole text is kept under a handle.

    Args:
        ctx: The run's context, inside a step.
        output: What a tool gave back.
        limit: The characters to show.
        handle: Names the result within the run; None where nobody could read on.

    Returns:
        The output, and the handle.
    """
    text = output.content
    if len(text) <= limit:
        return output, None
    others = [block for block in output.blocks if not isinstance(block, TextBlock)]
    if handle is None:
        note = RESULT_CUT_OFF.format(shown=limit, size=len(text))
        return output.model_copy(update={"blocks": [TextBlock(text=f"{text[:limit]}\n\n{note}"), *others]}), None
    kept: dict[str, str] = dict(await ctx.store.get(LONG_RESULTS, default={}))
    handle = _free(handle, text, kept)
    kept[handle] = text
    await ctx.store.set(LONG_RESULTS, kept)
    note = RESULT_CUT.format(shown=limit, size=len(text), tool=READ_RESULT, handle=handle)
    return output.model_copy(update={"blocks": [TextBlock(text=f"{text[:limit]}\n\n{note}"), *others]}), handle


async def whole_text(ctx: Context[Any], result: ToolCallResult) -> str:
    """The text of a result, of which the model may have been shown the beginning only."""
    kept: dict[str, str] = await ctx.store.get(LONG_RESULTS, default={}) if HANDLE in result else {}
    return kept.get(result.get(HANDLE), result.tool_output.content)


def cut_text(result: ToolCallResult) -> str:
    """What the model was shown of a result that is longer; nothing where it was shown all of it."""
    return result.tool_output.content if HANDLE in result else ""


def _free(handle: str, text: str, kept: Mapping[str, str]) -> str:
    """``handle``, with a number when an earlier run of the conversation has used it for another text."""
    found, number = handle, 1
    while kept.get(found, text) != text:
        number += 1
        found = f"{handle}-{number}"
    return found


@cache
def read_result(page: int | None = None) -> FunctionTool:
    """The tool that reads on.

    Args:
        page: Characters that are shown at once; 20,000 at most.
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
        begin = max(0, offset)
        shown = text[begin : begin + size]
        end = begin + len(shown)
        if end >= len(text):
            return f"{shown}\n\n{RESULT_END.format(size=len(text))}"
        return f"{shown}\n\n{RESULT_CUT.format(shown=end, size=len(text), tool=READ_RESULT, handle=handle)}"

    return FunctionTool.from_defaults(async_fn=read, name=READ_RESULT, policy=ToolPolicy(idempotent=True))

"""The span and the events of a tool call."""

import json
from collections.abc import Awaitable
from typing import Any

from batonflow.instrumentation import events, get_dispatcher
from batonflow.instrumentation.context import active_span_id, undo
from batonflow.instrumentation.redaction import redacted
from batonflow.instrumentation.traced import bound
from batonflow.llms import genai
from batonflow.tools.base import AsyncBaseTool, BaseTool, ToolOutput

__all__ = ["dispatcher", "traced"]

# The name of the module that makes the calls, because handlers filter by it.
dispatcher = get_dispatcher("batonflow.tools.call")

# Event classes are loaded only for processes with a handler.
_SUMMARY = 200


async def traced(
    tool: BaseTool,
    target: AsyncBaseTool,
    values: dict[str, Any],
    filled_in: dict[str, Any],
    call_id: str | None,
    running: Awaitable[ToolOutput],
) -> ToolOutput:
    """Await a tool's output inside a span, between a start and an end event.

    Args:
        tool: The original tool.
        target: The tool, or its asynchronous adapter.
        values: The model's arguments.
        filled_in: Arguments that the caller fills in.
        call_id: The model's id of the call.
        running: The awaitable output.
    """
    name = target.metadata.name or ""
    tags = {
        genai.OPERATION: "execute_tool",
        genai.TOOL_NAME: name,
        genai.TOOL_TYPE: "function",
        genai.TOOL_DESCRIPTION: target.metadata.description,
    }
    if call_id is not None:
        tags[genai.TOOL_CALL_ID] = call_id
    if genai.captures_content():
        tags[genai.TOOL_ARGUMENTS] = json.dumps(redacted(values))
    given = bound(target.acall, **{**values, **filled_in}) if dispatcher.tells_arguments else None
    span_id = dispatcher.open_span(f"{type(tool).__name__}.acall", instance=tool, bound_args=given, tags=tags)
    # The work of the tool, including model calls, belongs inside the span.
    token = active_span_id.set(span_id)
    dispatcher.event(events.tool.ToolCallStartEvent(tool_name=name, tool_kwargs=values, span_id=span_id))
    try:
        output = await running
    except BaseException as err:
        dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
        dispatcher.fail_span(span_id, err, tool, given)
        raise
    finally:
        undo(token)
    if output.is_error:
        dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(output.exception or output).__name__})
    if genai.captures_content():
        dispatcher.tag_span(span_id, {genai.TOOL_RESULT: json.dumps(redacted(output.content))})
    dispatcher.event(
        events.tool.ToolCallEndEvent(
            tool_name=name, output=output.content[:_SUMMARY], is_error=output.is_error, span_id=span_id
        )
    )
    dispatcher.close_span(span_id, output, tool, given)
    return output

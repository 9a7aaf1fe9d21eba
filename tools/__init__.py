"""Tools: what models can call, how a function becomes one, and how a call is made for a model."""

from batonflow.llms.tool_protocol import ToolSelection
from batonflow.tools.base import (
    AsyncBaseTool,
    BaseTool,
    BaseToolAsyncAdapter,
    DefaultToolFnSchema,
    ToolMetadata,
    ToolOutput,
    adapt_to_async_tool,
)
from batonflow.tools.call import (
    acall_tool,
    acall_tool_with_selection,
    call_tool,
    call_tool_with_selection,
    needs_approval,
    run_tool,
)
from batonflow.tools.errors import ToolArgumentsError, ToolDefinitionError, ToolError
from batonflow.tools.function import FunctionTool, ToolPolicy, tool
from batonflow.tools.schema import create_schema_from_function

__all__ = [
    "AsyncBaseTool",
    "BaseTool",
    "BaseToolAsyncAdapter",
    "DefaultToolFnSchema",
    "FunctionTool",
    "ToolArgumentsError",
    "ToolDefinitionError",
    "ToolError",
    "ToolMetadata",
    "ToolOutput",
    "ToolPolicy",
    "ToolSelection",
    "acall_tool",
    "acall_tool_with_selection",
    "adapt_to_async_tool",
    "call_tool",
    "call_tool_with_selection",
    "create_schema_from_function",
    "needs_approval",
    "run_tool",
    "tool",
]

"""Tools: functions and objects that models can call.

Rarely used names are loaded at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at
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
from batonflow.tools.function import FunctionTool, tool
from batonflow.tools.policy import ToolPolicy
from batonflow.tools.schema import (
    ToolArgumentsError,
    ToolDefinitionError,
    ToolError,
    ToolRetry,
    ToolTimeoutError,
    create_schema_from_function,
)

if TYPE_CHECKING:
    from batonflow.llms.fetching import FetchError, FetchPolicy, afetch, fetch
    from batonflow.nodes import (
        BaseNodePostprocessor,
        BaseRetriever,
        CustomQueryEngine,
        Document,
        MetadataMode,
        NodeWithScore,
        QueryBundle,
        Response,
        TextNode,
    )
    from batonflow.tools.query_engine import QueryEngineTool, RetrieverTool
    from batonflow.tools.spec import BaseToolSpec
    from batonflow.tools.structured import get_function_tool
    from batonflow.tools.toolset import Toolset

__all__ = [
    "AsyncBaseTool",
    "BaseNodePostprocessor",
    "BaseRetriever",
    "BaseTool",
    "BaseToolAsyncAdapter",
    "BaseToolSpec",
    "CustomQueryEngine",
    "DefaultToolFnSchema",
    "Document",
    "FetchError",
    "FetchPolicy",
    "FunctionTool",
    "MetadataMode",
    "NodeWithScore",
    "QueryBundle",
    "QueryEngineTool",
    "Response",
    "RetrieverTool",
    "TextNode",
    "ToolArgumentsError",
    "ToolDefinitionError",
    "ToolError",
    "ToolMetadata",
    "ToolOutput",
    "ToolPolicy",
    "ToolRetry",
    "ToolSelection",
    "ToolTimeoutError",
    "Toolset",
    "acall_tool",
    "acall_tool_with_selection",
    "adapt_to_async_tool",
    "afetch",
    "call_tool",
    "call_tool_with_selection",
    "create_schema_from_function",
    "fetch",
    "get_function_tool",
    "needs_approval",
    "run_tool",
    "tool",
]

_LAZY = {
    "BaseToolSpec": "spec",
    "QueryEngineTool": "query_engine",
    "RetrieverTool": "query_engine",
    "Toolset": "toolset",
    "get_function_tool": "structured",
}

_FETCHING, _FETCHED = "batonflow.llms.fetching", ("FetchError", "FetchPolicy", "afetch", "fetch")

_NODES, _OF_NODES = "batonflow.nodes", (
    "BaseNodePostprocessor", "BaseRetriever", "CustomQueryEngine", "Document", "MetadataMode", "NodeWithScore",
    "QueryBundle", "Response", "TextNode",
)  # fmt: skip

_NOT_OFFERED = {"QueryPlanTool": "an agent plans its questions itself. Give it a QueryEngineTool for each source"}


_OF_RETRIEVAL = ("LoadAndSearchToolSpec", "OnDemandLoaderTool")


def _load(name: str) -> Any:
    if name in _OF_RETRIEVAL:
        raise ImportError(f"{name} is in batonflow.retrieval: import it from there", name=f"{__name__}.{name}")
    if name in _NOT_OFFERED:
        raise ImportError(f"{name} is not offered: {_NOT_OFFERED[name]}", name=f"{__name__}.{name}")
    elsewhere = _FETCHING if name in _FETCHED else _NODES if name in _OF_NODES else None
    home = elsewhere or (f"{__name__}.{_LAZY[name]}" if name in _LAZY else None)
    if home is None:
        return module_at(__name__, name)
    found = globals()[name] = getattr(import_module(home), name)
    return found


if not TYPE_CHECKING:  # checkers would take every name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

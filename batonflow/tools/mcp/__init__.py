"""Tools of MCP servers: a client for stdio and streamable HTTP, in both versions of the protocol."""

from batonflow.tools.mcp.arguments import MCPToolMetadata
from batonflow.tools.mcp.client import MCPTools
from batonflow.tools.mcp.definitions import ToolDefinition
from batonflow.tools.mcp.errors import (
    MCPConnectionError,
    MCPServerError,
    MCPTimeoutError,
    MCPToolChangedError,
    MCPToolMissingError,
)
from batonflow.tools.mcp.events import (
    MCPElicitation,
    MCPElicitationResponse,
    MCPProgress,
    MCPToolChanged,
    MCPToolChangedResponse,
)
from batonflow.tools.mcp.pins import ToolChange
from batonflow.tools.mcp.tool import MCPTool

__all__ = [
    "MCPConnectionError",
    "MCPElicitation",
    "MCPElicitationResponse",
    "MCPProgress",
    "MCPServerError",
    "MCPTimeoutError",
    "MCPTool",
    "MCPToolChanged",
    "MCPToolChangedError",
    "MCPToolChangedResponse",
    "MCPToolMetadata",
    "MCPToolMissingError",
    "MCPTools",
    "ToolChange",
    "ToolDefinition",
]

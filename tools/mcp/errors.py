"""What can go wrong with an MCP server.

::

    ToolError
    ├── MCPConnectionError (ConnectionError)  it cannot be reached, could not be started, or ended
    ├── MCPServerError                        it answered with an error of the protocol, or against the protocol
    ├── MCPTimeoutError (TimeoutError)        a call, or the list of tools, took longer than its timeout
    ├── MCPToolChangedError                   a tool is not what it was when it was pinned
    └── MCPToolMissingError (LookupError)     it no longer has the tool

A tool that says of itself that it failed raises nothing: its output has ``is_error``.
"""

from collections.abc import Sequence
from typing import Any

from batonflow.tools.errors import ToolError
from batonflow.tools.mcp.pins import ToolChange

__all__ = [
    "MCPConnectionError",
    "MCPServerError",
    "MCPTimeoutError",
    "MCPToolChangedError",
    "MCPToolMissingError",
]


class MCPConnectionError(ToolError, ConnectionError):
    """The server cannot be reached, could not be started, or ended; the message ends with its last words."""


class MCPServerError(ToolError):
    """The server answered with an error of the protocol, or with something the protocol does not allow.

    Attributes:
        code: The protocol's number of the error, None for an answer against the protocol.
        data: What the server sent with it.
    """

    def __init__(self, message: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class MCPTimeoutError(ToolError, TimeoutError):
    """A call, or the list of tools, took longer than its timeout; the server was told to stop it."""


class MCPToolChangedError(ToolError):
    """Tools are not what they were when they were pinned; the message shows the difference and how to consent.

    Attributes:
        changes: What changed, tool by tool.
    """

    def __init__(self, server: str, changes: Sequence[ToolChange]) -> None:
        shown = "\n\n".join(change.difference for change in changes)
        names = ", ".join(repr(change.name) for change in changes)
        super().__init__(
            f"MCP server {server!r} changed what it says of {len(changes)} pinned tool(s), and the change was not "
            f"accepted. If it is fine, call accept({names}) on the MCPTools object and try again.\n\n{shown}"
        )
        self.changes = list(changes)


class MCPToolMissingError(ToolError, LookupError):
    """The server no longer has the tool."""

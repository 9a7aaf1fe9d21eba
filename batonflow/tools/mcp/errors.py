"""Errors of MCP servers and their tools.

::

    ToolError
    ├── MCPConnectionError (ConnectionError)  it cannot be reached, could not be started, or ended
    ├── MCPServerError                        it answered with an error of the protocol, or against the protocol
    ├── MCPTimeoutError (TimeoutError)        a call, or the list of tools, took longer than its timeout
    ├── MCPToolChangedError                   a tool differs from its pin
    └── MCPToolMissingError (LookupError)     it no longer has the tool

A failed tool does not raise an error: its output has ``is_error``.
"""

from collections.abc import Sequence
from typing import Any

from batonflow.tools.mcp.pins import ToolChange
from batonflow.tools.schema import ToolError

__all__ = ["MCPConnectionError", "MCPServerError", "MCPTimeoutError", "MCPToolChangedError", "MCPToolMissingError"]


class MCPConnectionError(ToolError, ConnectionError):
    """The server cannot be reached, could not be started, or ended; the message ends with its last output."""


class MCPServerError(ToolError):
    """The server answered with an error of the protocol, or violated the protocol.

    Attributes:
        code: The protocol's number of the error; None for a violation.
        data: Further data from the server.
    """

    def __init__(self, message: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class MCPTimeoutError(ToolError, TimeoutError):
    """A call or the list of tools exceeded its timeout; the server was asked to stop it."""


class MCPToolChangedError(ToolError):
    """Tools differ from their pins.

    Models read the text, so it does not contain the new definitions. The notes contain them, and the way to consent,
    for people who read tracebacks.

    Attributes:
        changes: The changes, tool by tool.
    """

    def __init__(self, server: str, changes: Sequence[ToolChange]) -> None:
        names = ", ".join(repr(change.name) for change in changes)
        text = f"tool {names} has changed since it was approved, and is refused"
        if len(changes) > 1:
            text = f"tools {names} have changed since they were approved, and are refused"
        super().__init__(f"MCP server {server!r}: {text}")
        self.add_note(f"If the change is fine, call accept({names}) on the MCPTools object and try again.")
        for change in changes:
            self.add_note(change.difference)
        self.changes = list(changes)


class MCPToolMissingError(ToolError, LookupError):
    """The server no longer has the tool."""

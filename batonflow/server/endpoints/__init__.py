"""Endpoints for other programs: OpenAI's chat completions, and MCP. They are mounted on a server.

They need ``pip install 'batonflow[server]'``; MCP also needs ``[mcp]``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.server.endpoints.chat_completions import chat_completions_app as chat_completions_app
    from batonflow.server.endpoints.mcp import mcp_app as mcp_app
    from batonflow.server.endpoints.mcp import serve_mcp_stdio as serve_mcp_stdio

__all__ = ["chat_completions_app", "mcp_app", "serve_mcp_stdio"]

_HOME = {"chat_completions_app": "chat_completions", "mcp_app": "mcp", "serve_mcp_stdio": "mcp"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = __import__(f"{__name__}.{_HOME[name]}", fromlist=[name])
    return getattr(module, name)

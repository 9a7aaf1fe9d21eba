"""The list of a server's tools, requested once for concurrent callers."""

import asyncio
from collections.abc import Awaitable, Callable

from batonflow.tools.mcp.definitions import ToolDefinition

__all__ = ["Listing"]

Tools = dict[str, ToolDefinition]


class Listing:
    """The list of a server's tools.

    Args:
        ask: Requests the list from the server.
    """

    def __init__(self, ask: Callable[[], Awaitable[Tools]]) -> None:
        self._ask = ask
        self._tools: Tools = {}
        self._lock = asyncio.Lock()
        self._changes = 0
        self._seen: int | None = None
        self._begun = 0
        self._newest = 0

    def changed(self) -> None:
        """Mark the list as outdated after a notification of the server."""
        self._changes += 1

    async def tools(self, newest: bool) -> Tools:
        """Return the tools by the server's own names; concurrent callers wait for the same request.

        If the request fails or is cancelled, the next caller sends another one.

        Args:
            newest: Ask the server even without a notification of changes.
        """
        if self._is_known and not newest:
            return self._tools
        begun = self._begun
        async with self._lock:
            # A list requested after this point is as new as a list requested now.
            if not self._is_known or (newest and self._newest <= begun):
                await self._list()
            return self._tools

    @property
    def _is_known(self) -> bool:
        return self._seen == self._changes

    async def _list(self) -> None:
        changes = self._changes  # before the request, so that a notification during it counts
        self._begun += 1
        self._tools = await self._ask()
        self._seen, self._newest = changes, self._begun

"""The tools of a server, listed once for all who want them at the same time."""

import asyncio
from collections.abc import Awaitable, Callable

from batonflow.tools.mcp.definitions import ToolDefinition

__all__ = ["Listing"]

Tools = dict[str, ToolDefinition]


class Listing:
    """What a server said its tools are.

    Args:
        ask: Asks the server.
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
        """The server has said that it has other tools by now."""
        self._changes += 1

    async def tools(self, newest: bool) -> Tools:
        """The tools by the server's own names; whoever comes while the server is asked waits for its answer.

        When that fails, or who asked is cancelled, the next one asks again.

        Args:
            newest: Ask the server even if it has not said that anything changed.
        """
        if self._is_known and not newest:
            return self._tools
        begun = self._begun
        async with self._lock:
            # What was asked after this began is as new as what would be asked now.
            if not self._is_known or (newest and self._newest <= begun):
                await self._list()
            return self._tools

    @property
    def _is_known(self) -> bool:
        return self._seen == self._changes

    async def _list(self) -> None:
        changes = self._changes  # before asking: a change that is told meanwhile counts
        self._begun += 1
        self._tools = await self._ask()
        self._seen, self._newest = changes, self._begun

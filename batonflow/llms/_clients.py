"""The clients of a vendor's SDK: one for each event loop, closed on it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

__all__ = ["Clients"]


async def _kept(client: Any, owned: bool) -> AsyncGenerator[Any, None]:
    """Holds a client until its loop ends or nobody holds this any more; either way the loop closes it.

    Event loops close the generators they have begun when they end, and when the generators are collected, in whatever
    thread that happens.
    """
    try:
        yield client
    finally:
        if owned:
            await client.close()


class Clients:
    """Connections belong to the event loop that opened them, and synchronous calls run on another one.

    A copy has none: it opens its own.
    """

    def __init__(self) -> None:
        self._kept: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]] = {}
        # Loops of several threads ask at a time; an entry that got lost would close a client in use.
        self._changing = threading.Lock()

    async def get(self, make: Callable[[], Awaitable[Any]], owned: bool) -> Any:
        """The running loop's client, made if there is none.

        Args:
            make: Makes a client.
            owned: Whether it is closed with its loop.
        """
        loop = asyncio.get_running_loop()
        found = self._kept.get(loop)
        if found is None:
            client = await make()
            # Another task may have been here meanwhile; then its client serves, and this one has no connections yet.
            found = self._kept.get(loop)
            if found is None:
                keeper = _kept(client, owned)
                await anext(keeper)
                found = client, keeper
                with self._changing:
                    # Loops that have ended have closed theirs.
                    self._kept = {one: pair for one, pair in self._kept.items() if not one.is_closed()}
                    self._kept[loop] = found
        return found[0]

    async def close(self) -> None:
        """Close the running loop's client."""
        with self._changing:
            found = self._kept.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].aclose()

    def __copy__(self) -> "Clients":
        return Clients()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Clients":
        return Clients()

    def __reduce__(self) -> tuple[type["Clients"], tuple[()]]:
        return Clients, ()

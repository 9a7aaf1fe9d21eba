"""Late imports of vendors' SDKs, and their clients.

An SDK takes a second or two of processor time to import, so a program imports only the SDKs that it uses.
"""

import asyncio
import importlib
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import ModuleType
from typing import Any

from batonflow.lazy import how_to_install
from batonflow.llms.errors import MissingDependencyError
from batonflow.threads import in_thread

__all__ = ["Clients", "aload", "load"]


def load(name: str, extra: str = "") -> Any:
    """Import module ``name``.

    Args:
        name: Dotted name.
        extra: The extra of this package that installs it.

    Raises:
        MissingDependencyError: The module is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        if err.name is not None and err.name.partition(".")[0] != name.partition(".")[0]:
            raise
        remedy = how_to_install(extra) if extra else f"pip install {name}"
        raise MissingDependencyError(f"the package {name!r} is needed here: {remedy}", vendor=extra or None) from err


async def aload(name: str, extra: str = "") -> Any:
    """Import module ``name`` without blocking the event loop."""
    module: ModuleType | None = sys.modules.get(name)
    # A module that another thread is importing is in sys.modules too, but not ready for use.
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    return await in_thread(load, name, extra)


async def _kept(client: Any, owned: bool) -> AsyncGenerator[Any, None]:
    """Hold a client, and close it on its loop when the loop ends or the generator is collected.

    An event loop closes the generators that it has started when it ends or when they are collected, in any thread.
    """
    try:
        yield client
    finally:
        if owned:
            await client.close()


class Clients:
    """The clients of an SDK, one for each event loop. Connections belong to the loop that opened them.

    A copy starts without clients.
    """

    def __init__(self) -> None:
        self._kept: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]] = {}
        # Loops of several threads use the dict at the same time. A lost entry would close a client in use.
        self._changing = threading.Lock()

    async def get(self, make: Callable[[], Awaitable[Any]], owned: bool) -> Any:
        """Return the client of the running loop; create it if needed.

        Args:
            make: Creates a client.
            owned: Whether to close the client with its loop.
        """
        loop = asyncio.get_running_loop()
        found = self._kept.get(loop)
        if found is None:
            client = await make()
            # Another task may have created a client during the await. Then its client is used; this one has no
            # connections.
            found = self._kept.get(loop)
            if found is None:
                keeper = _kept(client, owned)
                await anext(keeper)
                found = client, keeper
                with self._changing:
                    # A loop that has ended has closed its client.
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

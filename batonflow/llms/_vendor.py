"""The one place where modules are imported late.

Vendors' SDKs take a second or two of processor time to import; a program that uses one vendor must not pay for the
others, and a program that uses none must not need any.
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
        extra: The extra of this package that brings it.

    Raises:
        MissingDependencyError: It is not installed; the message says what to do.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        if err.name is not None and err.name.partition(".")[0] != name.partition(".")[0]:
            raise
        remedy = how_to_install(extra) if extra else f"pip install {name}"
        raise MissingDependencyError(f"the package {name!r} is needed here: {remedy}", vendor=extra or None) from err


async def aload(name: str, extra: str = "") -> Any:
    """The same without stopping the event loop while the import runs."""
    module: ModuleType | None = sys.modules.get(name)
    # A module being imported by another thread is in sys.modules too, but not ready for use.
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    return await in_thread(load, name, extra)


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

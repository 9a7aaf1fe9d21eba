"""Toolsets that agents have entered. Each is in its own task of an event loop, until its last agent leaves it."""

import asyncio
import atexit
import concurrent.futures
import contextvars
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from batonflow.instrumentation.logs import logger_named
from batonflow.tools.toolset import Toolset, root_of

__all__ = ["enter_toolset", "leave_toolsets"]

logger = logger_named("batonflow.tool")

SECONDS_TO_LEAVE = 10.0
"""Seconds that the end of the process waits for the toolsets of background loops."""

_entered: "dict[tuple[int, int], EnteredToolset]" = {}


class EnteredToolset:
    """A toolset in a task that enters and leaves it. Some connections must be closed by the task that opened them.

    Args:
        toolset: The set.
        loop: The running event loop.
    """

    def __init__(self, toolset: Toolset[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.toolset, self.loop = toolset, loop
        self.agents: WeakSet[Any] = WeakSet()
        self.is_leaving = False
        self.left: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._leave = asyncio.Event()
        # A fresh context, because the set outlives the run that uses it first.
        self._task = loop.create_task(
            self._hold(), name=f"batonflow-toolset-{toolset!r}", context=contextvars.Context()
        )

    async def ready(self) -> None:
        """Wait until the set is entered.

        Raises:
            Exception: The exception of ``__aenter__``.
        """
        await asyncio.shield(self._ready)

    async def _hold(self) -> None:
        try:
            await self.toolset.__aenter__()
        except BaseException as error:
            self._forget()
            if isinstance(error, Exception):
                self._ready.set_exception(error)
                return
            self._ready.cancel()
            raise
        self._ready.set_result(None)
        try:
            await self._leave.wait()
        except asyncio.CancelledError:  # the loop ends, which is not an error of the set
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        await self._exit()

    async def _exit(self) -> None:
        try:
            await self.toolset.__aexit__(None, None, None)
        except Exception as error:
            if not self._leave.is_set():
                logger.exception("%r could not be left at the end of its event loop", self.toolset)
            self._forget(error)
        finally:
            self._forget()

    def _forget(self, error: Exception | None = None) -> None:
        _entered.pop((id(self.toolset), id(self.loop)), None)
        with suppress(concurrent.futures.InvalidStateError):
            if error is None:
                self.left.set_result(None)
            else:
                self.left.set_exception(error)

    def ask_to_leave(self) -> bool:
        """Leave the set soon, from any thread; return False if its loop does not run."""
        self.is_leaving = True
        if self.loop.is_closed():
            self._forget()
            return False
        self.loop.call_soon_threadsafe(self._leave.set)
        return self.loop.is_running()


async def enter_toolset(agent: Any, toolset: Toolset[Any]) -> None:
    """Enter a set for an agent, if it is not entered on this event loop yet.

    Args:
        agent: The agent that uses the set.
        toolset: The set, perhaps a changed one.

    Raises:
        Exception: The exception of ``__aenter__``.
    """
    root = root_of(toolset)
    cls = type(root)
    if cls.__aenter__ is Toolset.__aenter__ and cls.__aexit__ is Toolset.__aexit__:
        return
    loop = asyncio.get_running_loop()
    kept = _entered.get((id(root), id(loop)))
    while kept is not None and kept.is_leaving:
        await asyncio.wait({asyncio.wrap_future(kept.left)})
        kept = _entered.get((id(root), id(loop)))
    if kept is None:
        for one in [one for one in _entered.values() if one.loop.is_closed()]:
            one.ask_to_leave()
        kept = _entered[id(root), id(loop)] = EnteredToolset(root, loop)
    kept.agents.add(agent)
    await kept.ready()


async def leave_toolsets(agents: Any) -> None:
    """Leave the sets that only these agents use.

    Args:
        agents: The agents.

    Raises:
        Exception: The first exception of a set's ``__aexit__``, after all sets are left.
    """
    leaving: list[EnteredToolset] = []
    for kept in list(_entered.values()):
        used = len(kept.agents)
        kept.agents -= WeakSet(agents)
        if used and not kept.agents and kept.ask_to_leave():
            leaving.append(kept)
    left = [asyncio.wrap_future(kept.left) for kept in leaving]
    for failed in [one for one in await asyncio.gather(*left, return_exceptions=True) if one is not None]:
        raise failed


def _leave_background_loops() -> None:
    """Leave the sets of loops that run until the process ends."""
    for kept in [one for one in list(_entered.values()) if one.ask_to_leave()]:
        with suppress(Exception):
            kept.left.result(SECONDS_TO_LEAVE)


atexit.register(_leave_background_loops)

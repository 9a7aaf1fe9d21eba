"""Find the uvicorn that serves an application: before it stops it waits for open streams, without notice."""

import asyncio
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

import uvicorn

__all__ = ["before_shutdown", "uvicorn_here"]


def uvicorn_here() -> uvicorn.Server | None:
    """Return the uvicorn that serves on the running loop, or None."""
    return next(filter(None, map(_uvicorn_of, asyncio.all_tasks())), None)


def _uvicorn_of(task: "asyncio.Task[Any]") -> uvicorn.Server | None:
    called: Any = task.get_coro()
    while isinstance(called, CoroutineType):
        owner = None if called.cr_frame is None else called.cr_frame.f_locals.get("self")
        if isinstance(owner, uvicorn.Server):
            return owner
        called = called.cr_await
    return None


def before_shutdown(server: uvicorn.Server, stop: Callable[[], Awaitable[None]]) -> None:
    """Make a uvicorn call ``stop`` before it waits for its connections and ends its loop."""
    shutdown = server.shutdown

    async def stopped_first(sockets: Any = None) -> None:
        await stop()
        await shutdown(sockets)

    server.shutdown = stopped_first

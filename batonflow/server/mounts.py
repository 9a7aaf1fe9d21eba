"""ASGI applications mounted under paths of the server."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Scope

from batonflow.instrumentation.logs import logger_named

__all__ = ["Door", "Lifespan", "own_path"]

logger = logger_named("batonflow.server")

SECONDS_TO_CUT = 1.0
"""Seconds to wait for a cancelled application."""


def own_path(scope: Scope) -> str:
    """Return the path of a request, without the prefix of an outer application."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if path.startswith(f"{root}/") else path


class Door(Mount):
    """A mounted application that also answers its path without the last slash: MCP clients request ``/mcp``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests for the application, including its path without the last slash."""
        if own_path(scope) != self.path:
            return super().matches(scope)
        path = scope["path"] + "/"
        match, child_scope = super().matches({**scope, "path": path})
        return match, {**child_scope, "path": path}


class Lifespan:
    """Startup and shutdown of an application, in its own task, as the ASGI lifespan protocol requires.

    Args:
        app: The application; one without lifespan support runs without it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._answered: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the application.

        Raises:
            RuntimeError: The application reports a failure.
        """
        self._task = asyncio.create_task(self._run())
        answer = await self._send("startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            await self._cut(self._task)
            raise RuntimeError(f"A mounted application failed to start: {answer.get('message', '')}")

    async def end(self, timeout: float) -> None:
        """Stop the application; cancel it after the timeout.

        Args:
            timeout: Seconds to stop.
        """
        if self._task is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._send("shutdown")
                await asyncio.wait([self._task])
        except TimeoutError:
            logger.warning("a mounted application did not stop within %g seconds", timeout)
            await self._cut(self._task)

    async def _cut(self, task: "asyncio.Task[None]") -> None:
        task.cancel()
        await asyncio.wait([task], timeout=SECONDS_TO_CUT)

    async def _send(self, event: str) -> Mapping[str, Any] | None:
        if self._task is None or self._task.done():
            return None
        self._asked.put_nowait({"type": f"lifespan.{event}"})
        return await self._answered.get()

    async def _run(self) -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            self._answered.put_nowait(message)

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._asked.get, send)
        except Exception as error:  # noqa: BLE001 - other applications may raise anything
            # Applications without lifespan support raise here and work without it.
            logger.debug("a mounted application has no lifespan: %r", error)
        finally:
            self._answered.put_nowait(None)

"""Other ASGI applications under paths of the server: found without the last slash too, begun and ended with it."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Scope

from batonflow.instrumentation.logs import logger_named

__all__ = ["Door", "Lifespan", "own_path"]

logger = logger_named("batonflow.workflow_core.server")

SECONDS_TO_CUT = 1.0
"""How long an application is waited for that was cancelled."""


def own_path(scope: Scope) -> str:
    """The path of a request, without the path under which another application has mounted this one."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if path.startswith(f"{root}/") else path


class Door(Mount):
    """A mounted application, whose own first page is the path itself too: a client of MCP asks for ``/mcp``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for the application, and what it is told of itself then."""
        if own_path(scope) != self.path:
            return super().matches(scope)
        path = scope["path"] + "/"
        match, told = super().matches({**scope, "path": path})
        return match, {**told, "path": path}


class Lifespan:
    """What an application does when it begins and ends, in a task of its own, as the protocol has it.

    Args:
        app: The application; one that knows nothing of this is left alone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._answered: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Let the application begin.

        Raises:
            RuntimeError: It says that it cannot.
        """
        self._task = asyncio.create_task(self._run())
        answer = await self._ask("startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            await self._cut(self._task)
            raise RuntimeError(f"A mounted application cannot begin: {answer.get('message', '')}")

    async def end(self, timeout: float) -> None:
        """Let the application end; one that takes longer is cancelled.

        Args:
            timeout: Seconds that it has.
        """
        if self._task is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._ask("shutdown")
                await asyncio.wait([self._task])
        except TimeoutError:
            logger.warning("a mounted application did not end within %g seconds", timeout)
            await self._cut(self._task)

    async def _cut(self, task: "asyncio.Task[None]") -> None:
        task.cancel()
        await asyncio.wait([task], timeout=SECONDS_TO_CUT)

    async def _ask(self, what: str) -> Mapping[str, Any] | None:
        if self._task is None or self._task.done():
            return None
        self._asked.put_nowait({"type": f"lifespan.{what}"})
        return await self._answered.get()

    async def _run(self) -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            self._answered.put_nowait(message)

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._asked.get, send)
        except Exception as error:  # noqa: BLE001 - whatever somebody else's application raises
            # One that does not know this message raises at it, and works without.
            logger.debug("a mounted application has no lifespan: %r", error)
        finally:
            self._answered.put_nowait(None)

"""WorkflowServer: workflows over HTTP, with a page to watch their runs."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from batonflow.durable.claimer import Claimer
from batonflow.durable.stores.opening import open_store
from batonflow.instrumentation.logs import clean, logger_named
from batonflow.new_runs import served_input
from batonflow.server.connections import Connections
from batonflow.server.guard import Guard, check_bind
from batonflow.server.limits import BodyLimit, ReaderLimit
from batonflow.server.mounts import Door, Lifespan, own_path
from batonflow.server.openapi import openapi_document
from batonflow.server.pages import page
from batonflow.server.responses import JSON, SafeHeaders, refusal
from batonflow.server.routes_runs import RunRoutes
from batonflow.server.routes_sessions import SessionRoutes
from batonflow.server.routes_workflows import WorkflowRoutes
from batonflow.server.runs import Runs
from batonflow.server.served import Served
from batonflow.server.stopping import before_shutdown, uvicorn_here
from batonflow.values.types import is_whole
from batonflow.workflow_core.errors import ServerConfigurationError, StoreError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stored_runs import StoredRuns

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStore
    from batonflow.workflow_core.workflow import Workflow

__all__ = ["WorkflowServer"]

logger = logger_named("batonflow.server")

MIB = 1024 * 1024
SECONDS_TO_STOP = 5.0
SECONDS_WITHOUT_FAILURES = 10.0


class WorkflowServer:
    """Server of workflows over HTTP. Runs are kept in a store, so that the next server resumes them.

    Without a token only clients on this machine are answered, under any ASGI server.

    Args:
        store: The store of workflows without their own, as for ``Workflow``; in memory by default.
        token: The bearer token that clients must send; BATONFLOW_TOKEN of the environment by default.
        allowed_hosts: Host names of the server besides ``localhost`` and addresses; ``"*"`` for any name.
        idle_timeout: Seconds of waiting for an event from outside until a run leaves memory; None for never.
            Workflows with their own ``idle_release`` keep it.
        sse_heartbeat_interval: Seconds between heartbeats on a stream without events.
        slow_reader_timeout: Seconds until a client that does not read its answer is disconnected.
        max_body: Largest body of a request in bytes.
        body_timeout: Seconds for the body of a request.
        header_timeout: Seconds for the head of a request, with ``serve``.
        compat_status_codes: Answer 500 for failed and cancelled runs, 202 for unfinished ones, and 404 for the
            cancellation of a finished run.
        accept_context_api: Accept snapshots as ``context`` at the start of a run.
        accept_sessions: Accept ``session``, ``request_id``, ``if_busy`` and ``metadata`` at the start of a run of an
            agent. Every client may then use every session, and choose the metadata that ``deps_for`` gets.
        concurrency: Largest number of runs in memory up to which the server takes up runs of its stores; None for any
            number. Runs that clients start begin at once.
        drive: Whether the server drives runs. Otherwise it stores the runs that clients start, and shows those that
            workers drive. Mounted applications, such as chat completions, still run in this process.
        middleware: Starlette's, around the routes and behind the checks of clients.
        exception_handlers: Starlette's.
        workflow_store: Another name of ``store``.

    Raises:
        ServerConfigurationError: An argument has an invalid value.

    Example:
        >>> server = WorkflowServer(store="runs.db")
        >>> server.add_workflow("greet", Greeting())
        >>> await server.serve(port=8080)
    """

    def __init__(
        self,
        *,
        store: "str | PathLike[str] | RunStore | None" = None,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        idle_timeout: float | None = 60.0,
        sse_heartbeat_interval: float = 25.0,
        slow_reader_timeout: float = 30.0,
        max_body: int = MIB,
        body_timeout: float = 20.0,
        header_timeout: float = 10.0,
        compat_status_codes: bool = False,
        accept_context_api: bool = False,
        accept_sessions: bool = False,
        concurrency: int | None = None,
        drive: bool = True,
        middleware: Sequence[Middleware] | None = None,
        exception_handlers: Mapping[Any, Callable[..., Any]] | None = None,
        workflow_store: "str | PathLike[str] | RunStore | None" = None,
    ) -> None:
        if store is not None and workflow_store is not None:
            raise ServerConfigurationError("workflow_store is another name of store: pass one of them")
        if isinstance(allowed_hosts, str):
            raise ServerConfigurationError(f"allowed_hosts must be a list of names, such as [{allowed_hosts!r}]")
        self.token = _checked_token(os.environ.get("BATONFLOW_TOKEN") or None if token is None else token)
        self.compat_status_codes = compat_status_codes
        self.accept_context_api = accept_context_api
        self.accept_sessions = accept_sessions
        if concurrency is not None and not is_whole(concurrency, least=1):
            raise ServerConfigurationError(f"concurrency must be a whole number, 1 or more, not {concurrency!r}")
        self._concurrency = concurrency
        self.sse_heartbeat_interval = sse_heartbeat_interval
        self._slow_reader_timeout = slow_reader_timeout
        self.runs = Runs(open_store(store or workflow_store or "memory:"), drives=drive)
        self.connections = Connections(header_timeout, slow_reader_timeout)
        self._store = self.runs.stores[0]
        self._hosts = list(allowed_hosts)
        self._idle_timeout = idle_timeout
        self._max_body = max_body
        self._body_timeout = body_timeout
        self._middleware = list(middleware or ())
        self._exception_handlers = dict(exception_handlers or {})
        self._mounts: list[Door] = []
        self._lifespans: list[Lifespan] = []
        self._claimer: Claimer | None = None
        self._app: Starlette | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._was_stopped = False
        # Tasks of requests that may start runs.
        self._changing: set[asyncio.Task[Any]] = set()
        self.is_closing = False

    # --- served workflows ---------------------------------------------------------------------------------------------

    def add_workflow(
        self, name: str, workflow: "Workflow", additional_events: Iterable[type[Event]] | None = None
    ) -> None:
        """Serve a workflow under a name.

        The server runs a copy, with the server's store unless the workflow has one. Runs are kept under the workflow's
        own name, so they include the runs that a program started in the same store.

        Args:
            name: The name in paths, without slashes.
            workflow: A workflow or agent.
            additional_events: Event classes for clients besides the classes in the steps' signatures.

        Raises:
            ServerConfigurationError: The name is taken or invalid.
            WorkflowValidationError: The steps do not fit together.
        """
        if not name or "/" in name:
            raise ServerConfigurationError(f"{name!r} cannot be the name of a workflow: it is part of a path")
        if name in self.runs.served:
            raise ServerConfigurationError(f"The server already has a workflow {name!r}: choose another name")
        options = workflow.__batonflow__
        store = options.store or self._store
        taken = {one.workflow.__batonflow__.workflow_name for one in self.runs.served.values() if one.store is store}
        known_as = f"{options.workflow_name}/{name}" if options.workflow_name in taken else None
        kept = cast("Workflow", StoredRuns.with_store(workflow, store, idle_release=self._idle_timeout, name=known_as))
        kept.__batonflow__.timeout_excludes_waiting = True  # a person behind HTTP may take days to answer
        kept.__batonflow__.on_abandon = "continue"  # a client that leaves stops no run
        self.runs.served[name] = Served(name, kept, additional_events or ())

    def mount(self, path: str, app: ASGIApp) -> None:
        """Serve another ASGI application under a path, behind the same checks of clients.

        The application starts and stops with the server.

        Raises:
            ServerConfigurationError: ``app`` was used already.
        """
        if self._app is not None:
            raise ServerConfigurationError("Mount applications before .app is used")
        self._mounts.append(Door(path, app))

    def chats(self) -> list[str]:
        """Return the names of the agents with sessions that clients may use; the page shows their conversations."""
        served = self.runs.served.items() if self.accept_sessions else ()
        return [name for name, one in served if one.is_agent]

    def openapi_schema(self) -> dict[str, Any]:
        """Return the routes as an OpenAPI 3.1 document."""
        return openapi_document(compat=self.compat_status_codes)

    # --- the application ----------------------------------------------------------------------------------------------

    @property
    def app(self) -> Starlette:
        """The ASGI application."""
        if self._app is None:
            self._app = self._build_app()
        return self._app

    def _build_app(self) -> Starlette:
        routes: list[BaseRoute] = [
            Route("/", page, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            *WorkflowRoutes(
                self.runs,
                compat_status_codes=self.compat_status_codes,
                accept_context_api=self.accept_context_api,
                accept_sessions=self.accept_sessions,
                is_closing=lambda: self.is_closing,
            ).routes(),
            *SessionRoutes(self.runs, accept_sessions=self.accept_sessions, chats=self.chats).routes(),
            *RunRoutes(
                self.runs,
                compat_status_codes=self.compat_status_codes,
                heartbeat_interval=self.sse_heartbeat_interval,
                is_closing=lambda: self.is_closing,
            ).routes(),
            *self._mounts,
        ]
        outside = [
            Middleware(SafeHeaders),
            Middleware(Guard, token=self.token, allowed_hosts=self._hosts),
            Middleware(ReaderLimit, seconds=self._slow_reader_timeout, drop=self.connections.drop),
            Middleware(BodyLimit, largest=self._max_body, seconds=self._body_timeout),
            Middleware(_Started, begin=self._start_for_request, changing=self._changing),
        ]
        handlers = {
            HTTPException: _http_error,
            StoreError: _StoreFailures(),
            Exception: _failed,
            **self._exception_handlers,
        }
        return Starlette(
            routes=routes,
            middleware=[*outside, *self._middleware],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )

    async def _health(self, _: Request) -> Response:
        await self._start_for_request()
        return JSON({"status": "healthy"}) if self._runs_here else JSON({"status": "unhealthy"}, 503)

    async def _openapi(self, _: Request) -> Response:
        return JSON(self.openapi_schema())

    # --- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to run workflows, and resume all unfinished runs that no living process drives.

        Further calls have no effect.

        Raises:
            StoreError: A store fails.
            RuntimeError: A mounted application cannot start, so the server does not start either. Or the server runs
                on another event loop.
        """
        await self._start()

    async def _start(self) -> bool:
        """Start, and return True if the server did not run before."""
        self._enter_loop()
        async with self._lock:
            if self._claimer is not None:
                return False
            self.is_closing = self._was_stopped = False
            self._claimer = Claimer(
                self.runs.served.values,
                logger=logger,
                concurrency=self._concurrency,
                taken_up=self.runs.arrived,
                refused=self.runs.troubles.__setitem__,
            )
            if not self.runs.drives:
                self._claimer.pause()
            try:
                with served_input():
                    await self._claimer.start()
                for mount in self._mounts:
                    self._lifespans.append(Lifespan(mount.app))
                    await self._lifespans[-1].begin()
            except BaseException:
                await self._end(self._claimer)
                raise
            return True

    async def stop(self) -> None:
        """Stop in this process and interrupt its runs, which can be resumed. Further calls have no effect.

        Raises:
            RuntimeError: The server runs on another event loop.
        """
        self._enter_loop()
        self._was_stopped = True
        await self._stop()

    async def _stop(self) -> None:
        async with self._lock:
            if self._claimer is not None:
                await self._end(self._claimer)

    def _enter_loop(self) -> None:
        """Bind the server to the running event loop.

        Raises:
            RuntimeError: The server runs on another loop.
        """
        here = asyncio.get_running_loop()
        if self._loop is here:
            return
        if self._loop is not None and (self._claimer is not None or self._lock.locked()):
            if not self._loop.is_closed():
                raise LoopError(
                    "The server runs on another event loop: stop it there, and start it on the loop that answers its "
                    "requests"
                )
            # Its tasks and its runs have ended with the loop.
            self._claimer = None
            self._lifespans.clear()
            self._changing.clear()
            self.runs.forget_arrivals()
        self._loop, self._lock = here, asyncio.Lock()

    async def _start_for_request(self) -> str | None:
        """Start with the first request if nothing ran the lifespan; return a reason if the server cannot run."""
        if self._loop is asyncio.get_running_loop() and self._runs_here:
            return None
        around = uvicorn_here()
        if self._was_stopped or (around is not None and around.should_exit):
            return "The server was stopped: start it again with await server.start()"
        try:
            if await self._start() and around is not None:
                before_shutdown(around, self._stop)
        except LoopError as error:
            return str(error)
        except Exception:
            logger.exception("the server cannot start")
            return "The server cannot start; see its log"
        return None

    async def _end(self, claimer: Claimer) -> None:
        self.is_closing = True
        await claimer.stop()
        await self._interrupt()
        while self._lifespans:
            await self._lifespans.pop().end(SECONDS_TO_STOP)
        self.runs.all_left()
        # Earlier requests may start further runs; requests that wait for the end of a run are answered now.
        if changing := self._changing - {asyncio.current_task()}:
            await asyncio.wait(changing, timeout=SECONDS_TO_STOP)
            await self._interrupt()
        self.runs.all_left()
        self._claimer = None

    async def _interrupt(self) -> None:
        interrupted: set[str] = set()
        while live := [one for one in self._live() if one.run_id not in interrupted]:
            interrupted.update(one.run_id for one in live)
            await asyncio.gather(*(one.interrupt(timeout=SECONDS_TO_STOP) for one in live))

    def _live(self) -> list[WorkflowHandler]:
        workflows = [served.workflow for served in self.runs.served.values()]
        return [handler for workflow in workflows for handler in StoredRuns.live_handlers(workflow)]

    @property
    def _runs_here(self) -> bool:
        return self._claimer is not None and not self.is_closing

    @asynccontextmanager
    async def contextmanager(self) -> AsyncGenerator["WorkflowServer"]:
        """Run the server inside of ``async with``; it stops before the uvicorn here waits for its open streams."""
        await self.start()
        server = uvicorn_here()
        stopping = None if server is None else asyncio.create_task(self._stop_with(server))
        try:
            yield self
        finally:
            if stopping is not None and not self.is_closing:
                stopping.cancel()
            await self.stop()
            if stopping is not None:
                await asyncio.wait([stopping])

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        async with self.contextmanager():
            yield

    async def _stop_with(self, server: uvicorn.Server) -> None:
        while not (server.should_exit or self.is_closing):  # noqa: ASYNC110 - no event reports this
            await asyncio.sleep(0.1)
        await self.stop()

    async def serve(
        self, host: str = "127.0.0.1", port: int = 8080, uvicorn_config: Mapping[str, Any] | None = None
    ) -> None:
        """Listen until the process is told to stop.

        Args:
            host: The address to listen on; addresses that other machines can reach need a token.
            port: The TCP port.
            uvicorn_config: Further arguments of ``uvicorn.Config``.

        Raises:
            ServerConfigurationError: Other machines can reach the host, and the server has no token.
            StoreError: A store fails.
        """
        check_bind(host, self.token)
        clean(logging.getLogger("uvicorn.error"))
        if host not in ("0.0.0.0", "::", ""):  # noqa: S104 - only compared
            self._hosts.append(host)
            self._app = None
        await self.start()
        try:
            server = uvicorn.Server(self.uvicorn_config(host, port, uvicorn_config))
            before_shutdown(server, self.stop)
            await _serve_until_cancelled(server)
        finally:
            await self.stop()

    def uvicorn_config(self, host: str, port: int, more: Mapping[str, Any] | None = None) -> uvicorn.Config:
        """The ASGI application for uvicorn."""
        options: dict[str, Any] = {
            "http": self.connections.protocol(),
            "lifespan": "off",  # serve() starts and stops the server
            "limit_concurrency": 10_000,
            "timeout_keep_alive": 15,
            "timeout_graceful_shutdown": int(SECONDS_TO_STOP),
            "h11_max_incomplete_event_size": 64 * 1024,
            "server_header": False,
            "ws": "none",
            "log_level": "warning",
            "proxy_headers": False,
        }
        return uvicorn.Config(self.app, host=host, port=port, **{**options, **(more or {})})


class LoopError(RuntimeError):
    """The server runs on another event loop."""


async def _serve_until_cancelled(server: uvicorn.Server) -> None:
    """Serve; a cancelled task closes the connections like a normal end."""
    try:
        await server.serve()
    except asyncio.CancelledError:
        if server.started:
            for listening in server.servers:  # at once: the loop may be about to cancel this too
                listening.close()
            await server.shutdown()
        raise


class _Started:
    """Middleware that starts the server with the first request, and reports why it cannot start.

    Args:
        app: The application.
        begin: Starts the server, or returns the reason why it cannot.
        changing: Receives the tasks of requests that change something.
    """

    def __init__(
        self, app: ASGIApp, begin: Callable[[], Awaitable[str | None]], changing: set[asyncio.Task[Any]]
    ) -> None:
        self._app = app
        self._begin = begin
        self._changing = changing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and own_path(scope) not in _ALWAYS_THERE:
            problem = await self._begin()
            if problem is not None:
                await refusal(503, problem)(scope, receive, send)
                return
        task = asyncio.current_task()
        if task is None or scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._changing.add(task)
        try:
            with served_input():
                await self._app(scope, receive, send)
        finally:
            self._changing.discard(task)


_ALWAYS_THERE = ("/", "/health", "/openapi.json")


def _checked_token(token: str | None) -> str | None:
    if token is not None and (not token.isascii() or not token.isprintable() or token.strip() != token or not token):
        raise ServerConfigurationError("token must be printable ASCII characters without surrounding blanks")
    return token


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = refusal(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


class _StoreFailures:
    """Refuse requests after failures of stores. The log has each text once, until no store fails for some seconds."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._failed_at = 0.0

    async def __call__(self, _: Request, error: Exception) -> Response:
        now = asyncio.get_running_loop().time()
        if now > self._failed_at + SECONDS_WITHOUT_FAILURES:
            self._told.clear()
        self._failed_at = now
        if str(error) not in self._told:
            self._told.add(str(error))
            logger.error("a store failed: %s", error)
        return refusal(503, "The store of the runs failed; see the server's log")


async def _failed(_: Request, error: Exception) -> Response:  # noqa: ARG001 - the log contains it
    return refusal(500, "Internal Server Error")

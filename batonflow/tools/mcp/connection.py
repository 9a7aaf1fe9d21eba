"""Connection to a server, inside its own task from start to end."""

import asyncio
import atexit
import contextvars
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast
from weakref import WeakSet

from batonflow.instrumentation.logs import logger_named
from batonflow.llms._vendor import aload, load
from batonflow.threads import in_thread
from batonflow.tools.mcp.asking import Call, Question
from batonflow.tools.mcp.definitions import ToolDefinition
from batonflow.tools.mcp.errors import MCPConnectionError, MCPServerError, MCPTimeoutError
from batonflow.tools.mcp.listing import Listing
from batonflow.tools.mcp.transport import Endpoint, LastWords, transport_to

__all__ = ["Connection", "SessionLostError"]

_log = logger_named("batonflow.tool")
_T = TypeVar("_T")

# Longer than the three stages of ending a server process (ask, terminate, kill), with two seconds each.
_SECONDS_TO_CLOSE = 10.0
_MOST_PAGES = 100
_CONNECTION_CLOSED = -32000
_GO_THERE_FIRST = -32042
# Error codes of the package `mcp` after an HTTP error status.
_REFUSALS = {-32000, -32001, -32600, -32603}
_LOST = ("Connection closed", "SSE stream")
# Error of the package's servers for questions that the newer protocol does not support.
_NO_QUESTIONS = "no back-channel"
_TOO_LARGE = "Server-sent event exceeded"

_calling: contextvars.ContextVar[Call | None] = contextvars.ContextVar("batonflow_mcp_call", default=None)


class SessionLostError(MCPConnectionError):
    """The server rejected the request because it does not know the session."""


class Connection:
    """A connection to a server; it belongs to its event loop.

    Args:
        label: Name of the server in messages.
        endpoint: The command or address of the server.
        protocol: ``"auto"``, ``"legacy"`` or a version.
        timeout: Seconds to connect.

    Attributes:
        ended: True after its end, for any reason.
        loop: Its event loop.
    """

    def __init__(self, label: str, endpoint: Endpoint, protocol: str, timeout: float | None) -> None:
        self.label = label
        self.ended = False
        self._endpoint = endpoint
        self._protocol = protocol
        self._timeout = timeout
        self.loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._closed = threading.Event()
        self._cause: BaseException | None = None
        self._refused = False
        self._last_words = LastWords()
        self._listing = Listing(self._list)
        self._calls: dict[Call, None] = {}  # in the order of their start

    # --- its life -----------------------------------------------------------------------------------------------------

    async def opened(self) -> None:
        """Connect if necessary, and wait for it; several tasks may call this at once.

        Raises:
            MCPConnectionError: The connection failed.
            MissingDependencyError: The package ``mcp`` is not installed.
        """
        if self._task is None:
            # A fresh context, because later calls must not see the first caller's context variables.
            self._task = self.loop.create_task(
                self._live(), name=f"batonflow-mcp-{self.label}", context=contextvars.Context()
            )
            _open.add(self)
        await self._ready.wait()
        if self._client is None:
            cause = self._cause
            if cause is not None and not isinstance(cause, ConnectionError | OSError) and _is_ours(cause):
                raise cause
            raise self._failure("cannot be reached" if self._endpoint.url else "could not be started") from cause

    async def _live(self) -> None:
        try:
            await aload("mcp", "mcp")
            async with asyncio.timeout(self._timeout) as clock, self._speaking() as client:
                clock.reschedule(None)
                self._client = client
                self._ready.set()
                await self._stop.wait()
        except Exception as err:  # noqa: BLE001 - the reason for the end is raised in calls
            self._cause = _first_cause(err)
        finally:
            self.ended = True
            self._ready.set()
            self._closed.set()

    def _speaking(self) -> Any:
        mcp = load("mcp", "mcp")
        return mcp.Client(
            transport_to(self._endpoint, self._last_words, self._ends, self._refuses),
            mode=self._protocol,
            elicitation_callback=self._elicited,
            message_handler=self._on_message,
            client_info=mcp.types.Implementation(name="batonflow", version="0"),
        )

    def _ends(self) -> None:
        self.ended = True
        self._stop.set()

    def _end_behind_calls(self, leaving: Call | None) -> None:
        """End the connection when no call is in progress. A call that is about to return does not count."""
        if all(call is leaving for call in self._calls):
            self._stop.set()

    def _refuses(self) -> None:
        if (call := _calling.get()) is not None:
            call.refused = True
        else:
            self._refused = True

    async def aclose(self) -> None:
        """End the connection and the server's process, and wait for the end."""
        if self._task is None:
            return
        if self.loop is not asyncio.get_running_loop():
            self.ask_to_stop()
            await in_thread(self._closed.wait, _SECONDS_TO_CLOSE)
            return
        self._stop.set()
        if not self._ready.is_set():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_SECONDS_TO_CLOSE)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_SECONDS_TO_CLOSE)

    def ask_to_stop(self) -> bool:
        """End the connection from any thread, without waiting; return False if its loop no longer runs."""
        if self._closed.is_set() or self.loop.is_closed() or not self.loop.is_running():
            return False
        self.loop.call_soon_threadsafe(self._stop.set)
        return True

    @property
    def is_closed(self) -> bool:
        """Return True if its task or its loop has ended."""
        return self._closed.is_set() or self.loop.is_closed()

    def wait_closed(self, seconds: float) -> None:
        """Block this thread until the connection has ended, at most ``seconds``."""
        self._closed.wait(seconds)

    # --- requests -----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The version of the protocol in use."""
        return str(self._client.protocol_version)

    async def tools(self, timeout: float | None, newest: bool = False) -> dict[str, ToolDefinition]:
        """Return the server's tools by its own names; several tasks may call this at once.

        Args:
            timeout: Seconds for the list; None for no limit.
            newest: Ask the server for changes. Servers of the newer protocol state how long their list is valid;
                servers of the older one report changes.

        Raises:
            MCPConnectionError: The server ended.
            MCPServerError: It answered with an error.
            MCPTimeoutError: It took too long.
            SessionLostError: The request was not sent, or the server rejected it.
        """
        async with self._limited(timeout, "its list of tools"):
            return await self._listing.tools(newest and self._client.session.discover_result is not None)

    async def _list(self) -> dict[str, ToolDefinition]:
        if self.ended:  # another task was asking and got the error
            raise SessionLostError(str(self._failure("ended")))
        found: dict[str, ToolDefinition] = {}
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._answer(self._client.list_tools(cursor=cursor), "listing its tools")
            found |= {tool.name: _definition(tool) for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def call(self, name: str, call: Call, timeout: float | None) -> Any:
        """Call a tool.

        Args:
            name: The server's own name for it.
            call: The call, for progress and questions.
            timeout: Seconds for the call, without the time of questions to people; None for no limit.

        Raises:
            MCPConnectionError: The server ended.
            MCPServerError: It answered with an error.
            MCPTimeoutError: It took too long.
            SessionLostError: The server rejected the call.
        """
        token = _calling.set(call)
        self._calls[call] = None
        progressed = None if call.ctx is None else call.progressed
        try:
            async with self._limited(timeout, repr(name)) as clock:
                call.timed_by(clock)
                for last in (False, True):
                    sent = self._client.call_tool(name, call.arguments, progress_callback=progressed)
                    try:
                        return await self._answer(sent, f"running {name!r}")
                    except MCPServerError as err:
                        if last or err.code != _GO_THERE_FIRST or not await self._been_there(call, err.data):
                            raise
        finally:
            del self._calls[call]
            if self.ended:
                self._end_behind_calls(None)
            call.end()
            _calling.reset(token)

    @asynccontextmanager
    async def _limited(self, timeout: float | None, what: str) -> AsyncGenerator[asyncio.Timeout, None]:
        clock = asyncio.timeout(timeout)
        try:
            async with clock:
                yield clock
        except TimeoutError as err:
            if not clock.expired():
                raise
            raise MCPTimeoutError(
                f"MCP server {self.label!r} took more than {timeout:g} s for {what} and was asked to stop it; "
                "give MCPTools a longer timeout= if that is not enough"
            ) from err

    async def _answer(self, sent: Awaitable[_T], doing: str) -> _T:
        mcp_error: type[Exception] = load("mcp", "mcp").MCPError
        try:
            return await sent
        except mcp_error as err:
            raise await self._explained(err, doing) from err
        except (RuntimeError, ValueError) as err:
            if self.ended:
                raise self._failure(f"ended while {doing}") from err
            # Messages of the package for answers that violate the protocol or the tool's own schema.
            raise MCPServerError(f"MCP server {self.label!r}, {doing}, gave an unusable answer: {err}") from err

    async def _explained(self, err: Any, doing: str) -> Exception:
        code: int = err.code
        if code == _CONNECTION_CLOSED and err.message.startswith(_LOST[0]) and self._task is not None:
            # Its task learns the reason for the end at about the same moment.
            await asyncio.wait({self._task}, timeout=_SECONDS_TO_CLOSE)
        call = _calling.get()
        if code in _REFUSALS and (self._refused if call is None else call.refused):
            self.ended = True  # stops later calls; each call in progress gets its own outcome
            self._end_behind_calls(call)
            return SessionLostError(f"MCP server {self.label!r} no longer knows this session: {err.message}")
        if code == _CONNECTION_CLOSED and _TOO_LARGE in err.message:
            return MCPServerError(f"MCP server {self.label!r}, {doing}, sent too much at once: {err.message}", code)
        if self.ended or (code == _CONNECTION_CLOSED and err.message.startswith(_LOST)):
            return self._failure(f"ended while {doing}; whether that took effect is unknown", err.message)
        text = f"MCP server {self.label!r}, {doing}, answered with an error: {err.message}"
        if _NO_QUESTIONS in err.message and self._client.session.discover_result is not None:
            text += ' Give MCPTools protocol="legacy" for servers that ask in the middle of a call.'
        return MCPServerError(text, code, err.data)

    def _failure(self, what: str, message: str = "") -> MCPConnectionError:
        cause = "" if self._cause is None else str(self._cause) or type(self._cause).__name__
        if isinstance(self._cause, TimeoutError) and not str(self._cause):
            cause = f"no answer within {self._timeout:g} s" if self._timeout else "no answer"
        if isinstance(self._cause, FileNotFoundError) and self._endpoint.command:
            cause = f"command not found: {self._endpoint.command[0]}"
        text = f"MCP server {self.label!r} {what}"
        if reason := cause or message:
            text += f" ({reason})"
        if self._last_words.text:
            text += f". Its last output:\n{self._last_words.text}"
        return MCPConnectionError(text)

    # --- messages of the server ---------------------------------------------------------------------------------------

    async def _on_message(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self._listing.changed()

    async def _elicited(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the package's signature
        call = _calling.get()
        calls = [call] if call is not None and call in self._calls else self._possible_calls()
        if not calls:
            return load("mcp.types", "mcp").ElicitResult(action="decline")
        return await Question(calls, params).answer()

    async def _been_there(self, call: Call, data: Any) -> bool:
        """Return True if a person visited all addresses that the server requires before the call."""
        types = load("mcp.types", "mcp")
        wanted = types.ElicitationRequiredErrorData.model_validate(data).elicitations
        return bool(wanted) and all([(await Question([call], one).answer()).action == "accept" for one in wanted])

    def _possible_calls(self) -> list[Call]:
        """Return the calls that may have asked a question; no calls if it could belong to another run."""
        if len({call.run for call in self._calls}) == 1:
            return list(self._calls)
        _log.warning(
            "MCP server %r asks a question that may belong to any of %d calls in progress, or to another run: declined",
            self.label,
            len(self._calls),
        )
        return []


def _definition(tool: Any) -> ToolDefinition:
    hints: dict[str, Any] = {} if tool.annotations is None else tool.annotations.model_dump(exclude_none=True)
    return ToolDefinition(tool.name, tool.description or tool.title or "", dict(tool.input_schema), hints)


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith("batonflow.")


# --- the end of the program -------------------------------------------------------------------------------------------

_open: WeakSet[Connection] = WeakSet()


def _close_all() -> None:
    # Connections of loops in other threads run until the program ends; the main thread's loop has closed its own.
    stopping = [connection for connection in list(_open) if connection.ask_to_stop()]
    deadline = time.monotonic() + _SECONDS_TO_CLOSE
    for connection in stopping:
        connection.wait_closed(max(0.0, deadline - time.monotonic()))


atexit.register(_close_all)

"""Transports: a server process or an address; both report the end of the server."""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from batonflow.llms._vendor import load

__all__ = ["Endpoint", "LastWords", "transport_to"]

_KEPT_BYTES = 8192
_SHOWN_LINES = 10
_CONNECT_SECONDS = 30.0
LARGEST_EVENT_BYTES = 64 * 1024 * 1024
_SESSION_HEADER = "mcp-session-id"


@dataclass(frozen=True)
class Endpoint:
    """Command or address of a server.

    Args:
        command: The program and its arguments, for a server process.
        env: Variables of its environment, besides a few harmless ones.
        cwd: Its working directory.
        url: The address of a server of streamable HTTP, instead of a command.
        headers: Sent with every request.
        auth: An ``httpx2.Auth``.
    """

    command: Sequence[str] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)


class LastWords:
    """The end of a process's output on standard error."""

    def __init__(self) -> None:
        self._kept = b""
        self._read_end: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def text(self) -> str:
        """The last lines."""
        return "\n".join(self._kept.decode(errors="replace").splitlines()[-_SHOWN_LINES:])

    def open(self) -> Any:
        """The standard error of the process, as a file to be closed after its start."""
        read_end, write_end = os.pipe()
        loop = asyncio.get_running_loop()
        try:
            os.set_blocking(read_end, False)
            loop.add_reader(read_end, self._more)
        except NotImplementedError:
            # The event loop of Windows cannot watch such a pipe: the output goes to this process's standard error.
            os.close(read_end)
            os.close(write_end)
            return os.fdopen(os.dup(2), "w")
        self._read_end, self._loop = read_end, loop
        return os.fdopen(write_end, "w")

    def _more(self) -> bool:
        assert self._read_end is not None
        try:
            found = os.read(self._read_end, 65536)
        except BlockingIOError:
            return False
        if not found and self._loop is not None:
            self._loop.remove_reader(self._read_end)
        self._kept = (self._kept + found)[-_KEPT_BYTES:]
        return bool(found)

    def close(self) -> None:
        """Read available output, and stop reading."""
        if self._read_end is None or self._loop is None:
            return
        while self._more():
            pass
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        self._read_end = None


class _Watched:
    """A stream of messages that reports its end and is otherwise unchanged."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> Any:
        return await self._stream.__aexit__(*exc_info)


@asynccontextmanager
async def transport_to(
    endpoint: Endpoint, last_words: LastWords, on_end: Callable[[], None], on_refusal: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Open the two streams of a connection.

    Args:
        endpoint: The command or address of the server.
        last_words: Keeps the output of a process on standard error.
        on_end: Called when the server has ended the connection.
        on_refusal: Called when an HTTP server rejects a message of this session, for example an unknown session; with
            the context variables of the sender.
    """
    opened = _process(endpoint, last_words) if endpoint.url is None else _http(endpoint, on_refusal)
    async with opened as (read, write):
        yield _Watched(read, on_end), write


@asynccontextmanager
async def _process(endpoint: Endpoint, last_words: LastWords) -> AsyncGenerator[tuple[Any, Any], None]:
    stdio = load("mcp.client.stdio", "mcp")
    program, *arguments = endpoint.command
    parameters = stdio.StdioServerParameters(
        command=program, args=arguments, env=None if endpoint.env is None else dict(endpoint.env), cwd=endpoint.cwd
    )
    errors = last_words.open()
    try:
        async with stdio.stdio_client(parameters, errlog=errors) as streams:
            errors.close()
            yield streams
    finally:
        errors.close()
        last_words.close()


@asynccontextmanager
async def _http(endpoint: Endpoint, on_refusal: Callable[[], None]) -> AsyncGenerator[tuple[Any, Any], None]:
    httpx2 = load("httpx2", "mcp")

    async def seen(response: Any) -> None:
        request = response.request
        if request.method == "POST" and response.status_code in {400, 404} and _SESSION_HEADER in request.headers:
            on_refusal()

    # No read timeout: a server is silent while it works, and calls have their own timeouts.
    client = httpx2.AsyncClient(
        headers=endpoint.headers,
        auth=endpoint.auth,
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        event_hooks={"response": [seen]},
    )
    connect = load("mcp.client.streamable_http", "mcp").streamable_http_client
    # Missing in the first versions of the package; its own limit, a mebibyte, is too small for some tools.
    has_limit = "max_sse_event_size" in inspect.signature(connect).parameters
    limit = {"max_sse_event_size": LARGEST_EVENT_BYTES} if has_limit else {}
    async with client, connect(endpoint.url, http_client=client, **limit) as streams:
        yield streams

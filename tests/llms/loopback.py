"""A small HTTP server on loopback that answers as it is told, in pieces of any size."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Connection", "Loopback", "Received", "loopback", "pieces"]


@dataclass
class Received:
    """A request as it came in; ``connection`` is the place of its connection in ``Loopback.connections``."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    method: str = "POST"
    connection: int = 0


@dataclass
class Answer:
    """What to answer.

    Args:
        body: The bytes, in the pieces in which they are sent.
        status: Of the answer.
        headers: Beside content type and transfer encoding.
        content_type: Of the body.
        breaks: Whether the connection is closed after the body, without its proper end.
        resets: The same, the hard way: the other side sees "connection reset by peer".
        hangs: Whether nothing more comes after the body, for ever.
        head: Whether the status and the headers are sent; without, ``breaks`` and ``hangs`` come before any byte.
        pause: Seconds before each piece but the first.
        permits: When given, each piece waits for one of these; ``release()`` lets the next piece go.
    """

    body: Sequence[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    breaks: bool = False
    resets: bool = False
    hangs: bool = False
    head: bool = True
    pause: float = 0
    permits: asyncio.Semaphore | None = None


@dataclass(eq=False)
class Connection:
    """One connection.

    Attributes:
        requests: How many came over it.
        answering: Whether an answer is under way.
        left: Set when the other side has gone away.
        left_midway: Whether it did so while an answer was under way.
    """

    requests: int = 0
    answering: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)
    left_midway: bool = False

    def gone(self) -> None:
        """Note that the other side has gone."""
        if not self.left.is_set():
            self.left_midway = self.answering
            self.left.set()

    async def outlasts(self, wait: Coroutine[Any, Any, Any]) -> bool:
        """Await ``wait``, or until the other side goes away; returns whether the other side is still there."""
        tasks = [asyncio.ensure_future(wait), asyncio.ensure_future(self.left.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return not self.left.is_set()


class _Reader(asyncio.StreamReader):
    """A reader that says at once when the other side has gone, whether or not anybody reads."""

    def __init__(self, told: "Loopback") -> None:
        super().__init__()
        self.told = told
        self.connection = Connection()

    def feed_eof(self) -> None:
        self._gone()
        super().feed_eof()

    def set_exception(self, exc: Any) -> None:
        self._gone()
        super().set_exception(exc)

    def _gone(self) -> None:
        self.connection.gone()
        self.told.left.set()


def pieces(data: bytes, size: int) -> list[bytes]:
    """``data`` cut into pieces of ``size`` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


class Loopback:
    """The server.

    Attributes:
        answers: One per request, in order; or a function that makes the answer to a request.
        received: The requests so far.
        connections: The connections so far, in the order in which they were opened.
        most_open: How many connections were open at the same time at most.
        left: Set when the other side of any connection has gone away.
        url: Where it listens.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] | Callable[[Received], Answer] = []
        self.received: list[Received] = []
        self.connections: list[Connection] = []
        self.most_open = 0
        self.left = asyncio.Event()
        self.url = ""
        self._serving: set[asyncio.Task[Any]] = set()
        self._closing = False

    @property
    def open(self) -> int:
        """How many connections are open."""
        return sum(not one.left.is_set() for one in self.connections)

    def answer_to(self, request: Received) -> Answer:
        """What ``answers`` has for a request; a 500 that says so when it has nothing."""
        if not isinstance(self.answers, list):
            return self.answers(request)
        if self.answers:
            return self.answers.pop(0)
        text = json.dumps({"error": {"message": f"the test gave no answer for {request.method} {request.path}"}})
        headers = {"x-should-retry": "false"}
        return Answer([text.encode()], status=500, headers=headers, content_type="application/json")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Reader)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections.append(reader.connection)
        self.most_open = max(self.most_open, self.open)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            if not self._closing:  # at its own end the server says nothing: asyncio's streams would log it
                raise
        finally:
            self._serving.discard(task)
            # What is not yet sent is not worth waiting for; the end of an answer has gone out before.
            writer.transport.abort()
            # Later Pythons do not tell a reader whose connection nobody serves any more.
            reader.connection.gone()

    async def _exchange(self, reader: _Reader, writer: asyncio.StreamWriter) -> bool:
        connection = reader.connection
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split()
        request = Received(path, headers, json.loads(body or b"{}"), method, self.connections.index(connection))
        self.received.append(request)
        connection.requests += 1
        connection.answering = True
        goes_on = await self._answer(self.answer_to(request), connection, writer)
        connection.answering = False
        return goes_on

    async def _answer(self, answer: Answer, connection: Connection, writer: asyncio.StreamWriter) -> bool:
        """Send an answer; returns whether the connection can serve another request."""
        if answer.head:
            lines = [
                f"HTTP/1.1 {answer.status} X",
                f"content-type: {answer.content_type}",
                "transfer-encoding: chunked",
                *(f"{name}: {value}" for name, value in answer.headers.items()),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode())
        for number, piece in enumerate(filter(None, answer.body)):
            if answer.pause and number and not await connection.outlasts(asyncio.sleep(answer.pause)):
                return False
            if answer.permits is not None and not await connection.outlasts(answer.permits.acquire()):
                return False
            if connection.left.is_set():
                return False
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if answer.hangs:
            await connection.left.wait()
            return False
        if answer.breaks or answer.resets:
            await _empty(writer)
            if answer.resets:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def close(self) -> None:
        self._closing = True
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _empty(writer: asyncio.StreamWriter) -> None:
    """Wait until everything written is with the operating system."""
    writer.transport.set_write_buffer_limits(0)
    await writer.drain()


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """The server, running for the length of the block."""
    told = Loopback()
    # Room for hundreds of clients that connect at the same moment.
    server = await asyncio.get_running_loop().create_server(
        lambda: asyncio.StreamReaderProtocol(_Reader(told), told.serve), "127.0.0.1", 0, backlog=512
    )
    told.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server:
            yield told
            await told.close()
    finally:
        await told.close()

"""A small HTTP server on loopback that answers as it is told, in pieces of any size."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Loopback", "Received", "loopback", "pieces"]


@dataclass
class Received:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Answer:
    """What to answer.

    Args:
        body: The bytes, in the pieces in which they are sent.
        status: Of the answer.
        headers: Beside content type and transfer encoding.
        content_type: Of the body.
        breaks: Whether the connection is cut after the body, without its proper end.
        hangs: Whether nothing more comes after the body, for ever.
    """

    body: Sequence[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    breaks: bool = False
    hangs: bool = False


def pieces(data: bytes, size: int) -> list[bytes]:
    """``data`` cut into pieces of ``size`` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


class Loopback:
    """The server; ``answers`` are given one per request, in order."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        self.url = ""
        self.left: asyncio.Event = asyncio.Event()
        self._open: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            self._open.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.received.append(Received(head[0].split()[1], headers, json.loads(body or b"{}")))
        answer = self.answers.pop(0)
        lines = [
            f"HTTP/1.1 {answer.status} X",
            f"content-type: {answer.content_type}",
            "transfer-encoding: chunked",
            *(f"{name}: {value}" for name, value in answer.headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for piece in answer.body:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if answer.hangs:
            # Until the other side goes away.
            await reader.read()
            self.left.set()
            return False
        if answer.breaks:
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def close(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    """The server, running for the length of the block."""
    told = Loopback()
    server = await asyncio.start_server(told.serve, "127.0.0.1", 0)
    told.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server:
            yield told
            await told.close()
    finally:
        await told.close()

"""Answers about the health of a worker over HTTP, for load balancers and Kubernetes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

__all__ = ["serve_health"]

SECONDS_FOR_REQUEST = 5.0
LONGEST_LINE = 1000


@asynccontextmanager
async def serve_health(host: str, port: int, is_ready: Callable[[], bool]) -> AsyncGenerator[int]:
    """Answer requests about the health of a process while the block runs, and yield the port.

    ``GET /live`` gets 200, and ``GET /ready`` 200 or 503.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one.
        is_ready: Tells whether the process is ready.

    Raises:
        OSError: The address is in use, or does not exist.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(SECONDS_FOR_REQUEST):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                status, text = _answer(line, is_ready)
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}"
                writer.write(f"{head}\r\nConnection: close\r\n\r\n{text}".encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port, limit=LONGEST_LINE)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _answer(line: bytes, is_ready: Callable[[], bool]) -> tuple[str, str]:
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return "405 Method Not Allowed", ""
    if path == b"/live":
        return "200 OK", "live" if method == b"GET" else ""
    if path == b"/ready":
        ready = is_ready()
        status = "200 OK" if ready else "503 Service Unavailable"
        return status, ("ready" if ready else "not ready") if method == b"GET" else ""
    return "404 Not Found", ""

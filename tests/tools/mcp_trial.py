"""Starting the small MCP server of the tests, and looking after its processes."""

import asyncio
import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from batonflow.tools.mcp import MCPTool, MCPTools

__all__ = ["SERVER", "TIME", "alone", "children", "gone", "listens", "lister", "named", "served", "soon", "trial"]

SERVER = Path(__file__).with_name("mcp_server.py")
NURSERY = Path(__file__).with_name("mcp_nursery.py")
LISTER = Path(__file__).with_name("mcp_lister.py")
TIME = [sys.executable, "-m", "mcp_server_time"]


def alone(*arguments: str, **options: object) -> MCPTools:
    """The small server, as a process of its own."""
    return MCPTools([sys.executable, str(SERVER), "stdio", *arguments], namespace="trial", **options)


def trial(*arguments: str, **options: object) -> MCPTools:
    """The small server, forked from a process that has imported its packages where that can be done."""
    if not hasattr(socket, "send_fds"):
        return alone(*arguments, **options)
    command = [sys.executable, "-I", "-S", str(NURSERY), "serve", nursery(), "stdio", *arguments]
    return MCPTools(command, namespace="trial", **options)


@functools.cache
def nursery() -> str:
    """The socket of a process that forks servers, and that ends with this one."""
    folder = tempfile.mkdtemp(prefix="nursery-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder, "socket"))
    process = subprocess.Popen(
        [sys.executable, str(NURSERY), "nurse", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    return path


def lister(mood: Path, **options: object) -> MCPTools:
    """The server that may keep its list of tools to itself, in a mood that the test writes into a file."""
    return MCPTools([sys.executable, str(LISTER), str(mood)], namespace="lister", protocol="legacy", **options)


async def named(tools: MCPTools, name: str) -> MCPTool:
    return next(tool for tool in await tools.aget_tools() if tool.definition.name == name)


@asynccontextmanager
async def served(port: int | None = None) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The small server on loopback: its address and its process, which the test may kill."""
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVER),
        "http",
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await soon(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def soon(holds: Callable[[], bool]) -> None:
    """Wait until something outside this process holds; the test's own timeout is the limit."""
    while not holds():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as such."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def children(parent: int | None = None) -> set[int]:
    """The processes that a process has started and that still run."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == (parent or os.getpid()) and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found

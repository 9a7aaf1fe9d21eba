"""Real servers on real sockets, and the workflows that they serve."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
import uvicorn

from batonflow.workflow_core.server import WorkflowServer


@dataclass
class Running:
    """A server that listens, and a client of it."""

    server: WorkflowServer
    port: int
    http: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def running(server: WorkflowServer, **config: object) -> AsyncIterator[Running]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    unicorn = uvicorn.Server(server.uvicorn_config("127.0.0.1", port, config))
    unicorn.install_signal_handlers = lambda: None
    unicorn.capture_signals = contextlib.nullcontext
    await server.start()
    task = asyncio.create_task(unicorn.serve(sockets=[listener]))
    while not unicorn.started:
        await asyncio.sleep(0.005)
    headers = {} if server.token is None else {"Authorization": f"Bearer {server.token}"}
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as http:
            yield Running(server, port, http)
    finally:
        await server.stop()
        unicorn.should_exit = True
        await task


@pytest.fixture
def serving() -> Callable[..., AbstractAsyncContextManager[Running]]:
    return running

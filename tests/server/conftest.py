"""Real servers on real sockets."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import pytest
import uvicorn

from batonflow.server import WorkflowServer
from batonflow.workflow_core import Workflow

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]]) -> T:
    """What a look gives as soon as it gives anything."""
    while not (found := await look()):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)
    return found


@dataclass
class Running:
    """A server that listens, and a client of it."""

    server: WorkflowServer
    port: int
    http: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.http.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = await self.http.post(path, json={} if body is None else body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def start(self, workflow: str, **start_event: Any) -> str:
        return (await self.post(f"/workflows/{workflow}/run-nowait", {"start_event": start_event}))["handler_id"]

    async def until(self, run_id: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async def fitting() -> dict[str, Any] | None:
            found = await self.get(f"/handlers/{run_id}")
            return found if fits(found) else None

        return await eventually(fitting)

    async def over(self, run_id: str) -> dict[str, Any]:
        return await self.until(run_id, lambda found: found["status"] != "running")

    async def events(self, run_id: str, **query: Any) -> list[dict[str, Any]]:
        """The whole stream; ``id`` of the server-sent event is put beside its data."""
        return [event async for event in self.reading(run_id, **query)]

    async def reading(self, run_id: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        async with self.http.stream("GET", f"/events/{run_id}", params=query) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            place = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    place = line[4:]
                elif line.startswith("data: "):
                    yield {**json.loads(line[6:]), "id": place}


Serving = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def running(server: WorkflowServer, **workflows: Workflow) -> AsyncIterator[Running]:
    for name, workflow in workflows.items():
        server.add_workflow(name, workflow)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2000)
    port = listener.getsockname()[1]
    unicorn = uvicorn.Server(server.uvicorn_config("127.0.0.1", port))
    unicorn.capture_signals = contextlib.nullcontext
    await server.start()
    task = asyncio.create_task(unicorn.serve(sockets=[listener]))

    async def started() -> bool:
        return unicorn.started

    await eventually(started)
    headers = {} if server.token is None else {"Authorization": f"Bearer {server.token}"}
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as http:
            yield Running(server, port, http)
    finally:
        await server.stop()
        unicorn.should_exit = True
        await task


@pytest.fixture
def serving() -> Serving:
    return running

"""The application of a server under a path of another application, and servers that were started on other loops."""

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.server import WorkflowServer
from tests.promises.programs.running import ROOT
from tests.server.flows import Greet, Slow
from tests.serving import serving


def in_starlette(server: WorkflowServer) -> Any:
    return Starlette(routes=[Mount("/flows", app=server.app)])


def in_fastapi(server: WorkflowServer) -> Any:
    outer = FastAPI()
    outer.mount("/flows", server.app)
    return outer


def with_lifespan(server: WorkflowServer) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI):
        async with server.contextmanager():
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/flows", server.app)
    return outer


def greeter(**options: Any) -> WorkflowServer:
    server = WorkflowServer(**options)
    server.add_workflow("greet", Greet())
    server.add_workflow("slow", Slow(timeout=None))
    return server


INSIDE = pytest.mark.parametrize("inside", [in_starlette, in_fastapi, with_lifespan])


@INSIDE
def test_a_mounted_application_runs_workflows(inside) -> None:
    with serving(inside(greeter())) as url, httpx2.Client(base_url=f"{url}/flows", timeout=20) as client:
        told = client.post("/workflows/greet/run", json={"start_event": {"name": "Ann"}})
        assert (told.status_code, told.json()["result"]["value"]) == (200, {"result": "Hello, Ann!"})
        assert client.get("/health").json() == {"status": "healthy"}
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["/workflows", "/handlers", "/health", "/"])
def test_whichever_route_is_asked_first_starts_it(path: str) -> None:
    with serving(in_starlette(greeter())) as url:
        assert httpx2.get(f"{url}/flows{path}").status_code == 200


async def test_many_first_requests_at_once_start_it_once(tmp_path: Path) -> None:
    server = greeter(store=tmp_path / "runs.db")
    begun: list[str] = []

    async def door(scope, receive, send):
        assert scope["type"] == "lifespan"
        while True:
            begun.append((message := await receive())["type"])
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    server.mount("/door", door)
    with serving(in_starlette(server)) as url:
        async with httpx2.AsyncClient(base_url=f"{url}/flows", timeout=20) as client:
            answers = await asyncio.gather(*(client.get("/workflows") for _ in range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert begun == ["lifespan.startup"]
    assert begun == ["lifespan.startup", "lifespan.shutdown"]


def test_what_is_open_without_the_token_is_open_under_a_path_too() -> None:
    with serving(in_starlette(greeter(token="open sesame"))) as url:
        assert httpx2.get(f"{url}/flows/").status_code == 200
        assert httpx2.get(f"{url}/flows/health").status_code == 200
        assert httpx2.get(f"{url}/flows/workflows").status_code == 401


@INSIDE
def test_runs_are_interrupted_when_the_application_around_it_ends(inside, tmp_path: Path) -> None:
    with serving(inside(greeter(store=tmp_path / "runs.db"))) as url:
        httpx2.post(f"{url}/flows/workflows/slow/run-nowait", json={"handler_id": "nap"}).raise_for_status()

    info = asyncio.run(SQLiteStore(tmp_path / "runs.db").info("nap"))
    assert (info.status, info.owner) == ("ready", None)


def test_a_server_that_was_stopped_is_not_started_by_requests() -> None:
    server = greeter()

    async def used() -> int:
        await server.start()
        await server.stop()
        transport = httpx2.ASGITransport(in_starlette(server))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/flows") as client:
            return (await client.get("/workflows")).status_code

    assert asyncio.run(used()) == 503


def test_a_server_that_cannot_start_says_so_and_is_tried_again(tmp_path: Path) -> None:
    server = greeter()
    failing = [True]

    async def door(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed" if failing.pop() else "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    server.mount("/door", door)
    with serving(in_starlette(server)) as url:
        refused = httpx2.get(f"{url}/flows/workflows")
        assert (refused.status_code, refused.json()["detail"]) == (503, "The server cannot start; see its log")
        failing.append(False)
        assert httpx2.get(f"{url}/flows/workflows").status_code == 200


# --- loops ------------------------------------------------------------------------------------------------------------


def test_a_server_started_on_a_loop_that_is_closed_starts_again_on_the_next_one(caplog: Any) -> None:
    server = greeter()
    asyncio.run(server.start())
    with serving(server.app) as url:
        told = httpx2.post(f"{url}/workflows/greet/run", json={"start_event": {"name": "Ann"}})
        assert told.json()["status"] == "completed"
    assert "Event loop is closed" not in caplog.text
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_one_that_was_started_on_a_closed_loop_can_be_stopped() -> None:
    server = greeter()
    asyncio.run(server.start())
    asyncio.run(server.stop())


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_a_server_runs_on_one_loop_at_a_time() -> None:
    server = greeter()
    with loop_in_a_thread() as elsewhere:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.start(), elsewhere))
        try:
            with pytest.raises(RuntimeError, match=r"another event loop.*stop"):
                await server.start()
            with pytest.raises(RuntimeError, match=r"another event loop.*stop"):
                await server.stop()
            transport = httpx2.ASGITransport(server.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                answer = await client.get("/workflows")
            assert answer.status_code == 503
            assert "another event loop" in answer.json()["detail"]
        finally:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.stop(), elsewhere))


async def test_an_application_whose_server_runs_on_another_loop_does_not_start_under_uvicorn() -> None:
    server = greeter()
    await server.start()
    unicorn = uvicorn.Server(uvicorn.Config(server.app, port=0, log_level="critical", ws="none"))
    try:
        with pytest.raises(SystemExit):
            await asyncio.to_thread(unicorn.run)
    finally:
        await server.stop()


async def test_streams_of_runs_that_the_program_itself_started_end_with_the_server() -> None:
    flow = Slow(timeout=None, store="memory:", workflow_name="slow")
    server = WorkflowServer(store=flow.run_store)
    server.add_workflow("slow", flow)
    handler = flow.run(run_id="own")
    await handler.started()
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client, server.contextmanager():
        reading = asyncio.create_task(client.get("/events/own"))
        await asyncio.sleep(0.1)
        assert not reading.done()
        stopping = asyncio.create_task(server.stop())
        answer = await asyncio.wait_for(reading, 10)  # the heartbeat comes every 15 seconds
        await stopping
    assert answer.status_code == 200
    assert "StopEvent" not in answer.text
    await handler.cancel_run()


@INSIDE
async def test_a_mounted_server_in_a_process_of_its_own_lets_open_streams_go_at_sigterm(tmp_path: Path, inside) -> None:
    """The signal ends streams and interrupts runs, also if nothing runs the lifespan of the mounted application."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import uvicorn
from tests.server.test_inside_other_apps import greeter, {inside.__name__}

config = uvicorn.Config({inside.__name__}(greeter(store="runs.db")), port=0, log_level="error")
server = uvicorn.Server(config)
started = server.startup

async def startup(sockets=None):
    await started(sockets)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)

server.startup = startup
server.run()
"""
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/flows", timeout=20) as client:
            (await client.post("/workflows/slow/run-nowait", json={"handler_id": "nap"})).raise_for_status()
            async with client.stream("GET", "/events/nap") as stream:
                lines = stream.aiter_lines()
                await anext(lines)
                process.terminate()
                assert [line async for line in lines if "StopEvent" in line] == []
        errors = (await process.communicate())[1].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert errors == ""
    info = await SQLiteStore(tmp_path / "runs.db").info("nap")
    assert info is not None
    assert (info.status, info.owner) == ("ready", None)

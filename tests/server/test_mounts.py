"""Other applications under paths of a server."""

import asyncio
import socket

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from batonflow.server import WorkflowServer
from batonflow.server import app as app_module
from tests.server.flows import Slow
from tests.serving import serving


async def hello(request):
    return PlainTextResponse(f"hello from {request.url.path}")


def application(told=None):
    class Life:
        def __init__(self, app):
            pass

        async def __aenter__(self):
            told.append("begun")

        async def __aexit__(self, *error):
            told.append("ended")

    routes = [Route("/", hello, methods=["GET", "POST"]), Route("/more", hello)]
    return Starlette(routes=routes, lifespan=None if told is None else Life)


async def bare(scope, receive, send):
    """An application that knows of requests only."""
    assert scope["type"] == "http"
    await PlainTextResponse("bare")(scope, receive, send)


def test_an_application_is_found_with_and_without_the_slash_at_the_end():
    server = WorkflowServer()
    server.mount("/door", application())
    server.mount("/bare", bare)
    with serving(server.app) as url, httpx2.Client(base_url=url) as client:
        assert client.get("/door").text == "hello from /door/"
        assert client.post("/door").text == "hello from /door/"
        assert client.get("/door/").text == "hello from /door/"
        assert client.get("/door/more").text == "hello from /door/more"
        assert client.get("/bare/any").text == "bare"
        assert client.get("/doors").status_code == 404


def test_it_is_behind_the_same_checks():
    server = WorkflowServer(token="open sesame")
    server.mount("/door", application())
    with serving(server.app) as url, httpx2.Client(base_url=url) as client:
        assert client.get("/door").status_code == 401
        client.headers["authorization"] = "Bearer open sesame"
        assert client.get("/door").status_code == 200
        assert client.get("/door", headers={"host": "evil.test"}).status_code == 421
        assert client.post("/door", headers={"origin": "http://evil.test"}).status_code == 403


async def test_it_begins_and_ends_with_the_server_once_each_time():
    told = []
    server = WorkflowServer()
    server.mount("/door", application(told))
    await server.start()
    await server.start()
    assert told == ["begun"]
    await server.stop()
    assert told == ["begun", "ended"]
    async with server.contextmanager():
        assert told == ["begun", "ended", "begun"]


async def test_one_that_cannot_begin_stops_the_server_and_those_before_it():
    told = []

    def fails(app):
        raise OSError("no disk")

    server = WorkflowServer()
    server.mount("/before", application(told))
    server.mount("/door", Starlette(lifespan=fails))
    server.add_workflow("slow", Slow(timeout=None))
    workflow = server.runs.served["slow"].workflow
    left = workflow.run(run_id="left")
    await left.started()
    await left.interrupt()
    with pytest.raises(RuntimeError, match="A mounted application failed to start"):
        await server.start()
    assert told == ["begun", "ended"]
    assert workflow.live_handlers() == []
    transport = httpx2.ASGITransport(server.app, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/handlers")).status_code == 503


async def test_one_that_does_not_end_holds_up_neither_runs_nor_the_end(monkeypatch, caplog):
    monkeypatch.setattr(app_module, "SECONDS_TO_STOP", 0.05)
    ending = asyncio.Event()

    async def stays(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        assert workflow.live_handlers() == []
        ending.set()
        await asyncio.Event().wait()

    server = WorkflowServer()
    server.mount("/door", stays)
    server.add_workflow("slow", Slow(timeout=None))
    workflow = server.runs.served["slow"].workflow
    await server.start()
    await workflow.run(run_id="r").started()
    await asyncio.wait_for(server.stop(), 30)
    assert ending.is_set()
    assert "did not stop within" in caplog.text


async def test_a_server_whose_task_is_cancelled_leaves_no_socket():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = WorkflowServer()
    serving = asyncio.create_task(server.serve(port=port))
    async with httpx2.AsyncClient() as client:
        while True:
            try:
                await client.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx2.TransportError:
                await asyncio.sleep(0.01)
    serving.cancel()
    await asyncio.wait([serving])
    assert serving.cancelled()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))

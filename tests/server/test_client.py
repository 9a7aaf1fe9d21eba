"""Clients of a real server over sockets: what they give, and what becomes of a stream that is cut."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest

from batonflow.server import WorkflowServer
from batonflow.server.client import PendingRequest, SyncWorkflowClient, WorkflowClient
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    step,
)
from batonflow.workflow_core.errors import RemoteRunError, ServerRefusedError
from tests.serving import serving


class Tick(Event):
    number: int


class Order(StartEvent):
    ticks: int = 3
    fails: bool = False
    pause: float = 0.0


class Ticking(Workflow):
    @step
    async def tick(self, ctx: Context, ev: Order) -> StopEvent:
        await ctx.store.set("wanted", ev.ticks)
        for number in range(ev.ticks):
            ctx.write_event_to_stream(Tick(number=number))
            await asyncio.sleep(ev.pause)
        if ev.fails:
            raise OSError("no more ticks")
        return StopEvent(result=ev.ticks)


class Colour(HumanResponseEvent):
    colour: str
    gloss: bool = False


class Painter(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("price", 5)
        question = InputRequiredEvent(prefix="Which colour?")
        answer = await ctx.wait_for_event(Colour, waiter_event=question, waiter_id="colour")
        return StopEvent(result=f"{answer.colour} for {await ctx.store.get('price')}")


@contextlib.contextmanager
def server(**options) -> Iterator[str]:
    served = WorkflowServer(**options)
    served.add_workflow("ticking", Ticking())
    served.add_workflow("painter", Painter())
    with serving(served.app) as url:
        yield url


@pytest.fixture
def url() -> Iterator[str]:
    with server() as found:
        yield found


@pytest.fixture
async def client(url: str) -> AsyncIterator[WorkflowClient]:
    async with WorkflowClient(url) as found:
        yield found


async def asked(client: WorkflowClient, run_id: str) -> list[PendingRequest]:
    while not (pending := await client.pending(run_id)):  # noqa: ASYNC110 - of another process, as it were
        await asyncio.sleep(0.01)
    return pending


async def test_run_gives_the_result(client: WorkflowClient):
    await client.ready()
    assert sorted(await client.workflows()) == ["painter", "ticking"]
    assert await client.run("ticking", {"ticks": 2}) == 2
    assert await client.run("ticking", Order(ticks=1)) == 1


async def test_the_stream_of_a_run_has_every_event_once_and_can_be_read_again(client: WorkflowClient):
    run = await client.start("ticking", {"ticks": 3}, run_id="t1")
    assert (run.run_id, run.workflow, run.is_over) == ("t1", "ticking", False)
    events = [event async for event in client.stream("t1")]
    assert [event.value.get("number") for event in events] == [0, 1, 2, None]
    assert [event.is_last for event in events] == [False, False, False, True]
    assert {event.step for event in events[:3]} == {"tick"}
    again = [event async for event in client.stream("t1", after=events[1].seq)]
    assert [event.data for event in again] == [event.data for event in events[2:]]
    assert (await client.get("t1")).status == "completed"


async def test_a_run_that_fails_or_is_cancelled_raises(client: WorkflowClient):
    with pytest.raises(RemoteRunError, match="failed with OSError: no more ticks") as caught:
        await client.run("ticking", {"fails": True})
    assert caught.value.error_type == "OSError"
    run = await client.start("ticking", {"ticks": 1000, "pause": 0.05})
    await client.cancel(run.run_id)
    with pytest.raises(WorkflowCancelledByUser, match="was cancelled"):
        await client.result(run.run_id)
    assert (await client.get(run.run_id)).status == "cancelled"


async def test_questions_are_listed_and_answered_once(client: WorkflowClient):
    run = await client.start("painter")
    pending = await asked(client, run.run_id)
    [request] = pending
    assert (request.kind, request.event) == ("input", "InputRequiredEvent")
    assert set(request.schema["properties"]) == {"colour", "gloss"}
    assert (await client.get(run.run_id)).waiting
    [same] = [one for one in await client.inbox() if one.run_id == run.run_id]
    assert (same.id, same.value, request.run_id) == (request.id, request.value, run.run_id)
    assert [one.run_id for one in await client.inbox(workflow="ticking")] == []
    with pytest.raises(ServerRefusedError) as caught:
        await client.answer(run.run_id, request.id, gloss=True)
    assert caught.value.status_code == 422
    assert "colour" in str(caught.value)
    await client.answer(run.run_id, request.id, colour="red")
    assert await client.result(run.run_id) == "red for 5"
    with pytest.raises(ServerRefusedError):
        await client.answer(run.run_id, request.id, colour="blue")


async def test_events_can_be_sent(client: WorkflowClient):
    run = await client.start("painter")
    await asked(client, run.run_id)
    await client.send(run.run_id, Colour(colour="green"))
    assert await client.result(run.run_id) == "green for 5"


async def test_a_run_can_be_looked_into_and_branched_off_from(client: WorkflowClient):
    run = await client.start("painter", run_id="p1")
    pending = await asked(client, run.run_id)
    assert await client.state("p1") == {"price": 5}
    entries = await client.trace("p1")
    assert [entry["kind"] for entry in entries] == ["started", "segment"]
    fork = await client.fork("p1", at=entries[-1]["commit"], state={"price": 7}, new_id="p2")
    assert fork.data["forked_from"] == ["p1", entries[-1]["commit"]]
    for run_id in ("p1", "p2"):
        await client.answer(run_id, pending[0].id, colour="red")
    assert [await client.result(run_id) for run_id in ("p1", "p2")] == ["red for 5", "red for 7"]


async def test_runs_are_listed_the_newest_first(client: WorkflowClient):
    for number in range(5):
        await client.run("ticking", {"ticks": 0}, run_id=f"r{number}")
    await client.start("painter", run_id="p")
    assert [run.run_id for run in await client.runs(limit=3)] == ["p", "r4", "r3"]
    assert [run.run_id for run in await client.runs(after="r3", status="completed")] == ["r2", "r1", "r0"]
    assert [run.run_id for run in await client.runs(workflow="painter")] == ["p"]


# --- cuts -------------------------------------------------------------------------------------------------------------


class CuttingProxy:
    """Passes bytes on, and cuts every connection of which it has passed so many from the server."""

    def __init__(self, port: int, after: int) -> None:
        self._port, self._after = port, after
        self._open: list[asyncio.StreamWriter] = []
        self.cuts = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        for writer in self._open:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", self._port)
        self._open += [writer, outer]

        async def requests() -> None:
            while data := await reader.read(65536):
                outer.write(data)

        sending = asyncio.create_task(requests())
        passed = 0
        while data := await inner.read(128):
            passed += len(data)
            writer.write(data)
            await writer.drain()
            if passed > self._after:
                self.cuts += 1
                break
        sending.cancel()
        writer.transport.abort()
        outer.close()


async def test_a_stream_that_is_cut_goes_on_where_it_was(url: str):
    proxy = CuttingProxy(int(url.rpartition(":")[2]), after=1500)
    async with proxy as through, WorkflowClient(url) as direct, WorkflowClient(through) as client:
        await direct.start("ticking", {"ticks": 40, "pause": 0.005}, run_id="long")
        events = [event async for event in client.stream("long")]
    assert [event.value.get("number") for event in events] == [*range(40), None]
    assert proxy.cuts > 3


async def test_a_stream_on_which_nothing_came_for_long_goes_on_after_a_cut(url: str):
    async with WorkflowClient(url) as direct:
        run = await direct.start("painter")
        [request] = await asked(direct, run.run_id)
        quiet = CuttingProxy(int(url.rpartition(":")[2]), after=10**9)
        async with quiet as through, WorkflowClient(through, patience=0.2) as client:
            result = asyncio.create_task(client.result(run.run_id))
            await asyncio.sleep(0.5)  # longer than its patience
            quiet.cut_all()
            await direct.answer(run.run_id, request.id, colour="red")
            assert await result == "red for 5"


async def test_a_server_that_is_away_for_a_moment_is_waited_for(url: str):
    turned_away: list[str] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /events") and len(turned_away) < 3:
            turned_away.append(head.decode())
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        else:
            inner, outer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            outer.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
            writer.write(await inner.read())
            outer.close()
            await outer.wait_closed()
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    before = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with WorkflowClient(url) as direct, before:
        await direct.run("ticking", {"ticks": 2}, run_id="t1")
        through = f"http://127.0.0.1:{before.sockets[0].getsockname()[1]}"
        async with WorkflowClient(through) as client:
            assert [event.value.get("number") async for event in client.stream("t1")] == [0, 1, None]
    assert len(turned_away) == 3


async def test_a_server_that_stays_away_is_given_up_on(url: str):
    proxy = CuttingProxy(int(url.rpartition(":")[2]), after=0)
    async with proxy as through, WorkflowClient(url) as direct, WorkflowClient(through, patience=0.3) as client:
        run = await direct.start("painter")
        with pytest.raises(httpx2.TransportError):
            [event async for event in client.stream(run.run_id)]
        await direct.cancel(run.run_id)


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_refusal_says_what_was_asked_and_what_the_server_said(client: WorkflowClient):
    with pytest.raises(ServerRefusedError, match="404") as caught:
        await client.run("bakery")
    assert "/workflows/bakery/run-nowait" in str(caught.value)
    with pytest.raises(ServerRefusedError) as caught:
        await client.get("nobody")
    assert caught.value.status_code == 404
    with pytest.raises(ServerRefusedError) as caught:
        await client.run("ticking", {"ticks": "many"})
    assert caught.value.status_code == 400


async def test_a_token_opens_the_server():
    with server(token="open sesame") as url:
        async with WorkflowClient(url) as stranger:
            with pytest.raises(ServerRefusedError) as caught:
                await stranger.workflows()
            assert caught.value.status_code == 401
        async with WorkflowClient(url, token="open sesame") as friend:
            assert await friend.run("ticking", {"ticks": 1}) == 1


async def test_another_server_is_told_apart():
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<h1>It works!</h1>")

        def log_message(self, *args: object) -> None:
            pass

    other = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        async with WorkflowClient(f"http://127.0.0.1:{other.server_port}") as client:
            with pytest.raises(ServerRefusedError, match="no WorkflowServer answers at"):
                await client.workflows()
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


async def test_nobody_there_is_an_error_of_the_transport():
    async with WorkflowClient("http://127.0.0.1:9") as client:
        assert not await client.is_healthy()
        with pytest.raises(TimeoutError, match="no WorkflowServer was ready"):
            await client.ready(timeout=0)
        with pytest.raises(httpx2.TransportError):
            await client.workflows()


# --- plain code -------------------------------------------------------------------------------------------------------


def test_plain_code_has_the_same_client(url: str):
    with SyncWorkflowClient(url) as client:
        assert client.run("ticking", {"ticks": 2}) == 2
        client.start("ticking", {"ticks": 3}, run_id="t1")
        assert [event.value.get("number") for event in client.stream("t1")] == [0, 1, 2, None]
        for event in client.stream("t1"):
            assert event.value == {"number": 0}
            break
        client.start("painter", run_id="p1")
        while not (pending := client.pending("p1")):
            pass
        client.answer("p1", pending[0].id, colour="red")
        assert client.result("p1") == "red for 5"
        with pytest.raises(RemoteRunError):
            client.run("ticking", {"fails": True})


def test_both_clients_have_the_same_methods():
    def methods(cls: type) -> set[str]:
        return {name for name, value in vars(cls).items() if callable(value) and not name.startswith("_")}

    assert methods(WorkflowClient) - {"aclose"} == methods(SyncWorkflowClient) - {"close"}

"""How large, deep and slow requests and readers may be; each test is named after what it guards against."""

import asyncio
import json
import socket
import tracemalloc

import httpx2
import pytest

from batonflow.clock import SeededSource, use_source
from batonflow.server import WorkflowServer
from batonflow.workflow_core import Context, StartEvent, StopEvent, Workflow, step
from tests.server.conftest import Running, Serving, eventually
from tests.server.flows import Greet, Plain, Unseen

MIB = 1024 * 1024


async def raw(running: Running, *pieces: bytes) -> bytes:
    """What a server answers to bytes, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_large_body_is_refused_and_not_kept(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        body = json.dumps({"start_event": {"text": "x" * (2 * MIB)}}).encode()
        tracemalloc.start()
        answer = await running.http.post("/workflows/plain/run", content=body)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert answer.status_code == 413
        assert most < 8 * MIB
        fitting = json.dumps({"start_event": {"text": "x" * (MIB - 100)}})
        assert (await running.http.post("/workflows/plain/run", content=fitting)).status_code == 200
        assert len((await running.get("/handlers"))["handlers"]) == 1


async def test_a_large_body_in_chunks_of_unknown_number_is_refused(serving: Serving) -> None:
    async def chunks() -> object:
        for _ in range(40):
            yield b"x" * 65536

    async with serving(WorkflowServer(), plain=Plain()) as running:
        answer = await running.http.post("/workflows/plain/run", content=chunks())
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"


async def test_an_endless_body_is_not_read_to_its_end(serving: Serving) -> None:
    async with serving(WorkflowServer(max_body=1000), plain=Plain()) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"POST /workflows/plain/run HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50 * MIB:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
                sent += 4096
        except ConnectionError:
            pass
        assert sent < 50 * MIB
        writer.close()


async def test_a_larger_body_is_taken_where_the_server_says_so(serving: Serving) -> None:
    async with serving(WorkflowServer(max_body=4 * MIB), plain=Plain()) as running:
        body = json.dumps({"start_event": {"text": "x" * (2 * MIB)}})
        assert (await running.http.post("/workflows/plain/run", content=body)).status_code == 200


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"start_event":{"a":['])
async def test_a_deep_body_is_refused_without_a_crash(serving: Serving, opening: str) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        answer = await running.http.post("/workflows/plain/run", content=(opening * 100_000)[:MIB])
        assert answer.status_code == 400
        deep: object = []
        for _ in range(40):
            deep = {"a": [deep]}
        for body in ({"start_event": {"a": deep}}, {"start_event": json.dumps({"a": deep})}, {"kwargs": {"a": deep}}):
            answer = await running.http.post("/workflows/plain/run", json=body)
            assert answer.status_code == 400
            assert "deep" in answer.json()["detail"]
        assert (await running.get("/health"))["status"] == "healthy"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'"text"', b"\xff", b'{"a": NaN}', b'{"a":"\\ud800"}', b"null"]
)
async def test_what_is_no_json_object_is_refused(serving: Serving, body: bytes) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        answer = await running.http.post("/workflows/plain/run", content=body)
        assert answer.status_code == 400
        assert answer.json()["detail"]


async def test_a_body_that_comes_too_slowly_is_given_up(serving: Serving) -> None:
    async with serving(WorkflowServer(body_timeout=0.1), plain=Plain()) as running:
        answer = await raw(
            running, b"POST /workflows/plain/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        )
    assert answer.startswith(b"HTTP/1.1 408")


async def test_slow_loris_connections_that_never_ask_are_closed(serving: Serving) -> None:
    async with serving(WorkflowServer(header_timeout=0.1), plain=Plain()) as running:
        assert await raw(running, b"GET /health HTTP/1.1\r\nHost: local") == b""
        assert await raw(running) == b""
        # Nor may the second request of a connection be one that never ends.
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"healthy")
        await asyncio.sleep(0.2)
        writer.write(b"GET /health HTTP/1.1\r\nHost: local")
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), 30)
        writer.close()


async def test_two_hundred_half_open_connections_hold_nobody_up(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        loris = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(200)]
        try:
            for one in loris:
                one.send(b"POST /workflows/plain/run HTTP/1.1\r\nHost: localhost\r\nX: ")
            assert (await running.get("/health"))["status"] == "healthy"
            assert len(running.server.connections.open_clients()) > 200  # it was not waited until they had gone
        finally:
            for one in loris:
                one.close()


async def test_more_connections_than_there_may_be_are_turned_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = WorkflowServer()
    server.add_workflow("plain", Plain())
    task = asyncio.create_task(server.serve(port=port, uvicorn_config={"limit_concurrency": 3}))

    async def health() -> int:
        async with httpx2.AsyncClient() as http:
            try:
                return (await http.get(f"http://127.0.0.1:{port}/health")).status_code
            except httpx2.TransportError:
                return 0

    async def answers(status: int) -> bool:
        return await health() == status

    await eventually(lambda: answers(200))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    await asyncio.wait_for(eventually(lambda: answers(503)), 30)
    for one in idle:
        one.close()
    await asyncio.wait_for(eventually(lambda: answers(200)), 30)
    task.cancel()
    await asyncio.wait([task])


async def test_there_may_be_ten_thousand_connections_unless_the_configuration_says_otherwise() -> None:
    config = WorkflowServer().uvicorn_config("127.0.0.1", 0)
    assert config.limit_concurrency == 10_000


async def test_ids_of_runs_cannot_be_guessed_but_by_who_knows_the_source(serving: Serving) -> None:
    made: list[str] = []

    class Noted(SeededSource):
        def token(self, length: int = 10) -> str:
            made.append(super().token(length))
            return made[-1]

    with use_source(Noted(7)):
        async with serving(WorkflowServer(), plain=Plain()) as running:
            run_id = await running.start("plain")
            await running.over(run_id)
            forked = (await running.post(f"/handlers/{run_id}/fork", {"at": 1}))["handler_id"]
    assert run_id != forked
    assert {run_id, forked} <= set(made)
    assert min(len(run_id), len(forked)) >= 20


async def test_an_endless_head_is_refused(serving: Serving) -> None:
    async with serving(WorkflowServer(), plain=Plain()) as running:
        answer = await raw(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n")
        assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


class Torrent(Workflow):
    """Streams far more than any socket holds."""

    @step
    async def pour(self, ctx: Context, ev: StartEvent) -> StopEvent:
        text = "x" * 100_000
        for _ in range(200):
            ctx.write_event_to_stream(Unseen(text=text))
        await asyncio.sleep(3600)
        return StopEvent()


async def test_a_reader_that_never_reads_is_dropped_and_costs_no_memory(serving: Serving) -> None:
    server = WorkflowServer(slow_reader_timeout=0.3)
    async with serving(server, torrent=Torrent(timeout=None, store_streamed=False)) as running:
        run_id = await running.start("torrent")
        await eventually(lambda: running.get("/health"))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        readers = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(20)]
        for one in readers:
            one.send(f"GET /events/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        async def all_here() -> bool:
            return len(server.connections.open_clients()) > 20

        async def all_gone() -> bool:
            return len(server.connections.open_clients()) <= 1  # this test's own

        await asyncio.wait_for(eventually(all_here), 30)
        await asyncio.wait_for(eventually(all_gone), 30)
        held = tracemalloc.get_traced_memory()[1] - before  # at the most
        tracemalloc.stop()
        for one in readers:
            one.close()
    # 20 readers of 20 MB each: a queue for each would hold 400 MB.
    assert held < 20 * MIB


async def test_an_answer_that_nobody_takes_is_given_up(serving: Serving) -> None:
    async with serving(WorkflowServer(slow_reader_timeout=0.2, max_body=8 * MIB), plain=Plain()) as running:
        body = {"start_event": {"text": "x" * (7 * MIB)}}
        run_id = (await running.post("/workflows/plain/run", body))["handler_id"]
        with socket.create_connection(("127.0.0.1", running.port)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.send(f"GET /handlers/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

            async def gone() -> bool:
                return len(running.server.connections.open_clients()) <= 1  # this test's own

            async def asked() -> bool:
                return len(running.server.connections.open_clients()) == 2

            await eventually(asked)
            await asyncio.wait_for(eventually(gone), 30)


async def test_readers_of_one_stored_stream_share_it(serving: Serving) -> None:
    async with serving(WorkflowServer(), greet=Greet()) as running:
        run_id = await running.start("greet", name="Ann", times=1_000)
        await running.over(run_id)
        readers = [await asyncio.open_connection("127.0.0.1", running.port, limit=1024) for _ in range(20)]
        tracemalloc.start()
        for _, writer in readers:
            writer.write(f"GET /events/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for reader, _ in readers:
            await reader.readuntil(b"\r\n\r\n")
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for _, writer in readers:
            writer.close()
    # 1,000 events as a reader would hold them alone are some 2 MB.
    assert held < 12 * MIB

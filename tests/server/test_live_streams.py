"""Streams of runs that a worker in another process drives, before their commits."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.stores.postgres import PostgresStore
from batonflow.server import WorkflowServer
from tests.postgres import drop_schema, new_schema, server_address
from tests.promises.crash.outside import Process
from tests.server.conftest import Serving
from tests.server.live_worker import Speaks

pytestmark = [pytest.mark.external("postgresql"), pytest.mark.timeout(60)]

MOST_SECONDS = 0.2


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    address, schema = server_address(), new_schema()
    store = PostgresStore(address, schema)
    yield store
    await store.aclose()
    drop_schema(address, schema)


@pytest.fixture
def worker(store: PostgresStore, tmp_path: Path) -> Iterator[Process]:
    with Process("tests.server.live_worker", tmp_path, server_address(), store.schema) as process:
        yield process


async def begin(worker: Process, store: PostgresStore) -> None:
    """Let a worker begin, and wait until it listens."""
    worker.begin()
    while not await store.workers():  # noqa: ASYNC110 - another process signs
        await asyncio.sleep(0.05)


def server_of(store: PostgresStore) -> WorkflowServer:
    return WorkflowServer(store=store, drive=False)


def speaks() -> Speaks:
    return Speaks(timeout=None, workflow_name="speaks")


async def read(running: Any, run_id: str, **query: Any) -> list[tuple[float, dict[str, Any]]]:
    return [(time.time(), event) async for event in running.reading(run_id, **query)]


def said(events: list[tuple[float, dict[str, Any]]]) -> list[int]:
    return [event["value"]["n"] for _, event in events if event["type"] == "Said"]


async def test_events_arrive_before_the_commit_of_their_step(
    store: PostgresStore, worker: Process, serving: Serving
) -> None:
    await begin(worker, store)
    async with serving(server_of(store), speaks=speaks()) as running:
        body = {"start_event": {"count": 25, "pause": 0.1}, "handler_id": "r"}
        await running.post("/workflows/speaks/run-nowait", body)
        events = await read(running, "r", after_sequence=-1)
    assert said(events) == list(range(25))
    late = [arrived - event["value"]["at"] for arrived, event in events if event["type"] == "Said"]
    # The first ones may come before the reader has asked.
    assert max(late[5:]) < MOST_SECONDS, late
    assert events[-1][1]["type"] == "StopEvent"


async def test_a_second_reader_gets_the_events_before_it(
    store: PostgresStore, worker: Process, serving: Serving
) -> None:
    await begin(worker, store)
    async with serving(server_of(store), speaks=speaks()) as running:
        body = {"start_event": {"count": 20, "pause": 0.1}, "handler_id": "r"}
        await running.post("/workflows/speaks/run-nowait", body)
        first = running.reading("r", after_sequence=-1)
        seen = [await anext(first) for _ in range(5)]
        late = await read(running, "r", after_sequence=-1)
        seen += [event async for event in first]
    assert said(late) == list(range(20))
    assert [event["id"] for event in seen] == [event["id"] for _, event in late]


async def test_long_and_many_events_come_in_order(store: PostgresStore, worker: Process, serving: Serving) -> None:
    await begin(worker, store)
    async with serving(server_of(store), speaks=speaks()) as running:
        body = {"start_event": {"count": 3000, "pause": 0.0003}, "handler_id": "r"}
        await running.post("/workflows/speaks/run-nowait", body)
        assert said(await read(running, "r", after_sequence=-1)) == list(range(3000))


async def test_a_reader_stays_when_another_worker_takes_the_run_over(
    store: PostgresStore, worker: Process, serving: Serving, tmp_path: Path
) -> None:
    await begin(worker, store)
    async with serving(server_of(store), speaks=speaks()) as running:
        body = {"start_event": {"count": 12, "pause": 0.1}, "handler_id": "r"}
        await running.post("/workflows/speaks/run-nowait", body)
        reading = running.reading("r", after_sequence=-1)
        seen: list[dict[str, Any]] = []
        while [event["value"].get("n") for event in seen][-1:] != [4]:
            seen.append(await anext(reading))
        before = len(seen)
        worker.kill()
        with Process("tests.server.live_worker", tmp_path, server_address(), store.schema) as other:
            other.begin()
            seen += [event async for event in reading]
    types = [event["type"] for event in seen]
    begins_again = types.index("StreamResetEvent", before)
    again = [event["value"]["n"] for event in seen[begins_again:] if event["type"] == "Said"]
    assert (again, seen[-1]["type"]) == (list(range(12)), "StopEvent")
    places = [int(event["id"]) for event in seen]
    assert places == sorted(set(places))

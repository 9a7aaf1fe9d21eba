"""A standby server of PostgreSQL: runs can be read there."""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from batonflow.durable.search_protocol import RunQuery
from batonflow.durable.session_protocol import NewTurn
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.worker_protocol import WorkerSign
from batonflow.workflow_core.errors import StoreError
from tests.durable.runs import TTL, begin, bodies, known, new_run, write
from tests.postgres import OwnServer, connected

pytestmark = pytest.mark.external("postgresql")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    server = OwnServer()
    yield server
    server.close()


async def test_runs_are_read_and_followed(server: OwnServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="batonflow")
    store = PostgresStore(server.address)
    epoch = await begin(store, ttl=120)
    await write(store, epoch, 0, [b"1"], ttl=120)
    turn = NewTurn("ann", "Flow", 1, None, "d", b"hello")
    await store.open_turn(turn, new_run("ann:1"), store.owner, TTL)
    for name in ("new", "old"):
        await store.sign(WorkerSign(name, store.owner, "web1", 7, ["Flow"], None, 20))
    with connected(server.address) as connection:
        connection.execute("UPDATE batonflow.workers SET seen_at = 0 WHERE name = 'old'")
    reader: Any = PostgresStore(await asyncio.to_thread(server.standby))
    end = time.monotonic() + 20
    while not await has_both(reader):
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    info = await known(reader)
    assert (info.status, info.owner, info.owner_alive) == ("running", store.owner, True)
    assert info.is_driven
    assert await bodies(reader) == [b"1"]
    assert (await reader.load("a")).info.seq == 1
    assert {one.run_id for one in await reader.list_runs()} == {"a", "ann:1"}
    assert await reader.search(RunQuery(workflow="Flow")) == []  # no entry was written yet
    assert (await reader.read_session("ann")).turns == 1
    assert [one.number for one in await reader.read_turns("ann")] == [1]
    assert [one.name for one in await reader.list_sessions("Flow")] == ["ann"]
    assert [(one.sign.name, one.is_alive) for one in await reader.workers()] == [("new", True), ("old", False)]

    following = reader.subscribe("a", 1)
    coming = asyncio.create_task(anext(following))
    await asyncio.sleep(2.5)
    await write(store, epoch, 1, [b"2"])
    assert (await asyncio.wait_for(coming, 10)).body == b"2"
    await following.aclose()
    assert sum("can only be read" in record.getMessage() for record in caplog.records) == 1

    with pytest.raises(StoreError, match="can only be read, perhaps a standby: give the address of the primary"):
        await reader.create(new_run("b"), None, TTL)
    await reader.aclose()
    await store.aclose()


async def has_both(reader: Any) -> bool:
    try:
        return len(await reader.list_runs()) == 2
    except StoreError as error:
        if "can only be read" not in str(error):  # the tables are not there yet
            raise
        return False

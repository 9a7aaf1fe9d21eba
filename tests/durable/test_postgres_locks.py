"""Locks of other sessions and lost ones, and the threads of a store, which none of them may hold up."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batonflow.durable.store_protocol import Busy
from batonflow.durable.stores import postgres_threads
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, write
from tests.postgres import connected


@pytest.fixture
async def others(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores("postgres", tmp_path)
    yield stores
    await stores.aclose()


@contextmanager
def locked(stores: Stores, *run_ids: str) -> Generator[None]:
    """Hold the rows of runs in a transaction of another session."""
    with connected(stores.address) as connection, connection.transaction():
        statement = f"SELECT FROM {stores.schema}.runs WHERE run_id = ANY (%s) FOR UPDATE"
        connection.execute(statement.encode(), (list(run_ids),))
        yield


class TestLockedRows:
    async def test_the_leases_and_commits_of_other_runs_go_on(self, others: Stores) -> None:
        store, other = others.open(), others.open()
        stuck, ttl = [f"stuck{number}" for number in range(3)], 1.5
        epochs = {run_id: await begin(store, run_id, ttl=ttl) for run_id in (*stuck, "held", "free")}
        for run_id, epoch in epochs.items():
            store.hold(run_id, epoch)
        await other.list_runs()
        with locked(others, *stuck):
            waiting = [asyncio.create_task(write(store, epochs[one], 0, run_id=one, ttl=ttl)) for one in stuck]
            for seq in range(6):
                begun = time.monotonic()
                assert await write(store, epochs["free"], seq, run_id="free", ttl=ttl) == "committed"
                assert time.monotonic() - begun < 1.5
                await asyncio.sleep(0.5)
                for run_id in ("held", "free"):
                    assert isinstance(await other.claim(run_id, other.owner, TTL), Busy)
            assert not any(one.done() for one in waiting)
        assert await asyncio.gather(*waiting) == ["committed"] * 3

    async def test_one_that_stays_locked_is_an_error(self, others: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres_threads, "OUTAGE_SECONDS", 0.5)
        store = others.open()
        epoch = await begin(store)
        error = pytest.raises(StoreError, match="another session has locked what it needs: end that session")
        with locked(others, "a"), error:
            await write(store, epoch, 0)
        assert await write(store, epoch, 0) == "committed"

    async def test_a_renewal_locks_runs_in_the_order_of_their_ids(self, others: Stores) -> None:
        store = others.open()
        for run_id in "cba":
            await begin(store, run_id)
        with locked(others, "b"):
            renewal = asyncio.create_task(store.renew(store.owner, [(run_id, 1) for run_id in "cba"], TTL))
            for _ in range(5):
                await asyncio.sleep(0.05)
                with connected(others.address) as connection:
                    statement = f"SELECT FROM {others.schema}.runs WHERE run_id = 'c' FOR UPDATE NOWAIT"
                    connection.execute(statement.encode())
            assert not renewal.done()
        assert await renewal == []

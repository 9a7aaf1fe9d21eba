"""Locks of other sessions and lost ones, and the threads of a store, which none of them may hold up."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.store_protocol import Busy, Claimed
from batonflow.durable.stores import postgres_threads
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, write
from tests.postgres import Proxy, connected

pytestmark = pytest.mark.external("postgresql")


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

    async def test_a_run_that_is_claimed_while_a_renewal_waits_is_lost(self, others: Stores) -> None:
        store = others.open()
        for run_id in "ab":
            await begin(store, run_id)
        with connected(others.address) as connection, connection.transaction():
            claim = f"UPDATE {others.schema}.runs SET owner = 'another', epoch = epoch + 1 WHERE run_id = 'b'"
            connection.execute(claim.encode())
            renewal = asyncio.create_task(store.renew(store.owner, [("a", 1), ("b", 1)], TTL))
            await asyncio.sleep(0.1)
        assert await renewal == ["b"]


@pytest.fixture
def proxy(others: Stores) -> Iterator[Proxy]:
    proxy = Proxy(others.address)
    yield proxy
    proxy.close()


class TestLostSessions:
    """The server does not notice that a session is lost, and keeps the lock of the owner."""

    async def test_one_that_is_lost_while_the_owner_is_registered(self, others: Stores, proxy: Proxy) -> None:
        await others.open().list_runs()
        store = PostgresStore(others.address, others.schema, listen_dsn=proxy.address)
        others.opened.append(store)
        proxy.cut(rb"INSERT INTO [^ ]*owners")
        assert await asyncio.wait_for(begin(store), 10) == 1
        assert proxy.was_cut.is_set()

    async def test_one_that_is_lost_before_it_listens_is_replaced_at_once(self, others: Stores, proxy: Proxy) -> None:
        other = others.open()
        store = PostgresStore(others.address, others.schema, listen_dsn=proxy.address)
        others.opened.append(store)
        epoch = await begin(store)
        proxy.cut(rb"LISTEN")
        end_listener(others, store)
        assert await asyncio.to_thread(proxy.was_cut.wait, 10)
        await begin(other, "b", ttl=0.01)
        assert isinstance(await asyncio.wait_for(store.claim("b", f"{store.owner}-b", TTL), 5), Claimed)
        assert await write(store, epoch, 0) == "committed"
        heard = asyncio.create_task(store.changed((await store.changed(-1)).number))
        await asyncio.sleep(0.2)
        await other.append("a", "key", b"x")
        await asyncio.wait_for(heard, 3)


def end_listener(stores: Stores, store: Any) -> None:
    """End the session that holds the lock of an owner."""
    with connected(stores.address) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND "
            f" ((classid::bigint << 32) | objid::bigint) = {stores.schema}.lock_of(%s)".encode(),
            (store.owner,),
        ).fetchall()
    assert ended == [(True,)]


class TestThreads:
    async def test_a_store_that_has_only_listened_leaves_no_thread(self, others: Stores) -> None:
        before = set(threading.enumerate())
        store = others.open()
        waiting = asyncio.create_task(store.changed(0))
        await asyncio.sleep(0.3)
        assert {thread.name for thread in set(threading.enumerate()) - before} >= {"batonflow-store-listener"}
        await store.aclose()
        assert set(threading.enumerate()) - before == set()
        with suppress(StoreError):  # it is closed
            await waiting

    async def test_one_with_many_open_files_hears_of_others(self, others: Stores) -> None:
        resource = pytest.importorskip("resource")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            pytest.skip("too few files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        files: list[int] = []
        try:
            while not files or files[-1] < 1100:
                files.append(os.open(os.devnull, os.O_RDONLY))
            store, other = others.open(), others.open()
            await begin(other)
            heard = asyncio.create_task(store.changed((await store.changed(-1)).number))
            await asyncio.sleep(0.3)
            await other.append("a", "key", b"x")
            await asyncio.wait_for(heard, 3)
            await store.aclose()
            await other.aclose()
        finally:
            for file in files:
                os.close(file)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""Answers of PostgreSQL that are lost: the operation was done, and is done again over another connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.session_protocol import NewTurn, SessionChange, TurnOpened, TurnRefused
from batonflow.durable.store_protocol import Appended, Created, Existing
from batonflow.durable.stores.postgres import PostgresStore
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, bodies, known, new_run, take, write
from tests.postgres import Proxy, connected

pytestmark = pytest.mark.external("postgresql")


@pytest.fixture
async def others(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores("postgres", tmp_path)
    yield stores
    await stores.aclose()


@pytest.fixture
def proxy(others: Stores) -> Iterator[Proxy]:
    proxy = Proxy(others.address)
    yield proxy
    proxy.close()


@pytest.fixture
async def store(others: Stores, proxy: Proxy) -> Any:
    store = PostgresStore(proxy.address, others.schema)
    others.opened.append(store)
    await store.list_runs()
    return store


@pytest.fixture
async def other(others: Stores) -> Any:
    return others.open()


async def lost(proxy: Proxy, statement: bytes, operation: Any) -> Any:
    """Carry out an operation whose answer is lost."""
    proxy.cut(statement, delivers=True)
    result = await operation
    assert await asyncio.to_thread(proxy.was_cut.wait, 5)  # another thread tells it
    return result


async def is_heard(store: Any, proxy: Proxy, statement: bytes, operation: Any, by: Any) -> Any:
    """Carry out an operation whose answer is lost; another store hears of it soon."""
    waiting = asyncio.create_task(by.changed((await by.changed(-1)).number))
    await asyncio.sleep(0.3)  # until it listens
    waiting.cancel()
    waiting = asyncio.create_task(by.changed((await by.changed(-1)).number))
    result = await lost(proxy, statement, operation)
    await asyncio.wait_for(waiting, 2)
    return result


async def test_a_run_is_created_once_and_belongs_to_its_creator(store: Any, proxy: Proxy) -> None:
    made = await lost(proxy, b"create_run", store.create(new_run(first=b"1"), store.owner, TTL))
    assert made == Created(epoch=1)
    assert isinstance(await store.create(new_run(first=b"1"), store.owner, TTL), Existing)
    assert await bodies(store) == [b"1"]


async def test_a_turn_of_a_session_begins_once(store: Any, proxy: Proxy) -> None:
    turn = NewTurn("ann", "Flow", 1, "request", "d", b"hello")
    opened = await lost(proxy, b"admit_turn", store.open_turn(turn, new_run("ann:1"), store.owner, TTL))
    assert opened == TurnOpened(epoch=1)
    assert isinstance(await store.open_turn(turn, new_run("ann:1"), store.owner, TTL), TurnRefused)


async def test_a_session_is_changed_once(store: Any, proxy: Proxy) -> None:
    for number in (1, 2):
        run = new_run(f"ann:{number}")
        turn = NewTurn("ann", "Flow", number, None, "d", b"hello")
        opened = await store.open_turn(turn, run, store.owner, TTL)
        await write(store, opened.epoch, 0, run_id=run.run_id, status="completed", result=b"{}", turn=b"done")
    undo = SessionChange("ann", "Flow", last=2, turns=2, undo_after=1)
    assert await lost(proxy, b"change_session", store.change_session(undo))
    assert not await store.change_session(undo)
    assert [turn.number for turn in await store.read_turns("ann")] == [1]
    delete = SessionChange("ann", "Flow", last=2, turns=1, delete=True)
    await lost(proxy, b"ann", store.change_session(delete))
    assert await store.read_session("ann") is None
    assert await store.list_runs() == []


async def test_commits_are_written_once(store: Any, other: Any, proxy: Proxy) -> None:
    epoch = await begin(store)
    reading = other.subscribe("a")
    first = asyncio.create_task(anext(reading))
    await asyncio.sleep(0.3)
    assert await lost(proxy, b"INSERT INTO [^ ]*commits", write(store, epoch, 0, [b"1"])) in ("already", "committed")
    assert (await asyncio.wait_for(first, 5)).body == b"1"
    assert await write(store, epoch, 1, [b"2"]) == "committed"
    assert await bodies(store) == [b"1", b"2"]
    await reading.aclose()


class TestLeaving:
    async def test_a_parked_run_is_left(self, store: Any, proxy: Proxy) -> None:
        epoch = await begin(store)
        assert await lost(proxy, b"unread = 0", store.park("a", store.owner, epoch, 0, None))
        assert (await known(store)).status == "waiting"

    async def test_a_released_run_is_left(self, store: Any, proxy: Proxy) -> None:
        epoch = await begin(store)
        assert await lost(proxy, b"wake_no = wake_no", store.release("a", store.owner, epoch))
        assert (await known(store)).status == "ready"

    async def test_also_one_that_others_have_changed_since(
        self, store: Any, other: Any, others: Stores, proxy: Proxy
    ) -> None:
        for run_id, leave in (
            ("a", lambda epoch: store.park("a", store.owner, epoch, 0, None)),
            ("b", lambda epoch: store.release("b", store.owner, epoch)),
        ):
            epoch = await begin(store, run_id)
            proxy.was_cut.clear()
            with proxy.shut():
                leaving = asyncio.create_task(lost(proxy, b"owner = NULL", leave(epoch)))
                await asyncio.to_thread(proxy.was_cut.wait, 5)
                await asyncio.sleep(0.1)
                await other.append(run_id, "key", b"x")
                if run_id == "b":
                    await take(other, run_id)
            assert await leaving
        assert not await store.park("b", store.owner, 1, 0, None)

    async def test_one_with_unread_input_is_not_left(self, store: Any, proxy: Proxy) -> None:
        epoch = await begin(store)
        await store.append("a", "key", b"x")
        assert not await lost(proxy, b"unread = 0", store.park("a", store.owner, epoch, 0, None))


async def test_an_item_is_appended_once_and_heard_of(store: Any, other: Any, proxy: Proxy) -> None:
    await begin(other)
    answer = await is_heard(store, proxy, rb"\.append", store.append("a", "key", b"x"), other)
    assert isinstance(answer, Appended)
    assert (await known(store)).unread == 1


async def test_due_runs_are_claimed_once_and_returned(store: Any, proxy: Proxy) -> None:
    for number in range(4):
        await store.create(new_run(f"r{number}"), None, TTL)
    claimed = await lost(proxy, b"claim_due", store.claim_due(store.owner, TTL, 3))
    assert [(one.run_id, one.epoch, one.workflow) for one in claimed] == [(f"r{n}", 1, "Flow") for n in range(3)]
    assert [one.run_id for one in await store.claim_due(store.owner, TTL, 3)] == ["r3"]


async def test_a_run_is_forked_once_and_heard_of(store: Any, other: Any, proxy: Proxy) -> None:
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"])
    assert await is_heard(store, proxy, rb"\.fork", store.fork("a", 1, "b"), other) == "forked"
    assert await store.fork("a", 1, "b") == "exists"


async def test_a_held_run_is_released_once_and_heard_of(store: Any, other: Any, others: Stores, proxy: Proxy) -> None:
    await store.create(new_run(), None, TTL)
    with connected(others.address) as connection:
        connection.execute(f"UPDATE {others.schema}.runs SET held = 'tired', attempts = 5".encode())
    assert await is_heard(store, proxy, b"held = NULL", store.release_held("a"), other)
    assert not await store.release_held("a")
    assert (await known(store)).attempts == 0


class TestDeletion:
    async def test_a_run_is_deleted(self, store: Any, proxy: Proxy) -> None:
        await store.release("a", store.owner, await begin(store))
        assert await lost(proxy, rb"\.delete\(", store.delete("a"))
        assert await store.info("a") is None
        assert not await store.delete("a")

    async def test_one_that_was_made_anew_meanwhile_stays(
        self, store: Any, other: Any, others: Stores, proxy: Proxy
    ) -> None:
        await store.release("a", store.owner, await begin(store))
        with proxy.shut():
            deleting = asyncio.create_task(lost(proxy, rb"\.delete\(", store.delete("a", force=True)))
            await asyncio.to_thread(proxy.was_cut.wait, 5)
            await asyncio.sleep(0.1)
            await begin(other)
        assert await deleting
        assert await store.info("a") is not None

    async def test_an_unknown_run_is_not(self, store: Any, proxy: Proxy) -> None:
        assert not await lost(proxy, rb"runs", store.delete("a"))

"""Claims, limits and turns of a PostgresStore beyond the contract of all stores."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.search_protocol import RunQuery
from batonflow.durable.session_protocol import NewTurn, TurnOpened, TurnRefused
from batonflow.durable.store_protocol import Busy, Claimed, RunStore, Serves
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, known, new_run, write
from tests.postgres import connected

pytestmark = pytest.mark.external("postgresql")


@pytest.fixture
async def others(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores("postgres", tmp_path)
    yield stores
    await stores.aclose()


async def first_due(store: RunStore) -> list[str]:
    return [claimed.run_id for claimed in await store.claim_due(store.owner, TTL, 1)]


class TestSweep:
    async def test_ready_runs_keep_their_order(self, others: Stores) -> None:
        store = others.open()
        for moment, run_id in ((0, "oldest"), (1, "older"), (50, "young")):
            others.put_clock(wall=moment)
            await store.create(new_run(run_id), None, TTL)
        others.put_clock(wall=70)
        assert await store.sweep(1, grace=60) == ["oldest"]
        assert await store.sweep(1, grace=60) == ["older"]
        assert await store.sweep(1, grace=60) == []
        assert await first_due(store) == ["oldest"]
        others.put_clock(wall=131)
        assert await store.sweep(10, grace=60) == ["older", "young"]
        assert await first_due(store) == ["older"]
        others.put_clock(wall=60)  # the clock is set back
        assert await store.sweep(10, grace=5) == ["young"]

    async def test_a_due_timer_keeps_its_place(self, others: Stores) -> None:
        store = others.open()
        others.put_clock()
        epoch = await begin(store, "timed")
        await store.park("timed", store.owner, epoch, 0, (await known(store, "timed")).created_at + 10)
        others.put_clock(wall=20)
        await store.create(new_run("young"), None, TTL)
        others.put_clock(wall=30)
        assert await store.sweep(10, grace=60) == ["timed"]
        assert await first_due(store) == ["timed"]


class TestLimits:
    @pytest.fixture
    def calls(self, others: Stores) -> Any:
        store: Any = others.open()
        assert isinstance(store, PostgresStore)
        return {
            "claim_due": lambda limit: store.claim_due(store.owner, TTL, limit),
            "sweep": lambda limit: store.sweep(limit, 0.0),
            "read": lambda limit: store.read("a", limit=limit),
            "list_runs": lambda limit: store.list_runs(limit=limit),
            "search": lambda limit: store.search(RunQuery(), limit=limit),
            "outdated": store.outdated,
            "count_outdated": store.count_outdated,
            "retain": lambda limit: store.retain(seconds=0.0, limit=limit),
            "read_turns": lambda limit: store.read_turns("ann", limit=limit),
            "list_sessions": lambda limit: store.list_sessions("Flow", limit=limit),
        }

    @pytest.mark.parametrize("name", ["claim_due", "sweep", "read", "list_runs", "search", "outdated", "count_outdated",
                                      "retain", "read_turns", "list_sessions"])  # fmt: skip
    async def test_large_ones_are_no_limits_and_negative_ones_are_refused(self, calls: Any, name: str) -> None:
        for limit in (2**31 - 1, 2**31, 2**63, 2**80):
            assert await calls[name](limit) in ([], 0)
        for limit in (-1, -(2**80), 1.5):
            with pytest.raises(StoreError, match=r"limit=.*: give a whole number, 0 or more"):
                await calls[name](limit)

    async def test_positions_may_be_large(self, others: Stores) -> None:
        store = others.open()
        epoch = await begin(store)
        await write(store, epoch, 0)
        assert await store.read("a", after=2**80) == []
        assert len(await store.read("a", after=-(2**80), limit=2**80)) == 1


class TestTurns:
    async def test_a_turn_whose_run_exists_is_refused(self, others: Stores) -> None:
        store: Any = others.open()
        other = others.open()
        await begin(other, "elsewhere")
        turn = NewTurn("ann", "Flow", 1, "request", "d", b"hello")
        refused = await store.open_turn(turn, new_run("elsewhere"), store.owner, TTL)
        assert isinstance(refused, TurnRefused)
        assert (refused.session.turns, refused.session.open_turn) == (0, None)
        assert await write(other, 1, 0, run_id="elsewhere") == "committed"
        assert isinstance(await store.open_turn(turn, new_run("ann:1"), store.owner, TTL), TurnOpened)


def execute(stores: Stores, statement: str) -> None:
    with connected(stores.address) as connection:
        connection.execute(statement.format(stores.schema).encode())


class TestAfterAStartOfTheServer:
    @pytest.fixture
    async def store(self, others: Stores) -> RunStore:
        """A store with a run whose owner has not come back since the start, and whose lease is over."""
        store = others.open()
        await begin(store)
        execute(others, "UPDATE {0}.runs SET owner = 'away', lease_until = {0}.steady() - 1")
        return store

    def set_young(self, stores: Stores, *, is_young: bool) -> None:
        execute(
            stores,
            f"CREATE OR REPLACE FUNCTION {{0}}.is_young() RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT {is_young}'",
        )

    async def test_an_owner_that_may_come_back_keeps_its_runs(self, others: Stores, store: RunStore) -> None:
        self.set_young(others, is_young=True)
        assert await store.claim_due(store.owner, TTL, 10) == []
        assert await store.sweep(10, grace=0) == []
        assert isinstance(await store.claim("a", store.owner, TTL), Busy)

    async def test_one_that_comes_back_after_the_end_of_its_lease_keeps_them(self, others: Stores) -> None:
        """A lease has ended before its owner registers again, and is not renewed by the owner itself yet."""
        store, other = others.open(), others.open()
        store.hold("a", await begin(store))
        execute(others, "UPDATE {0}.runs SET lease_until = {0}.steady() - 1")
        execute(others, "DELETE FROM {0}.owners")
        lock = "locktype = 'advisory' AND granted AND ((classid::bigint << 32) | objid::bigint)"
        ends = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {lock} = {{0}}.lock_of('{store.owner}')"
        execute(others, ends)
        with connected(others.address) as connection:
            registered = f"SELECT FROM {others.schema}.owners WHERE owner = '{store.owner}'".encode()
            while not connection.execute(registered).rowcount:  # noqa: ASYNC110 - a thread registers it
                await asyncio.sleep(0.001)
        assert await other.claim_due(other.owner, TTL, 10) == []
        assert isinstance(await other.claim("a", other.owner, TTL), Busy)

    async def test_it_loses_them_later(self, others: Stores, store: RunStore) -> None:
        self.set_young(others, is_young=False)
        assert await first_due(store) == ["a"]

    async def test_it_loses_one_that_is_claimed_by_its_id_later(self, others: Stores, store: RunStore) -> None:
        self.set_young(others, is_young=False)
        assert isinstance(await store.claim("a", store.owner, TTL), Claimed)


async def test_a_claim_passes_over_the_ready_runs_of_other_workflows_in_the_index(others: Stores) -> None:
    store = others.open()
    await asyncio.gather(*(store.create(new_run(f"r{number}"), None, TTL) for number in range(500)))
    await store.create(new_run("one", "Another"), None, TTL)
    execute(others, "ANALYZE {0}.runs")
    for serves, found in (('[["No", null, null]]', 0), ('[["Another", null, null], ["Another", ["1"], null]]', 1)):
        with connected(others.address) as connection, connection.transaction():
            connection.execute("SET plan_cache_mode = force_generic_plan")
            claim = f"SELECT run_id FROM {others.schema}.claim_due('o', 15, 10, '{serves}', NULL, '{{}}', 1)"
            assert connection.execute(claim.encode()).rowcount == found
            pages = f"SELECT pg_stat_get_xact_blocks_fetched('{others.schema}.runs'::regclass)"
            [(read,)] = connection.execute(pages.encode()).fetchall()
            assert read < 20, "the table has about 40"


async def test_a_claim_waits_for_another_one_of_a_workflow_with_a_bound(others: Stores) -> None:
    store, other = others.open(), others.open()
    for run_id in "ab":
        await store.create(new_run(run_id), None, TTL)
    await begin(store, "own", "Another")  # takes the lock of the owner
    with connected(others.address) as connection, connection.transaction():
        serves, arguments = '[["Flow", null, 1]]', "NULL, '{}', 1"
        claim = f"SELECT run_id FROM {others.schema}.claim_due('{store.owner}', 15, 9, '{serves}', {arguments})"
        assert connection.execute(claim.encode()).fetchall() == [("a",)]
        waiting = asyncio.create_task(other.claim_due(other.owner, TTL, 9, [Serves("Flow", most=1)]))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    assert await waiting == []

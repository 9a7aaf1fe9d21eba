"""Claims, limits and turns of a PostgresStore beyond the contract of all stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batonflow.durable.store_protocol import RunStore
from tests.durable.conftest import Stores
from tests.durable.runs import TTL, begin, known, new_run


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

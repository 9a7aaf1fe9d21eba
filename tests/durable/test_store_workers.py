"""Workers in a store: their signs of life, and how they are asked to drain."""

from typing import Any

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.worker_signs import KEPT_SECONDS
from batonflow.durable.worker_protocol import WorkerSign, WorkerStore
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock, Stores
from tests.durable.runs import begin


def sign_of(store: RunStore, name: str = "one", **fields: Any) -> WorkerSign:
    return WorkerSign(
        **{"name": name, "owner": store.owner, "host": "web1", "pid": 7, "workflows": ["shop@2"], "queues": None,
           "slots": 20, **fields}
    )  # fmt: skip


@pytest.fixture
def kept(stores: Stores) -> Any:
    store: Any = stores.open()
    assert isinstance(store, WorkerStore)
    return store


async def test_workers_are_listed_with_their_signs_and_runs(kept: Any, clock: Clock) -> None:
    assert await kept.workers() == []
    assert await kept.sign(sign_of(kept)) is False
    clock.wall += 10
    assert await kept.sign(sign_of(kept, "two", queues=["gpu"])) is False
    assert await kept.sign(sign_of(kept, slots=5)) is False
    await begin(kept)
    one, two = await kept.workers()
    assert (one.sign, two.sign) == (sign_of(kept, slots=5), sign_of(kept, "two", queues=["gpu"]))
    assert (one.seen_at - one.since, two.seen_at - two.since) == (pytest.approx(10, abs=2), pytest.approx(0, abs=2))
    assert (one.runs, one.is_alive, one.is_draining) == (1, True, False)


async def test_a_worker_hears_with_its_next_sign_that_it_shall_drain(kept: Any, stores: Stores) -> None:
    other: Any = stores.open()
    await kept.sign(sign_of(kept))
    assert await other.drain("nobody") is False
    assert await other.drain("one") is True
    assert [worker.is_draining for worker in await kept.workers()] == [True]
    assert await kept.sign(sign_of(kept)) is True
    await kept.sign_off("one")
    await kept.sign_off("one")
    assert await other.workers() == []


async def test_a_worker_that_has_ended_is_known_for_a_day(kept: Any, stores: Stores, clock: Clock) -> None:
    gone: Any = stores.open()
    await gone.sign(sign_of(gone, "gone"))
    await gone.aclose()
    await kept.sign(sign_of(kept))
    assert [(worker.sign.name, worker.is_alive) for worker in await kept.workers()] == [("gone", False), ("one", True)]
    clock.wall += KEPT_SECONDS + 1
    await kept.sign(sign_of(kept))
    assert [worker.sign.name for worker in await kept.workers()] == ["one"]


async def test_a_strange_owner_is_refused(kept: Any) -> None:
    with pytest.raises(StoreError):
        await kept.sign(sign_of(kept, owner=""))

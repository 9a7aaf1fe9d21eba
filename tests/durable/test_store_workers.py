"""Workers in a store: their signs of life, and how they are asked to drain."""

import time
from typing import Any

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.worker_signs import KEPT_SECONDS
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign, WorkerStore
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock, Stores
from tests.durable.runs import TTL, begin, new_run


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


async def test_the_unfinished_runs_are_counted_by_queue_workflow_and_version(kept: Any, clock: Clock) -> None:
    assert await kept.queues() == []
    for number, fields in enumerate(
        [{}, {"version": "2"}, {"version": "2"}, {"queue": "gpu"}, {"queue": "gpu", "not_before": time.time() + 60}]
    ):
        await kept.create(new_run(f"ready-{number}", "shop", **fields), None, TTL)
        clock.wall += 1
    await begin(kept, "running", "shop", version="2")
    epoch = await begin(kept, "waiting", "bill\0")
    assert await kept.park("waiting", kept.owner, epoch, 0, None)
    await begin(kept, "over", "shop")
    await kept.delete("over", force=True)
    found = await kept.queues()
    assert [
        (one.queue, one.workflow, one.version, one.ready, one.later, one.running, one.waiting) for one in found
    ] == [
        ("default", "bill\0", None, 0, 0, 0, 1),
        ("default", "shop", None, 1, 0, 0, 0),
        ("default", "shop", "2", 2, 0, 1, 0),
        ("gpu", "shop", None, 1, 1, 0, 0),
    ]
    assert [one.oldest and round(one.oldest) for one in found] == [None, 5, 4, 2]
    clock.wall += 60
    assert [(one.ready, one.later) for one in await kept.queues() if one.queue == "gpu"] == [(2, 0)]


async def test_the_runs_of_an_ended_owner_count_as_ready(kept: Any, stores: Stores, clock: Clock) -> None:
    gone: Any = stores.open()
    await begin(gone, "left", "shop")
    await begin(kept, "driven", "shop")
    await gone.aclose()
    clock.wall += 7
    [found] = await kept.queues()
    assert (found.ready, found.running, round(found.oldest)) == (1, 1, 7)
    assert found.is_left([])
    assert [one.run_id for one in await kept.claim_due(kept.owner, TTL, 10)] == ["left"]
    assert [(one.ready, one.running, one.oldest) for one in await kept.queues()] == [(0, 2, None)]


async def test_a_claim_tells_for_how_long_the_run_was_ready(kept: Any, clock: Clock) -> None:
    await kept.create(new_run("now"), None, TTL)
    await kept.create(new_run("later", not_before=time.time() + 30), None, TTL)
    clock.wall += 40
    claimed = await kept.claim_due(kept.owner, TTL, 10)
    assert {one.run_id: round(one.delay) for one in claimed} == {"now": 40, "later": 10}
    again = await kept.claim("now", kept.owner, TTL)
    assert again.delay == 0


@pytest.mark.parametrize(
    ("names", "queues", "is_taken"),
    [
        (["shop"], None, True),
        (["bill", "shop@2"], ["default"], True),
        (["shop@1", "shop@"], None, False),
        (["shop@2"], ["gpu"], False),
        (["shop@3"], None, False),
    ],
)
def test_a_worker_takes_up_the_versions_and_queues_of_its_sign(
    names: list[str], queues: list[str] | None, is_taken: bool
) -> None:
    waiting = QueueInfo("default", "shop", "2", ready=1, later=0, running=0, waiting=0, held=0, oldest=1.0)
    sign = WorkerSign("one", "owner", "web1", 7, names, queues, 20)
    now = time.time()
    assert waiting.count_workers([WorkerInfo(sign, now, now, 0, is_alive=True, is_draining=False)]) == is_taken
    for seen_at, is_alive, is_draining in ((now, False, False), (now, True, True), (now - 60, True, False)):
        worker = WorkerInfo(sign, now, seen_at, 0, is_alive=is_alive, is_draining=is_draining)
        assert waiting.count_workers([worker]) == 0

"""Who drives a run: one owner at a time, under an epoch that grows, for as long as its lease lasts."""

import asyncio
import math
import time
from typing import Any

import pytest

from batonflow.durable.store_protocol import (
    MOST_ATTEMPTS,
    Busy,
    Claimed,
    Created,
    Ended,
    Existing,
    NewRun,
    NotDue,
    RunStore,
    Serves,
)
from batonflow.durable.stores.attempts import SUSPECT_ATTEMPTS
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock, Stores
from tests.durable.runs import TTL, begin, known, new_run, take, write


async def test_a_new_run_belongs_to_its_creator(store: RunStore):
    created = await store.create(new_run("order/17:a.b-c_d", version="2", shape="s"), store.owner, TTL)
    assert created == Created(epoch=1)
    info = await known(store, "order/17:a.b-c_d")
    assert (info.workflow, info.version, info.digest, info.shape) == ("Flow", "2", "input", "s")
    assert (info.status, info.owner, info.owner_alive, info.epoch, info.seq) == ("running", store.owner, True, 1, 0)
    assert 0 < info.lease_left <= TTL
    assert info.claimed_at == pytest.approx(info.created_at)
    assert (info.result, info.forked_from, info.wake_at, info.unread) == (None, None, None, 0)


async def test_a_run_can_be_created_with_its_first_commit(store: RunStore):
    epoch = await begin(store, first=b"start")
    assert (await known(store)).seq == 1
    assert [(commit.seq, commit.body) for commit in await store.read("a")] == [(1, b"start")]
    assert await write(store, epoch, 1) == "committed"


async def test_a_run_is_created_once(store: RunStore, other: RunStore):
    await begin(store)
    existing = await other.create(new_run(workflow="Another"), other.owner, TTL)
    assert isinstance(existing, Existing)
    assert (existing.info.workflow, existing.info.owner, existing.info.epoch) == ("Flow", store.owner, 1)


@pytest.mark.parametrize("run_id", ["", "a b", "ä", "a'; DROP TABLE runs; --", "x" * 201, "a\0b", "a\n", "\udcff"])
async def test_what_is_no_run_id_is_refused_by_name(store: RunStore, run_id: str):
    for attempt in (
        store.create(new_run(run_id), store.owner, TTL),
        store.claim(run_id, store.owner, TTL),
        store.append(run_id, "key", b""),
        store.fork("a", 0, run_id),
        store.info(run_id),
        store.load(run_id),
        store.delete(run_id),
    ):
        with pytest.raises(StoreError) as raised:
            await attempt
        assert repr(run_id) in str(raised.value)


async def test_a_run_id_may_have_200_characters(store: RunStore):
    await begin(store, "x" * 200)
    assert (await known(store, "x" * 200)).run_id == "x" * 200


async def test_other_names_of_a_run_may_be_any_text(store: RunStore):
    text = 'Robert\'); DROP TABLE "runs"; -- \0 ☃'
    await store.create(NewRun("a", text, text, version=text, shape=text), store.owner, TTL)
    info = await known(store)
    assert (info.workflow, info.digest, info.version, info.shape) == (text, text, text, text)
    assert [each.run_id for each in await store.list_runs(workflow=text)] == ["a"]
    with pytest.raises(StoreError, match="The workflow of run 'b' is not valid text"):
        await store.create(NewRun("b", "\udcff", "d"), store.owner, TTL)


async def test_an_unknown_run_cannot_be_claimed(store: RunStore):
    assert await store.claim("a", store.owner, TTL) is None
    assert await store.info("a") is None
    assert await store.load("a") is None


async def test_a_driven_run_is_busy_for_others(store: RunStore, other: RunStore):
    await begin(store)
    busy = await other.claim("a", other.owner, TTL)
    assert isinstance(busy, Busy)
    assert busy.owner == store.owner
    assert busy.since == (await known(store)).claimed_at
    assert 0 < busy.seconds_left <= TTL
    assert (await known(store)).epoch == 1


async def test_its_owner_may_claim_it_again_and_fences_itself(store: RunStore):
    first = await begin(store)
    again = await take(store)
    assert again.epoch == first + 1
    assert await write(store, first, 0) == "fenced"
    assert await write(store, again.epoch, 0) == "committed"


async def test_a_claim_tells_where_the_run_stands(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"], stream_seq=64)
    assert await store.release("a", store.owner, epoch)
    assert await take(other) == Claimed("a", epoch=2, seq=2, stream_seq=64, workflow="Flow")


async def test_the_lease_of_a_dead_owner_does_not_count(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.aclose()
    assert not (await known(other)).owner_alive
    assert (await take(other)).epoch == epoch + 1


async def test_a_living_owner_whose_lease_has_run_out_is_replaced_and_fenced(
    store: RunStore, other: RunStore, clock: Clock
):
    epoch = await begin(store)
    clock.monotonic += TTL - 1
    assert isinstance(await other.claim("a", other.owner, TTL), Busy)
    clock.monotonic += 2
    info = await known(other)
    assert info.owner_alive
    assert info.lease_left == 0
    claimed = await take(other)
    assert await write(store, epoch, 0, [b"late"]) == "fenced"
    assert await write(other, claimed.epoch, 0, [b"mine"]) == "committed"
    assert [commit.body for commit in await store.read("a")] == [b"mine"]


async def test_leases_do_not_follow_the_wall_clock(store: RunStore, other: RunStore, clock: Clock):
    epoch = await begin(store)
    for jump in (86400.0, -86400.0):
        clock.wall = jump
        assert isinstance(await other.claim("a", other.owner, TTL), Busy)
        assert await other.claim_due(other.owner, TTL, 10) == []
        assert await other.sweep(10, grace=60) == []
    assert await write(store, epoch, 0) == "committed"


async def test_a_commit_extends_the_lease(store: RunStore, other: RunStore, clock: Clock):
    epoch = await begin(store)
    clock.monotonic += TTL - 1
    await write(store, epoch, 0, ttl=TTL)
    clock.monotonic += TTL - 1
    assert isinstance(await other.claim("a", other.owner, TTL), Busy)


async def test_renewing_extends_the_leases_of_what_is_driven_and_tells_what_is_lost(
    store: RunStore, other: RunStore, clock: Clock
):
    for run_id in ("a", "b", "c"):
        await begin(store, run_id)
    clock.monotonic += TTL + 1
    taken = await take(other, "b")
    # "c" is not in the list, as nothing drives it any more: its lease is not kept up by its neighbours'.
    assert await store.renew(store.owner, [("a", 1), ("b", 1), ("gone", 1)], TTL) == ["b", "gone"]
    assert (await known(store, "a")).lease_left > 0
    assert (await known(store, "b")).epoch == taken.epoch
    assert (await known(store, "c")).lease_left == 0
    assert [claimed.run_id for claimed in await other.claim_due(other.owner, TTL, 10)] == ["c"]
    assert await store.renew(store.owner, [("a", 7)], TTL) == ["a"]


async def test_a_held_lease_does_not_run_out(store: RunStore, other: RunStore):
    for run_id in ("held", "left", "other-epoch"):
        await begin(store, run_id, ttl=0.6)
    store.hold("held", 1)
    store.hold("left", 1)
    store.let_go("left")
    store.hold("other-epoch", 7)
    await asyncio.sleep(1.2)
    assert isinstance(await other.claim("held", other.owner, TTL), Busy)
    assert isinstance(await other.claim("left", other.owner, TTL), Claimed)
    assert isinstance(await other.claim("other-epoch", other.owner, TTL), Claimed)
    assert await other.sweep(10, grace=60) == []
    store.let_go("held")
    await asyncio.sleep(0.8)
    assert isinstance(await other.claim("held", other.owner, TTL), Claimed)


async def test_the_lease_of_a_dead_owner_is_not_held(store: RunStore, other: RunStore):
    await begin(store)
    store.hold("a", 1)
    await store.aclose()
    assert isinstance(await other.claim("a", other.owner, TTL), Claimed)


async def test_a_waiting_run_can_be_claimed_unless_only_with_something_to_do(store: RunStore, other: RunStore):
    epoch = await begin(store)
    assert await store.park("a", store.owner, epoch, 0, wake_at=None)
    info = await known(store)
    assert (info.status, info.owner, info.lease_left, info.wake_at) == ("waiting", None, 0, None)
    assert await other.claim("a", other.owner, TTL, only_due=True) == NotDue(None)
    assert isinstance(await other.claim("a", other.owner, TTL), Claimed)


async def test_a_timer_makes_a_waiting_run_due_by_the_wall_clock(store: RunStore, other: RunStore, clock: Clock):
    epoch = await begin(store)
    wake_at = (await known(store)).created_at + 60
    assert await store.park("a", store.owner, epoch, 0, wake_at)
    assert await other.claim("a", other.owner, TTL, only_due=True) == NotDue(wake_at)
    assert await other.claim_due(other.owner, TTL, 10) == []
    assert await other.sweep(10, grace=60) == []
    clock.wall += 61
    claimed = await other.claim("a", other.owner, TTL, only_due=True)
    assert isinstance(claimed, Claimed)
    assert (await known(other)).wake_at == wake_at


async def test_parking_needs_owner_epoch_and_number(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0)
    assert not await other.park("a", other.owner, epoch, 1, None)
    assert not await store.park("a", store.owner, epoch + 1, 1, None)
    assert not await store.park("a", store.owner, epoch, 0, None)
    assert not await store.park("gone", store.owner, epoch, 1, None)
    assert await store.park("a", store.owner, epoch, 1, None)
    assert not await store.park("a", store.owner, epoch, 1, None)
    assert await write(store, epoch, 1) == "fenced"


async def test_a_released_run_is_taken_over_at_once(store: RunStore, other: RunStore):
    epoch = await begin(store)
    assert not await other.release("a", other.owner, epoch)
    assert not await store.release("a", store.owner, epoch + 1)
    assert await store.release("a", store.owner, epoch)
    assert (await known(store)).status == "ready"
    assert [claimed.run_id for claimed in await other.claim_due(other.owner, TTL, 10)] == ["a"]
    assert await write(store, epoch, 0) == "fenced"
    assert not await store.release("a", store.owner, epoch)


async def test_a_run_that_is_over_cannot_be_claimed(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, status="completed", result=b"42")
    ended = await other.claim("a", other.owner, TTL)
    assert isinstance(ended, Ended)
    assert (ended.info.status, ended.info.result, ended.info.owner) == ("completed", b"42", None)
    assert await other.claim_due(other.owner, TTL, 10) == []


async def test_runs_to_drive_come_left_behind_first_then_the_longest_ready_or_due(stores: Stores, clock: Clock):
    dead, store, living = stores.open(), stores.open(), stores.open()
    for number, run_id in enumerate(("ready-2", "timer-1", "ready-3")):
        clock.wall = 10 * number
        epoch = await begin(store, run_id)
        if run_id.startswith("timer"):
            await store.park(run_id, store.owner, epoch, 0, (await known(store, run_id)).created_at - 60)
        else:
            await store.release(run_id, store.owner, epoch)
    clock.wall = 30
    await begin(dead, "dead-0")
    await begin(living, "driven")
    epoch = await begin(store, "waiting")
    await store.park("waiting", store.owner, epoch, 0, None)
    await dead.aclose()

    due = [claimed.run_id for claimed in await store.claim_due(store.owner, TTL, 3)]
    due += [claimed.run_id for claimed in await store.claim_due(store.owner, TTL, 3)]
    assert due == ["dead-0", "timer-1", "ready-2", "ready-3"]


async def test_runs_to_drive_can_be_those_of_some_workflows(store: RunStore):
    for run_id, workflow in (("a", "One"), ("b", "Two"), ("c", "Three")):
        await store.release(run_id, store.owner, await begin(store, run_id, workflow))
    assert await store.claim_due(store.owner, TTL, 10, []) == []
    claimed = await store.claim_due(store.owner, TTL, 10, [Serves("One"), Serves("Three"), Serves("x' OR '1'='1")])
    assert [(each.run_id, each.workflow) for each in claimed] == [("a", "One"), ("c", "Three")]


async def test_runs_to_drive_can_be_those_of_some_versions(store: RunStore, clock: Clock):
    for run_id, version in (("old", "1"), ("new", "3"), ("first", None)):
        await store.release(run_id, store.owner, await begin(store, run_id, version=version))
    await begin(store, "left", version="3")
    clock.monotonic += TTL + 1

    async def due(*versions: str | None) -> list[str]:
        claimed = await store.claim_due(store.owner, TTL, 10, [Serves("Other"), Serves("Flow", versions)])
        for each in claimed:
            await store.release(each.run_id, store.owner, each.epoch)
        return [each.run_id for each in claimed]

    assert await due("2") == []
    assert await due("1", "2") == ["old"]
    assert await due(None, "2") == ["first"]
    assert sorted(await due("3")) == ["left", "new"]
    assert len(await store.claim_due(store.owner, TTL, 10, [Serves("Flow")])) == 4


class TestBoundsOfWorkflows:
    async def enqueued(self, store: RunStore, count: int, workflow: str = "Flow") -> None:
        for number in range(count):
            await store.create(new_run(f"{workflow}-{number}", workflow), None, TTL)

    async def claimed(self, store: RunStore, *serves: Serves, limit: int = 10) -> list[str]:
        return [each.run_id for each in await store.claim_due(store.owner, TTL, limit, serves)]

    async def test_nothing_is_claimed_beyond_the_bound_of_a_workflow(self, store: RunStore, other: RunStore) -> None:
        await self.enqueued(store, 6)
        bounded = Serves("Flow", most=3)
        assert await self.claimed(store, bounded, limit=2) == ["Flow-0", "Flow-1"]
        assert await self.claimed(other, bounded) == ["Flow-2"]
        assert await self.claimed(store, bounded) == []
        assert await self.claimed(other, Serves("Flow", ["1"], most=3)) == []
        assert await self.claimed(other, Serves("Flow", most=4)) == ["Flow-3"]

    async def test_runs_that_are_over_wait_or_were_released_leave_their_places(
        self, store: RunStore, other: RunStore
    ) -> None:
        await self.enqueued(store, 6)
        bounded = [Serves("Flow", most=3)]
        first, second, third = await store.claim_due(store.owner, TTL, 10, bounded)
        assert await write(store, first.epoch, 0, run_id=first.run_id, status="completed") == "committed"
        assert await self.claimed(other, *bounded) == ["Flow-3"]
        assert await store.park(second.run_id, store.owner, second.epoch, second.seq, None)
        assert await self.claimed(other, *bounded) == ["Flow-4"]
        assert await store.release(third.run_id, store.owner, third.epoch)
        assert await self.claimed(other, *bounded) == ["Flow-5"]
        assert await self.claimed(other, *bounded) == []

    async def test_dead_owners_do_not_hold_places(self, stores: Stores, clock: Clock) -> None:
        store, dead = stores.open(), stores.open()
        await self.enqueued(store, 4)
        bounded = Serves("Flow", most=2)
        assert len(await self.claimed(dead, bounded)) == 2
        clock.monotonic += TTL + 1
        assert await self.claimed(store, bounded) == ["Flow-0", "Flow-1"]
        assert await self.claimed(store, bounded) == []

    async def test_a_run_that_was_claimed_by_its_id_counts(self, store: RunStore, other: RunStore) -> None:
        await self.enqueued(store, 3)
        assert isinstance(await other.claim("Flow-2", other.owner, TTL), Claimed)
        assert await self.claimed(store, Serves("Flow", most=2)) == ["Flow-0"]
        assert isinstance(await other.claim("Flow-1", other.owner, TTL), Claimed)

    async def test_a_bound_does_not_concern_other_workflows(self, store: RunStore) -> None:
        await self.enqueued(store, 3)
        await self.enqueued(store, 3, "Other")
        assert await self.claimed(store, Serves("Flow", most=1), Serves("Other")) == ["Flow-0", *(
            f"Other-{number}" for number in range(3))]  # fmt: skip

    async def test_claims_at_the_same_time_keep_to_the_bound(self, stores: Stores) -> None:
        opened = [stores.open() for _ in range(4)]
        await self.enqueued(opened[0], 20)
        found = await asyncio.gather(*(self.claimed(one, Serves("Flow", most=5)) for one in opened * 3))
        assert len([run_id for each in found for run_id in each]) == 5


async def test_runs_to_drive_leave_out_the_ones_to_skip(store: RunStore, clock: Clock):
    await store.release("ready", store.owner, await begin(store, "ready"))
    await begin(store, "left")
    clock.monotonic += TTL + 1
    assert await store.claim_due(store.owner, TTL, 10, skip=["ready", "left", "gone"]) == []
    assert (await known(store, "left")).epoch == 1
    assert [each.run_id for each in await store.claim_due(store.owner, TTL, 10, skip={"ready"})] == ["left"]


async def test_a_run_can_be_created_for_whoever_takes_it_up(store: RunStore, other: RunStore):
    created = await store.create(new_run(first=b"start"), None, TTL)
    assert created == Created(epoch=0)
    info = await known(store)
    assert (info.status, info.owner, info.claimed_at, info.epoch, info.seq) == ("ready", None, None, 0, 1)
    assert (info.queue, info.priority, info.attempts, info.held) == ("default", 0, 0, "")
    assert isinstance(await other.create(new_run(), None, TTL), Existing)
    (claimed,) = await other.claim_due(other.owner, TTL, 10)
    assert claimed == Claimed("a", epoch=1, seq=1, stream_seq=0, workflow="Flow")
    assert await write(other, 1, 1) == "committed"


async def test_a_deleted_runs_epochs_are_not_used_again_by_one_without_an_owner(store: RunStore):
    epoch = await begin(store)
    await store.delete("a", force=True)
    await store.create(new_run(), None, TTL)
    assert (await take(store)).epoch > epoch


async def test_a_new_run_without_an_owner_is_a_hint_for_all(stores: Stores):
    store, other = stores.open(), stores.open()
    seen = (await other.changed(-1)).number
    await store.create(new_run(), None, TTL)
    assert (await asyncio.wait_for(other.changed(seen), 5)).number != seen


async def test_ready_runs_come_by_priority_then_the_longest(store: RunStore, clock: Clock):
    for number, (run_id, priority) in enumerate((("low", -5), ("old", 0), ("new", 0), ("high", 7))):
        clock.wall = number
        await store.create(new_run(run_id, priority=priority), None, TTL)
    clock.wall = 10
    claimed = [each.run_id for _ in range(2) for each in await store.claim_due(store.owner, TTL, 2)]
    assert claimed == ["high", "old", "new", "low"]


async def test_runs_to_drive_can_be_those_of_some_queues(store: RunStore):
    for run_id, queue in (("a", "default"), ("b", "gpu"), ("c", "mail")):
        await store.create(new_run(run_id, queue=queue), None, TTL)
    assert (await known(store, "b")).queue == "gpu"
    claimed = await store.claim_due(store.owner, TTL, 10, queues=["default", "gpu"])
    assert [each.run_id for each in claimed] == ["a", "b"]
    await store.fork("c", 0, "d")
    assert [each.run_id for each in await store.claim_due(store.owner, TTL, 10, queues=["mail"])] == ["c", "d"]


async def test_a_run_is_not_taken_up_before_its_time(store: RunStore, clock: Clock):
    await store.create(new_run(not_before=time.time() + 60), None, TTL)
    for _ in range(2):
        assert await store.claim_due(store.owner, TTL, 10) == []
        assert await store.sweep(10, grace=60) == []
        clock.wall -= 86400
    clock.wall = 61
    assert [each.run_id for each in await store.claim_due(store.owner, TTL, 10)] == ["a"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"queue": ""}, "queue"), ({"queue": "a b"}, "queue"), ({"queue": "\udcff"}, "queue"),
        ({"priority": 1.5}, "priority"), ({"priority": True}, "priority"), ({"priority": 2**40}, "priority"),
        ({"not_before": "soon"}, "not_before"), ({"not_before": math.nan}, "not_before"),
    ],
)  # fmt: skip
async def test_a_run_with_a_wrong_queue_priority_or_time_is_refused(store: RunStore, wrong: dict[str, Any], said: str):
    with pytest.raises(StoreError, match=said):
        await store.create(new_run(**wrong), None, TTL)
    assert await store.info("a") is None


class TestPoison:
    """A run that ends the process of each owner must not keep other runs from being driven."""

    async def test_its_owners_are_counted_until_a_commit(self, stores: Stores):
        first, second, third = stores.open(), stores.open(), stores.open()
        await begin(first)
        await first.aclose()
        await take(second)
        assert (await known(third)).attempts == 1
        await second.aclose()
        epoch = (await take(third)).epoch
        assert (await known(third)).attempts == 2
        assert await write(third, epoch, 0) == "committed"
        assert (await known(third)).attempts == 0

    async def test_a_clean_release_does_not_count(self, store: RunStore, other: RunStore):
        await store.release("a", store.owner, await begin(store))
        await other.release("a", other.owner, (await take(other)).epoch)
        assert (await known(store)).attempts == 0

    @pytest.mark.parametrize("way", ["claim_due", "sweep"])
    async def test_it_waits_longer_after_each_owner_and_is_then_held(self, stores: Stores, clock: Clock, way: str):
        watching = stores.open()
        await watching.create(new_run(), None, TTL)
        pauses: list[float] = []
        owners: list[str] = []
        while not (await known(watching)).held:
            clock.monotonic += TTL + 1
            began = clock.wall
            worker = stores.open()
            while True:
                if way == "sweep":
                    await watching.sweep(10, grace=600)
                if await worker.claim_due(worker.owner, TTL, 10):
                    break
                if (await known(watching)).held:
                    break
                clock.wall += 0.5
            pauses.append(clock.wall - began)
            owners.append(worker.owner)
            await worker.aclose()
        info = await known(watching)
        assert [pauses[at] for at in (0, 1, 5)] == [0, 0, 0]
        assert all(pause <= waited <= 2 * pause + 0.5 for pause, waited in zip((1, 2, 4), pauses[2:5], strict=True))
        assert (info.status, info.attempts) == ("ready", MOST_ATTEMPTS)
        assert info.held == f"5 attempts ended without a commit, the last one of {owners[-2]}"
        clock.wall += 86400
        assert await watching.claim_due(watching.owner, TTL, 10) == []
        assert await watching.sweep(10, grace=60) == []

    async def test_it_can_be_released(self, stores: Stores, clock: Clock):
        store = await held(stores, clock)
        assert await store.release_held("a")
        info = await known(store)
        assert (info.status, info.held, info.attempts) == ("ready", "", 0)
        assert not await store.release_held("a")
        assert not await store.release_held("gone")
        assert [each.run_id for each in await store.claim_due(store.owner, TTL, 10)] == ["a"]

    async def test_a_claim_by_its_id_takes_it_up(self, stores: Stores, clock: Clock):
        store = await held(stores, clock)
        claimed = await take(store)
        assert (await known(store)).held == ""
        assert await write(store, claimed.epoch, 0) == "committed"

    @pytest.mark.parametrize("way", ["ready", "waiting", "set back"])
    async def test_an_owner_drives_one_suspect_at_a_time_beside_others(self, stores: Stores, clock: Clock, way: str):
        store, other = stores.open(), stores.open()
        for run_id in "abc":
            await store.create(new_run(run_id, priority=1), None, TTL)
        await lose_owners(stores, clock, SUSPECT_ATTEMPTS)
        if way != "ready":
            for run_id in "abc":
                claimed, due = await take(store, run_id), (await known(store, run_id)).created_at
                if way == "waiting":
                    await store.park(run_id, store.owner, claimed.epoch, claimed.seq, due)
                else:
                    await store.release(run_id, store.owner, claimed.epoch)
        for run_id in "de":
            await store.create(new_run(run_id), None, TTL)
        clock.wall = clock.wall - 86400 if way == "set back" else clock.wall + 60

        async def claim(claiming: RunStore, most: int) -> list[str]:
            return [each.run_id for each in await claiming.claim_due(claiming.owner, TTL, most)]

        first, *beside = await claim(store, 2)
        assert (first in "abc", beside) == (True, ["d"])
        assert await claim(store, 10) == ["e"]
        (second,) = await claim(other, 10)
        epoch = (await known(store, first)).epoch
        assert await write(store, epoch, 0, run_id=first) == "committed"
        (third,) = await claim(store, 10)
        assert {first, second, third} == set("abc")
        assert isinstance(await store.claim(third, store.owner, TTL), Claimed)

    async def test_it_is_held_and_the_runs_that_were_beside_it_end(self, stores: Stores, clock: Clock):
        watching, owners = stores.open(), 0
        good = [f"good-{number}" for number in range(4)]
        for run_id in ("poison", *good):
            await watching.create(new_run(run_id), None, TTL)
        while any(not info.held and not info.is_over for info in await watching.list_runs()):
            clock.wall += 600
            worker = stores.open()
            claimed = {each.run_id: each for each in await worker.claim_due(worker.owner, TTL, 10)}
            owners += "poison" in claimed
            for run_id, each in claimed.items():
                if "poison" not in claimed:
                    await write(worker, each.epoch, 0, run_id=run_id, status="completed")
            await worker.aclose()
        assert owners == MOST_ATTEMPTS
        assert {info.run_id for info in await watching.list_runs(status="completed")} == set(good)

    async def test_others_are_driven_meanwhile(self, stores: Stores, clock: Clock):
        store = await held(stores, clock)
        await store.create(new_run("b"), None, TTL)
        assert [each.run_id for each in await store.claim_due(store.owner, TTL, 10)] == ["b"]


async def lose_owners(stores: Stores, clock: Clock, times: int) -> None:
    """Let owners of all ready runs end."""
    for _ in range(times):
        clock.wall += 60
        worker = stores.open()
        await worker.claim_due(worker.owner, TTL, 10)
        await worker.aclose()
    await (sweeping := stores.open()).sweep(10, grace=86400)
    await sweeping.aclose()


async def held(stores: Stores, clock: Clock) -> RunStore:
    """Return a store with a run that is held."""
    store = stores.open()
    await store.create(new_run(), None, TTL)
    while not (await known(store)).held:
        clock.wall += 60
        worker = stores.open()
        await worker.claim_due(worker.owner, TTL, 10)
        await worker.aclose()
    return store


async def test_two_callers_never_get_the_same_run(stores: Stores):
    workers = [stores.open() for _ in range(3)]
    for number in range(30):
        await workers[0].release(f"r{number}", workers[0].owner, await begin(workers[0], f"r{number}"))

    async def work(store: RunStore) -> list[str]:
        taken: list[str] = []
        while claimed := await store.claim_due(store.owner, TTL, 4):
            taken += [each.run_id for each in claimed]
            await asyncio.sleep(0)
        return taken

    taken = await asyncio.gather(*(work(store) for store in workers for _ in range(2)))
    assert sorted(run_id for each in taken for run_id in each) == sorted(f"r{number}" for number in range(30))


async def test_a_sweep_readies_what_is_left_behind_or_due_and_leaves_the_epoch_to_the_claim(
    stores: Stores, clock: Clock
):
    dead, store = stores.open(), stores.open()
    await begin(dead, "dead")
    await begin(store, "driven")
    await begin(store, "expired")
    epoch = await begin(store, "timed")
    await store.park("timed", store.owner, epoch, 0, (await known(store, "timed")).created_at + 5)
    epoch = await begin(store, "waiting")
    await store.park("waiting", store.owner, epoch, 0, None)
    await dead.aclose()
    clock.monotonic += TTL + 1
    clock.wall += 6
    await store.renew(store.owner, [("driven", 1)], TTL)
    assert sorted(await store.sweep(10, grace=60)) == ["dead", "expired", "timed"]
    info = await known(store, "expired")
    assert (info.status, info.owner, info.epoch) == ("ready", None, 1)
    assert await write(store, 1, 0, run_id="expired") == "fenced"
    assert (await take(store, "expired")).epoch == 2


async def test_a_lost_bell_is_rung_again_after_the_grace(store: RunStore, clock: Clock):
    await store.release("a", store.owner, await begin(store))
    assert await store.sweep(10, grace=60) == []
    clock.wall += 61
    assert await store.sweep(10, grace=60) == ["a"]
    assert await store.sweep(10, grace=60) == []
    clock.wall -= 86400
    assert await store.sweep(10, grace=60) == ["a"]


async def test_a_bell_that_rings_twice_finds_the_run_taken(store: RunStore, other: RunStore):
    await store.release("a", store.owner, await begin(store))
    assert isinstance(await store.claim("a", store.owner, TTL, only_due=True), Claimed)
    assert isinstance(await other.claim("a", other.owner, TTL, only_due=True), Busy)


async def test_a_sweep_takes_as_many_as_asked(store: RunStore, clock: Clock):
    for number in range(5):
        await begin(store, f"r{number}")
    clock.monotonic += TTL + 1
    assert len(await store.sweep(3, grace=60)) == 3
    assert len(await store.sweep(3, grace=60)) == 2


async def test_owners_of_other_names_live_as_long_as_the_store(store: RunStore, other: RunStore):
    created = await store.create(new_run(), "worker-1", TTL)
    assert isinstance(created, Created)
    assert isinstance(await other.claim("a", other.owner, TTL), Busy)
    assert isinstance(await store.claim("a", "worker-2", TTL), Busy)
    await store.aclose()
    assert (await take(other)).epoch == 2


async def test_a_name_that_is_no_owners_is_refused(store: RunStore):
    for owner in ("", "../x", ".hidden", "a/b", "x" * 101):
        with pytest.raises(StoreError, match="is not an owner"):
            await store.create(new_run(), owner, TTL)
    assert await store.info("a") is None

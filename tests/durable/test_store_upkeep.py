"""Branching off, deleting and compacting runs."""

import math
from typing import Any

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock
from tests.durable.runs import TTL, begin, bodies, entry, known, take, write


async def grown(store: RunStore) -> int:
    """A run with six commits and snapshots after the second and the fourth; returns its epoch."""
    epoch = await begin(store, version="7", shape="s")
    await write(store, epoch, 0, [b"1", b"2"], snapshot=b"after 2")
    await write(store, epoch, 2, [b"3", b"4"], snapshot=b"after 4", stream_seq=9)
    await write(store, epoch, 4, [b"5", b"6"])
    return epoch


async def test_a_fork_shares_what_was_committed_and_nothing_else(store: RunStore, other: RunStore):
    epoch = await grown(store)
    await store.append("a", "k", b"")
    await write(store, epoch, 6, [b"7"], status="completed", result=b"r")
    source = await known(store)
    assert await other.fork("a", 5, "branch") == "forked"
    info = await known(store, "branch")
    assert (info.workflow, info.version, info.digest, info.shape) == ("Flow", "7", "input", "s")
    assert (info.status, info.owner, info.seq, info.stream_seq) == ("ready", None, 5, 9)
    assert (info.unread, info.result, info.wake_at, info.forked_from) == (0, None, None, ("a", 5))
    assert await bodies(store, "branch") == [b"1", b"2", b"3", b"4", b"5"]
    assert await known(store) == source


async def test_a_fork_goes_its_own_way(store: RunStore, other: RunStore):
    epoch = await grown(store)
    await store.fork("a", 5, "branch")
    claimed = await take(other, "branch")
    assert claimed.seq == 5
    loaded = await other.load("branch")
    assert loaded is not None
    assert loaded.snapshot == (4, b"after 4")
    assert [commit.body for commit in loaded.commits] == [b"5"]
    assert await write(other, claimed.epoch, 5, [b"other 6"], "branch", snapshot=b"s") == "committed"
    assert await write(store, epoch, 6, [b"7"]) == "committed"
    assert await bodies(store, "branch", after=4) == [b"5", b"other 6"]
    assert await bodies(store, "a", after=4) == [b"5", b"6", b"7"]


async def test_a_fork_may_have_commits_of_its_own_from_the_beginning(store: RunStore, other: RunStore):
    await grown(store)
    assert await store.fork("a", 3, "branch", [b"edit", b"more"]) == "forked"
    assert await bodies(other, "branch") == [b"1", b"2", b"3", b"edit", b"more"]
    info = await other.info("branch")
    assert info is not None
    assert (info.seq, info.forked_from) == (5, ("a", 3))
    claimed = await take(other, "branch")
    assert await write(other, claimed.epoch, 5, [b"on"], "branch") == "committed"
    assert await bodies(store, "a", after=3) == [b"4", b"5", b"6"]


@pytest.mark.parametrize(("at", "snapshot"), [(0, None), (1, None), (2, 2), (3, 2), (4, 4), (6, 4)])
async def test_a_fork_can_be_loaded_wherever_it_begins(store: RunStore, at: int, snapshot: int | None):
    await grown(store)
    assert await store.fork("a", at, "branch") == "forked"
    loaded = await store.load("branch")
    assert loaded is not None
    assert (loaded.snapshot and loaded.snapshot[0]) == snapshot
    assert [commit.seq for commit in loaded.commits] == list(range((snapshot or 0) + 1, at + 1))


async def test_a_fork_of_a_fork_keeps_its_records_readable(store: RunStore):
    await grown(store)
    await store.fork("a", 5, "a/b")
    await store.fork("a/b", 3, "a/b/c")
    await store.delete("a", force=True)
    assert await bodies(store, "a/b/c") == [b"1", b"2", b"3"]
    assert (await known(store, "a/b/c")).forked_from == ("a/b", 3)


async def test_a_fork_of_what_is_not_there_is_told(store: RunStore):
    await grown(store)
    await begin(store, "taken")
    assert await store.fork("gone", 1, "branch") == "unknown"
    assert await store.fork("a", 7, "branch") == "unknown"
    assert await store.fork("a", -1, "branch") == "unknown"
    assert await store.fork("a", 1, "taken") == "exists"
    assert await store.fork("a", 1, "a") == "exists"
    assert await store.info("branch") is None


async def test_compacting_drops_what_the_newest_snapshot_makes_unnecessary(store: RunStore):
    epoch = await grown(store)
    assert await store.compact("a") == 4
    assert await store.compact("a") == 0
    loaded = await store.load("a")
    assert loaded is not None
    assert loaded.snapshot == (4, b"after 4")
    assert await bodies(store) == [b"5", b"6"]
    assert (await known(store)).seq == 6
    assert await write(store, epoch, 6, [b"7"]) == "committed"
    assert await write(store, epoch, 4, [b"5", b"6"]) == "already"
    assert await write(store, epoch, 2, [b"3", b"4"]) == "already"


async def test_compacting_without_a_snapshot_or_a_run_drops_nothing(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"])
    assert await store.compact("a") == 0
    assert await store.compact("gone") == 0
    assert await bodies(store) == [b"1"]


async def test_what_was_compacted_cannot_be_loaded_or_forked(store: RunStore):
    epoch = await grown(store)
    await store.compact("a")
    await write(store, epoch, 6, [b"7", b"8", b"9"])
    for at in (1, 3):
        assert await store.fork("a", at, "branch") == "compacted"
        with pytest.raises(StoreError, match=f"Commit {at} of run 'a' is not kept any more: commits up to 4"):
            await store.load("a", at)
    for at in (0, 4, 5):
        loaded = await store.load("a", at)
        assert loaded is not None
        assert [commit.seq for commit in loaded.commits] == ([5] if at == 5 else [])
        assert await store.fork("a", at, f"branch-{at}") == "forked"
        assert await store.load(f"branch-{at}") is not None
        assert await bodies(store, f"branch-{at}") == ([b"5"] if at == 5 else [])


async def test_a_driven_run_is_deleted_by_force_only(store: RunStore, other: RunStore, clock: Clock):
    epoch = await begin(store)
    with pytest.raises(StoreError, match=f"Run 'a' is being driven by {store.owner}"):
        await other.delete("a")
    assert await other.delete("a", force=True)
    assert await store.info("a") is None
    assert await write(store, epoch, 0) == "fenced"
    assert not await other.delete("a")
    await begin(store, "left")
    clock.monotonic += TTL + 1
    assert await other.delete("left")


async def test_a_run_leaves_nothing_behind(store: RunStore):
    epoch = await grown(store)
    await store.append("a", "k", b"")
    await write(store, epoch, 6, status="completed", result=b"r")
    assert await store.delete("a")
    epoch = await begin(store)
    info = await known(store)
    assert (info.seq, info.unread, info.result, info.stream_seq) == (0, 0, None, 0)
    loaded = await store.load("a")
    assert loaded is not None
    assert (loaded.snapshot, loaded.commits, loaded.inbox) == (None, [], [])
    assert (await store.append("a", "k", b"")).new  # type: ignore[union-attr]


async def test_a_stale_owner_cannot_write_into_a_run_that_was_deleted_and_created_again(
    store: RunStore, other: RunStore
):
    first = await begin(store)
    again = (await take(store)).epoch
    await store.delete("a", force=True)
    newest = await begin(store)
    assert newest > again > first
    for stale in (first, again):
        assert await write(store, stale, 0) == "fenced"
        assert not await store.park("a", store.owner, stale, 0, None)
        assert not await store.release("a", store.owner, stale)
        assert await store.renew(store.owner, [("a", stale)], TTL) == ["a"]
    assert await write(store, newest, 0) == "committed"


async def test_a_fork_under_the_name_of_a_deleted_run_fences_its_owner_as_well(store: RunStore):
    await grown(store)
    stale = await begin(store, "b")
    await store.delete("b", force=True)
    assert await store.fork("a", 0, "b") == "forked"
    claimed = await take(store, "b")
    assert claimed.epoch > stale
    assert await write(store, stale, 0, run_id="b") == "fenced"


async def test_runs_that_ended_long_ago_are_deleted(store: RunStore, clock: Clock):
    for number in range(50):
        clock.wall = float(number)
        await begin(store, f"r{number}")
        if number != 3:
            await write(store, 1, 0, run_id=f"r{number}", status="completed")
    clock.wall = 100.0
    for seconds in (-5, math.nan, True, "x", None):
        with pytest.raises(ValueError, match=f"from 0 on, not {seconds!r}"):
            await store.retain(seconds=seconds)
    assert await store.retain(seconds=200) == []
    assert await store.retain(seconds=70.5, limit=2) == ["r0", "r1"]
    assert await store.retain(seconds=70.5) == ["r2", *(f"r{number}" for number in range(4, 30))]
    left = [info.run_id for info in await store.list_runs()]
    assert left == ["r3", *(f"r{number}" for number in range(30, 50))]


@pytest.mark.parametrize("wrong", [-1, "x", None])
async def test_a_bound_of_what_is_retired_is_a_whole_number(store: RunStore, wrong: Any):
    with pytest.raises(StoreError, match=f"limit={wrong!r}: give a whole number, 0 or more"):
        await store.retain(seconds=1, limit=wrong)


async def test_a_batch_goes_on_over_a_run_that_is_deleted_meanwhile(store: RunStore):
    await begin(store, "a")
    await begin(store, "b")
    await store.delete("a", force=True)
    verdicts = await store.commit([entry(store, 1, 0, [b"x"], "a"), entry(store, 1, 0, [b"x"], "b")])
    assert [verdict.outcome for verdict in verdicts] == ["fenced", "committed"]

"""Reading: runs as they were after any commit, lists page by page, and subscribers who miss nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batonflow.durable.store_protocol import Loaded, RunStore, StoredCommit
from batonflow.durable.stores import memory as in_memory
from batonflow.durable.stores import postgres, sqlite
from batonflow.durable.stores.hints import Hints
from batonflow.workflow_core.errors import StoreError
from tests.durable.runs import TTL, begin, entry, known, new_run, take, write


async def loaded(store: RunStore, at: int | None = None, run_id: str = "a") -> Loaded:
    found = await store.load(run_id, at)
    assert found is not None
    return found


async def test_a_new_run_is_loaded_empty(store: RunStore):
    await begin(store)
    found = await loaded(store)
    assert (found.snapshot, found.commits, found.inbox) == (None, [], [])
    assert found.info == await known(store) or found.info.lease_left > 0


async def test_a_run_is_loaded_from_its_newest_snapshot(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"], snapshot=b"after 2")
    await write(store, epoch, 2, [b"3"])
    await write(store, epoch, 3, [b"4", b"5"], snapshot=b"after 5")
    await write(store, epoch, 5, [b"6", b"7"])
    found = await loaded(store)
    assert found.snapshot == (5, b"after 5")
    assert [(commit.seq, commit.body) for commit in found.commits] == [(6, b"6"), (7, b"7")]


@pytest.mark.parametrize(
    ("at", "snapshot", "commits"),
    [
        (0, None, []),
        (1, None, [1]),
        (2, (2, b"after 2"), []),
        (4, (2, b"after 2"), [3, 4]),
        (5, (5, b"after 5"), []),
        (7, (5, b"after 5"), [6, 7]),
    ],
)
async def test_a_run_is_loaded_as_it_was_after_an_earlier_commit(
    store: RunStore, at: int, snapshot: tuple[int, bytes] | None, commits: list[int]
):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"], snapshot=b"after 2")
    await write(store, epoch, 2, [b"3", b"4", b"5"], snapshot=b"after 5")
    await write(store, epoch, 5, [b"6", b"7"])
    found = await loaded(store, at)
    assert found.snapshot == snapshot
    assert [commit.seq for commit in found.commits] == commits
    assert found.info.seq == 7


async def test_the_inbox_is_loaded_as_it_was_too(store: RunStore):
    epoch = await begin(store)
    await store.append("a", "early", b"")
    await write(store, epoch, 0, [b"1"])
    await store.append("a", "later", b"")
    await write(store, epoch, 1, [b"2"], consumed=[1])
    await write(store, epoch, 2, [b"3"], consumed=[2])
    keys = {at: [item.key for item in (await loaded(store, at)).inbox] for at in range(4)}
    assert keys == {0: ["early"], 1: ["early", "later"], 2: ["later"], 3: []}


@pytest.mark.parametrize("at", [-1, 2, 10**12])
async def test_a_commit_that_there_is_not_cannot_be_loaded(store: RunStore, at: int):
    await begin(store, first=b"1")
    with pytest.raises(StoreError, match=f"Run 'a' has no commit {at}: its commits are numbered from 1 to 1"):
        await store.load("a", at)


@pytest.mark.parametrize("at", ["x", 1.0, True])
async def test_a_commit_is_loaded_by_its_number(store: RunStore, at: Any):
    await begin(store, first=b"1")
    with pytest.raises(StoreError, match=f"at={at!r}: give the number of a commit, or leave it out"):
        await store.load("a", at)


@pytest.mark.parametrize("wrong", [5, None, b"a"])
async def test_the_id_of_a_run_is_text(store: RunStore, wrong: Any):
    for ask in (store.info, store.load, store.read, store.delete, store.compact):
        with pytest.raises(StoreError, match=f"{wrong!r} is not a run id: use 1 to 200 characters"):
            await ask(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"limit": -1}, "limit=-1: give a whole number, 0 or more"),
        ({"limit": "x"}, "limit='x': give a whole number"),
        ({"limit": None}, "limit=None: give a whole number"),
        ({"after": 5}, "5 is not a run id"),
        ({"status": 5}, "No run has the status 5: there are ready"),
        ({"workflow": 5}, "workflow=5: give the name of a workflow, or None for all"),
    ],
)
async def test_what_runs_cannot_be_listed_by_is_refused(store: RunStore, wrong: dict[str, Any], said: str):
    await begin(store)
    with pytest.raises(StoreError, match=said):
        await store.list_runs(**wrong)


async def test_commits_are_read_behind_a_number_and_so_many_as_asked(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"%d" % number for number in range(1, 8)])
    assert [commit.seq for commit in await store.read("a", 2, 3)] == [3, 4, 5]
    assert [commit.seq for commit in await store.read("a", 5)] == [6, 7]
    assert await store.read("a", 7) == []
    assert await store.read("a", 100) == []
    assert await store.read("gone") == []


async def test_runs_do_not_see_each_others_records(store: RunStore):
    for run_id in ("a", "aa", "b"):
        epoch = await begin(store, run_id)
        await write(store, epoch, 0, [run_id.encode()] * 2, run_id, snapshot=b"snapshot of " + run_id.encode())
        await write(store, epoch, 2, [b"last"], run_id)
    for run_id in ("a", "aa", "b"):
        assert [commit.body for commit in await store.read(run_id)] == [run_id.encode()] * 2 + [b"last"]
        assert (await loaded(store, run_id=run_id)).snapshot == (2, b"snapshot of " + run_id.encode())


async def test_runs_are_listed_in_the_order_of_their_creation_page_by_page(store: RunStore):
    names = ["m", "c", "x", "a", "k"]
    for run_id in names:
        await begin(store, run_id)
    pages: list[list[str]] = []
    after: str | None = None
    while page := await store.list_runs(after=after, limit=2):
        pages.append([info.run_id for info in page])
        after = page[-1].run_id
    assert pages == [["m", "c"], ["x", "a"], ["k"]]


async def test_runs_are_listed_newest_first_page_by_page(store: RunStore):
    for run_id in ("m", "c", "x", "a"):
        epoch = await begin(store, run_id)
        await write(store, epoch, 0, run_id=run_id, status="failed" if run_id == "x" else None)

    async def listed(**filters: object) -> list[str]:
        return [info.run_id for info in await store.list_runs(newest_first=True, **filters)]  # type: ignore[arg-type]

    assert await listed() == ["a", "x", "c", "m"]
    assert await listed(limit=2) == ["a", "x"]
    assert await listed(limit=2, after="x") == ["c", "m"]
    assert await listed(status="running", limit=2) == ["a", "c"]
    assert await listed(status=["running", "failed"], after="a", limit=2) == ["x", "c"]


async def test_runs_are_listed_by_status_and_workflow(store: RunStore):
    for number, status in enumerate(("completed", "failed", None, "completed")):
        epoch = await begin(store, f"r{number}", "Odd" if number % 2 else "Even")
        await write(store, epoch, 0, run_id=f"r{number}", status=status)

    async def listed(**filters: object) -> list[str]:
        return [info.run_id for info in await store.list_runs(**filters)]  # type: ignore[arg-type]

    assert await listed(status="completed") == ["r0", "r3"]
    assert await listed(status=["failed", "running"]) == ["r1", "r2"]
    assert await listed(status=[]) == []
    assert await listed(workflow="Even") == ["r0", "r2"]
    assert await listed(workflow="Even", status="completed") == ["r0"]
    assert await listed(status="completed", after="r0", limit=1) == ["r3"]
    assert await listed(workflow="Even' OR '1'='1") == []


async def test_a_status_that_no_run_has_is_refused(store: RunStore):
    with pytest.raises(StoreError, match="No run has the status 'done': there are ready, running, waiting, completed"):
        await store.list_runs(status=["running", "done"])


async def test_a_list_cannot_go_on_behind_a_run_that_is_gone(store: RunStore):
    await begin(store)
    with pytest.raises(StoreError, match="Run 'gone'"):
        await store.list_runs(after="gone")


async def collect(commits: AsyncIterator[StoredCommit], count: int = 10_000) -> list[int]:
    found: list[int] = []
    async for commit in commits:
        found.append(commit.seq)
        if len(found) == count:
            break
    return found


async def test_a_subscriber_gets_what_is_there_and_what_comes_until_the_end(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"])
    near, far = (asyncio.create_task(collect(each.subscribe("a", after=1))) for each in (store, other))
    for seq in range(2, 30):
        await write(store, epoch, seq)
        await asyncio.sleep(0)
    await write(store, epoch, 30, status="completed")
    assert await asyncio.wait_for(near, 30) == await asyncio.wait_for(far, 30) == list(range(2, 32))


async def test_a_subscriber_of_a_run_that_is_over_gets_all_of_it(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"x"] * 1234, status="completed")
    assert await collect(store.subscribe("a")) == list(range(1, 1235))
    assert await collect(store.subscribe("a", after=1234)) == []
    assert await collect(store.subscribe("gone")) == []


async def test_a_subscriber_follows_from_owner_to_owner(store: RunStore, other: RunStore):
    epoch = await begin(store)
    reading = asyncio.create_task(collect(other.subscribe("a")))
    await write(store, epoch, 0)
    await store.release("a", store.owner, epoch)
    claimed = await take(other)
    await write(other, claimed.epoch, 1, status="completed")
    assert await asyncio.wait_for(reading, 30) == [1, 2]


async def test_a_subscription_ends_when_the_run_is_deleted(store: RunStore):
    await begin(store, first=b"1")
    waiting = asyncio.create_task(collect(store.subscribe("a")))
    await asyncio.sleep(0.05)
    await store.delete("a", force=True)
    assert await asyncio.wait_for(waiting, 30) == [1]


async def test_a_subscription_ends_when_the_run_is_replaced(store: RunStore):
    await begin(store, first=b"1")
    commits = store.subscribe("a")
    assert (await anext(commits)).seq == 1
    await store.delete("a", force=True)
    epoch = await begin(store, first=b"of another run", workflow="Another")
    await write(store, epoch, 1, [b"of another run"])
    assert await asyncio.wait_for(collect(commits), 30) == []


async def test_a_subscriber_misses_nothing_when_every_hint_is_lost(
    store: RunStore, other: RunStore, monkeypatch: pytest.MonkeyPatch
):
    for module in (in_memory, sqlite, postgres):
        monkeypatch.setattr(module, "LOST_HINT_SECONDS", 0.05)
    monkeypatch.setattr(Hints, "committed", lambda *_: None)
    monkeypatch.setattr(Hints, "anything", lambda *_: None)
    epoch = await begin(store)
    reading = [asyncio.create_task(collect(each.subscribe("a"))) for each in (store, other)]
    for seq in range(5):
        await write(store, epoch, seq)
        await asyncio.sleep(0.02)
    await write(store, epoch, 5, status="completed")
    assert await asyncio.wait_for(asyncio.gather(*reading), 30) == [[1, 2, 3, 4, 5, 6]] * 2


async def test_a_subscriber_can_leave(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0)
    commits = store.subscribe("a")
    assert await collect(commits, count=1) == [1]
    await commits.aclose()  # type: ignore[attr-defined]
    waiting = asyncio.create_task(collect(store.subscribe("a", after=1)))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await write(store, epoch, 1) == "committed"


async def test_a_load_is_consistent_while_others_write(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.append("a", "k", b"")

    async def grow() -> None:
        for seq in range(0, 200, 4):
            await store.commit([entry(store, epoch, seq, [b"x"] * 4, snapshot=b"%d" % (seq + 4))])

    growing = asyncio.create_task(grow())
    while not growing.done():
        found = await loaded(other)
        assert found.snapshot is None or found.snapshot == (found.info.seq, b"%d" % found.info.seq)
        assert found.commits == []
        assert len(found.inbox) == found.info.unread == 1
        await asyncio.sleep(0)
    await growing


async def test_a_run_that_exists_is_told_with_its_result(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, status="completed", result=b"r")
    existing = await store.create(new_run(), store.owner, TTL)
    assert existing.info.result == b"r"  # type: ignore[union-attr]

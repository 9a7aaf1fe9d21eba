"""Writing: all of an entry or nothing, numbered without gaps, refused to everybody but the owner."""

import asyncio
from dataclasses import replace

import pytest

from batonflow.durable.store_protocol import CommitVerdict, RunStore
from batonflow.durable.stores import bounds
from batonflow.workflow_core.errors import StoreError
from tests.durable.conftest import Clock
from tests.durable.runs import TTL, begin, bodies, entry, known, take, write


async def test_commits_are_numbered_from_one_and_read_back_in_order(store: RunStore, clock: Clock):
    epoch = await begin(store)
    assert await write(store, epoch, 0, [b"1", b"2"]) == "committed"
    clock.wall += 100
    assert await write(store, epoch, 2, [b"", b"\0\xff" * 500]) == "committed"
    commits = await store.read("a")
    assert [(commit.seq, commit.body) for commit in commits] == [(1, b"1"), (2, b"2"), (3, b""), (4, b"\0\xff" * 500)]
    assert commits[0].at == commits[1].at <= commits[2].at - 100
    assert (await known(store)).seq == 4


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
async def test_any_number_of_commits_is_one_piece(store: RunStore, count: int):
    epoch = await begin(store)
    written = [b"%d" % number for number in range(count)]
    assert await write(store, epoch, 0, written) == "committed"
    assert await bodies(store) == written


async def test_a_stale_epoch_is_fenced(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.release("a", store.owner, epoch)
    claimed = await take(other)
    assert await write(store, epoch, 0, [b"late"]) == "fenced"
    assert await write(store, claimed.epoch, 0, [b"not the owner"]) == "fenced"
    assert await write(other, epoch, 0, [b"not the epoch"]) == "fenced"
    assert await write(other, claimed.epoch, 0, [b"right"]) == "committed"
    assert await bodies(store) == [b"right"]


async def test_a_wrong_number_is_fenced(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"])
    assert await write(store, epoch, 1, [b"3"]) == "fenced"
    assert await write(store, epoch, 3, [b"4"]) == "fenced"
    assert await bodies(store) == [b"1", b"2"]


async def test_an_unknown_run_is_fenced(store: RunStore):
    assert await write(store, 1, 0) == "fenced"


async def test_the_same_asked_again_was_there_already(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"])
    assert await write(store, epoch, 0, [b"1", b"2"]) == "already"
    assert await write(store, epoch, 0, [b"1"]) == "already"
    await write(store, epoch, 2, [b"3"])
    assert await write(store, epoch, 0, [b"1", b"2"]) == "already"
    assert await bodies(store) == [b"1", b"2", b"3"]


async def test_something_else_under_the_same_number_is_fenced(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2"])
    assert await write(store, epoch, 0, [b"1", b"other"]) == "fenced"
    assert await write(store, epoch, 0, [b"1", b"2", b"3"]) == "fenced"


async def test_an_end_asked_again_was_there_already(store: RunStore):
    epoch = await begin(store)
    assert await write(store, epoch, 0, [b"1"], status="failed", result=b"why") == "committed"
    assert await write(store, epoch, 0, [b"1"], status="failed", result=b"why") == "already"
    assert await write(store, epoch, 0, [b"1"], status="completed") == "fenced"
    assert (await known(store)).result == b"why"


async def test_a_commit_before_giving_up_was_there_already_and_a_later_one_is_fenced(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"])
    await store.park("a", store.owner, epoch, 1, None)
    assert await write(store, epoch, 0, [b"1"]) == "already"
    assert await write(store, epoch, 1, [b"2"]) == "fenced"
    await take(store)
    assert await write(store, epoch, 0, [b"1"]) == "fenced"


async def test_one_entry_that_is_fenced_does_not_undo_the_others(store: RunStore, other: RunStore):
    for run_id in ("a", "b", "c"):
        await begin(store, run_id)
    await store.release("b", store.owner, 1)
    await take(other, "b")
    verdicts = await store.commit(
        [
            entry(store, 1, 0, [b"a1"], "a"),
            entry(store, 1, 0, [b"b1"], "b"),
            entry(store, 1, 0, [b"c1"], "c"),
            entry(store, 1, 1, [b"a2"], "a"),
            entry(store, 1, 0, [b"a1"], "a"),
        ]
    )
    assert [verdict.outcome for verdict in verdicts] == ["committed", "fenced", "committed", "committed", "already"]
    assert [await bodies(store, run_id) for run_id in ("a", "b", "c")] == [[b"a1", b"a2"], [], [b"c1"]]


async def test_many_callers_at_once_each_get_their_own_verdict(store: RunStore, other: RunStore):
    for number in range(20):
        await begin(store, f"r{number}")
        if number % 3 == 0:
            await store.release(f"r{number}", store.owner, 1)
            await take(other, f"r{number}")
    outcomes = await asyncio.gather(*(write(store, 1, 0, [b"x"], f"r{number}") for number in range(20)))
    assert outcomes == ["fenced" if number % 3 == 0 else "committed" for number in range(20)]


async def test_two_who_write_the_same_number_do_not_both_win(store: RunStore):
    epoch = await begin(store)
    outcomes = await asyncio.gather(*(write(store, epoch, 0, [b"%d" % number]) for number in range(5)))
    assert sorted(outcomes) == ["committed"] + ["fenced"] * 4
    assert len(await bodies(store)) == 1


async def test_commit_soon_tells_the_outcome_later_or_at_once(store: RunStore):
    epoch = await begin(store)
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[object] = loop.create_future()

    def done(verdicts: list[CommitVerdict] | None, error: BaseException | None) -> None:
        loop.call_soon_threadsafe(outcome.set_result, (verdicts, error))

    store.commit_soon([entry(store, epoch, 0, [b"1"])], done)
    assert await outcome == ([CommitVerdict("committed", unread=False)], None)
    assert await bodies(store) == [b"1"]


async def test_commits_queued_in_order_are_written_in_order(store: RunStore):
    epoch = await begin(store)
    outcomes: list[str] = []

    def done(verdicts: list[CommitVerdict] | None, _error: BaseException | None) -> None:
        outcomes.extend(verdict.outcome for verdict in verdicts or [])

    for number in range(300):
        store.commit_soon([entry(store, epoch, number, [b"%d" % number])], done)
    assert await write(store, epoch, 300, [b"300"]) == "committed"
    assert outcomes == ["committed"] * 300
    assert await bodies(store) == [b"%d" % number for number in range(301)]


async def test_an_end_is_kept_with_its_result(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"], wake_at=10.0)
    assert (await known(store)).wake_at == 10.0
    await write(store, epoch, 1, [b"2"], status="cancelled", result=b"\0result")
    info = await known(store)
    assert (info.status, info.result, info.owner, info.wake_at) == ("cancelled", b"\0result", None, None)
    assert (info.seq, info.lease_left) == (2, 0)
    assert await write(store, epoch, 2) == "fenced"


async def test_a_run_may_go_on_without_a_commit(store: RunStore):
    epoch = await begin(store)
    assert await write(store, epoch, 0, [], stream_seq=100, wake_at=5.0) == "committed"
    assert await write(store, epoch, 0, [], stream_seq=50) == "committed"
    info = await known(store)
    assert (info.seq, info.stream_seq, info.wake_at) == (0, 100, None)
    assert await write(store, epoch + 1, 0, [], stream_seq=200) == "fenced"
    assert await write(store, epoch, 0, [], status="completed") == "committed"
    assert await write(store, epoch, 0, [], status="completed") == "already"


async def test_what_is_too_large_is_refused_and_nothing_of_its_batch_is_written(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bounds, "MAX_RECORD", 100)
    epoch = await begin(store)
    await begin(store, "b")
    small, large = entry(store, epoch, 0, [b"x" * 100]), entry(store, epoch, 0, [b"ok", b"x" * 101], "b")
    with pytest.raises(StoreError, match=r"Commit 2 of run 'b' has 101 bytes, more than the 100"):
        await store.commit([small, large])
    with pytest.raises(StoreError, match=r"The snapshot of run 'a'"):
        await store.commit([replace(small, snapshot=b"x" * 101)])
    with pytest.raises(StoreError, match=r"The result of run 'a'"):
        await store.commit([replace(small, status="completed", result=b"x" * 101)])
    with pytest.raises(StoreError, match=r"The event 'key' for run 'a'"):
        await store.append("a", "key", b"x" * 101)
    assert await bodies(store) == []
    assert [verdict.outcome for verdict in await store.commit([small])] == ["committed"]


async def test_others_who_wait_do_not_suffer_from_what_is_refused(store: RunStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "MAX_RECORD", 100)
    for number in range(10):
        await begin(store, f"r{number}")
    results = await asyncio.gather(
        *(write(store, 1, 0, [b"x" * (101 if number == 5 else 1)], f"r{number}") for number in range(10)),
        return_exceptions=True,
    )
    assert [type(result) for result in results].count(StoreError) == 1
    assert results.count("committed") == 9


async def test_a_caller_that_is_cancelled_does_not_keep_others_from_writing(store: RunStore):
    epoch = await begin(store)
    task = asyncio.create_task(write(store, epoch, 0, [b"1"]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # What became of it is told when the same is asked again.
    assert await write(store, epoch, 0, [b"1"]) in {"committed", "already"}
    assert await write(store, epoch, 1, [b"2"]) == "committed"
    assert await bodies(store) == [b"1", b"2"]


async def test_the_lease_goes_on_with_the_ttl_of_the_commit(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, ttl=1000.0)
    assert TTL < (await known(store)).lease_left <= 1000

"""What comes for a run from outside: anybody may append, the owner uses it, and no wake-up is lost."""

import asyncio

from batonflow.durable.store_protocol import Appended, Claimed, Ended, InboxItem, RunStore
from tests.durable.conftest import Clock
from tests.durable.runs import TTL, begin, entry, known, take, write


async def test_items_keep_their_order_and_what_they_carry(store: RunStore, other: RunStore, clock: Clock):
    await begin(store)
    assert await other.append("a", "k1", b"\0one") == Appended(1, new=True)
    clock.wall += 5
    assert await store.append("a", "k2 ' OR 1=1", b"", "cancel") == Appended(2, new=True)
    (found,) = (await store.unread({"a": 0})).values()
    assert [item[:4] for item in found] == [(1, "k1", "event", b"\0one"), (2, "k2 ' OR 1=1", "cancel", b"")]
    assert found[1].at - found[0].at >= 5
    assert (await known(store)).unread == 2


async def test_a_key_is_taken_once(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.append("a", "k", b"first")
    await store.append("a", "l", b"second")
    assert await other.append("a", "k", b"again") == Appended(1, new=False)
    await write(store, epoch, 0, consumed=[1])
    assert await other.append("a", "k", b"after it was used") == Appended(1, new=False)
    assert [item.payload for item in (await store.unread({"a": 0}))["a"]] == [b"second"]


async def test_the_key_of_what_could_not_be_used_is_free_again(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.append("a", "k", b"unfit")
    await store.append("a", "l", b"fit")
    await write(store, epoch, 0, consumed=[1, 2], passed_over=[1])
    assert await other.append("a", "k", b"fit, too") == Appended(3, new=True)
    assert await other.append("a", "k", b"late") == Appended(3, new=False)
    assert await other.append("a", "l", b"late") == Appended(2, new=False)
    assert [item.payload for item in (await store.unread({"a": 0}))["a"]] == [b"fit, too"]
    await write(store, epoch, 1, consumed=[3], passed_over=[3])
    assert await other.append("a", "k", b"again") == Appended(4, new=True)


async def test_a_key_means_something_within_one_run_only(store: RunStore):
    await begin(store)
    await begin(store, "b")
    assert await store.append("a", "k", b"") == Appended(1, new=True)
    assert await store.append("b", "k", b"") == Appended(1, new=True)


async def test_nothing_comes_to_unknown_runs_and_to_those_that_are_over(store: RunStore):
    assert await store.append("gone", "k", b"") is None
    epoch = await begin(store)
    await store.append("a", "in time", b"")
    await write(store, epoch, 0, status="completed", result=b"r")
    ended = await store.append("a", "k", b"")
    assert isinstance(ended, Ended)
    assert (ended.info.status, ended.info.result) == ("completed", b"r")
    # An answer that was lost on its way can be asked for again.
    assert await store.append("a", "in time", b"") == Appended(1, new=False)


async def test_unread_looks_behind_a_position_in_each_run(store: RunStore):
    for run_id in ("a", "b", "c"):
        await begin(store, run_id)
        for key in ("1", "2", "3"):
            await store.append(run_id, key, run_id.encode() + key.encode())
    await write(store, 1, 0, run_id="b", consumed=[2])
    found = await store.unread({"a": 1, "b": 0, "c": 3, "gone": 0})
    assert {run_id: [item.position for item in items] for run_id, items in found.items()} == {"a": [2, 3], "b": [1, 3]}
    assert await store.unread({}) == {}


async def test_commits_use_items_once_and_tell_whether_there_are_more(store: RunStore):
    epoch = await begin(store)
    for key in ("1", "2"):
        await store.append("a", key, b"")
    (verdict,) = await store.commit([entry(store, epoch, 0, [b"x"])])
    assert verdict.unread
    (verdict,) = await store.commit([entry(store, epoch, 1, [b"x"], consumed=[2, 2])])
    assert verdict.unread
    (verdict,) = await store.commit([entry(store, epoch, 2, [b"x"], consumed=[1, 2, 99])])
    assert not verdict.unread
    assert (await known(store)).unread == 0
    assert await store.unread({"a": 0}) == {}


async def test_a_fenced_commit_uses_nothing(store: RunStore):
    epoch = await begin(store)
    await store.append("a", "k", b"")
    assert await write(store, epoch, 7, consumed=[1]) == "fenced"
    assert (await known(store)).unread == 1


async def test_a_commit_asked_again_uses_nothing_twice(store: RunStore):
    epoch = await begin(store)
    await store.append("a", "1", b"")
    await write(store, epoch, 0, consumed=[1])
    await store.append("a", "2", b"")
    (verdict,) = await store.commit([entry(store, epoch, 0, [b"x"], consumed=[1])])
    assert verdict == ("already", True)
    assert (await known(store)).unread == 1


async def test_a_run_with_unread_items_cannot_be_parked(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await other.append("a", "k", b"")
    assert not await store.park("a", store.owner, epoch, 0, None)
    await write(store, epoch, 0, consumed=[1])
    assert await store.park("a", store.owner, epoch, 1, None)


async def test_an_item_for_a_waiting_run_makes_it_ready(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.park("a", store.owner, epoch, 0, None)
    await other.append("a", "k", b"")
    assert (await known(store)).status == "ready"
    assert isinstance(await store.claim("a", store.owner, TTL, only_due=True), Claimed)


async def test_no_wake_up_is_lost_between_parking_and_appending(store: RunStore, other: RunStore):
    for number in range(40):
        run_id = f"r{number}"
        epoch = await begin(store, run_id)
        parked, appended = await asyncio.gather(
            store.park(run_id, store.owner, epoch, 0, None), other.append(run_id, "k", b"")
        )
        assert appended == Appended(1, new=True)
        # Either the owner stays, and sees the item; or the run is ready for whoever comes.
        assert (await known(store, run_id)).status == ("ready" if parked else "running")
        assert run_id in await store.unread({run_id: 0})


async def test_a_cancel_reaches_a_running_run_through_its_inbox(store: RunStore, other: RunStore):
    epoch = await begin(store)
    assert await other.append("a", "cancel", b"too slow", "cancel") == Appended(1, new=True)
    assert (await known(store)).status == "running"
    (item,) = (await store.unread({"a": 0}))["a"]
    assert (item.kind, item.payload) == ("cancel", b"too slow")
    assert await write(store, epoch, 0, consumed=[1], status="cancelled") == "committed"


async def test_a_cancel_wakes_a_parked_run_and_its_next_owner_ends_it(store: RunStore, other: RunStore):
    epoch = await begin(store)
    await store.park("a", store.owner, epoch, 0, None)
    await other.append("a", "cancel", b"", "cancel")
    assert (await known(store)).status == "ready"
    (claimed,) = await other.claim_due(other.owner, TTL, 10)
    loaded = await other.load("a")
    assert loaded is not None
    assert [item.kind for item in loaded.inbox] == ["cancel"]
    assert await write(other, claimed.epoch, 0, consumed=[1], status="cancelled") == "committed"


async def test_a_cancel_comes_too_late_for_a_run_that_is_over(store: RunStore):
    epoch = await begin(store)
    await write(store, epoch, 0, status="completed")
    assert isinstance(await store.append("a", "cancel", b"", "cancel"), Ended)
    assert (await known(store)).status == "completed"


async def test_changed_answers_at_once_when_something_came_since(store: RunStore):
    await begin(store)
    seen = (await store.changed(-1)).number
    await store.append("a", "k", b"")
    assert (await store.changed(seen)).number != seen


async def test_changed_waits_for_what_any_process_appends(store: RunStore, other: RunStore):
    await begin(store)
    for number, appender in enumerate((store, other)):
        seen = (await store.changed(-1)).number
        for _ in range(3):  # hints may be wrong, so that the first may come for nothing
            waiting = asyncio.create_task(store.changed(seen))
            await asyncio.sleep(0.05)
            if not waiting.done():
                break
            seen = waiting.result().number
        await appender.append("a", f"k{number}", b"")
        assert (await asyncio.wait_for(waiting, 30)).number != seen
        found = await store.unread({"a": number})
        assert found["a"] == [InboxItem(number + 1, f"k{number}", "event", b"", found["a"][0].at)]


async def test_an_append_between_a_look_and_the_wait_is_not_missed(store: RunStore, other: RunStore):
    await begin(store)
    seen = (await store.changed(-1)).number
    assert await store.unread({"a": 0}) == {}
    await other.append("a", "k", b"")
    await asyncio.wait_for(store.changed(seen), 30)
    assert await store.unread({"a": 0}) != {}


async def test_several_can_wait_and_one_that_gives_up_disturbs_nobody(store: RunStore):
    await begin(store)
    seen = (await store.changed(-1)).number
    for _ in range(2):
        waiting = [asyncio.create_task(store.changed(seen)) for _ in range(3)]
        await asyncio.sleep(0.05)
        if not all(task.done() for task in waiting):
            break
        seen = waiting[0].result().number
    waiting[0].cancel()
    await store.append("a", "k", b"")
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1].number == results[2].number != seen


async def test_what_was_not_used_is_there_for_the_next_owner(store: RunStore, other: RunStore):
    epoch = await begin(store)
    for key in ("1", "2"):
        await store.append("a", key, key.encode())
    await write(store, epoch, 0, consumed=[1])
    await store.aclose()
    claimed = await take(other)
    loaded = await other.load("a")
    assert loaded is not None
    assert [item.payload for item in loaded.inbox] == [b"2"]
    assert await write(other, claimed.epoch, 1, consumed=[2]) == "committed"


async def test_changes_name_the_runs_with_new_items_and_tell_of_ready_ones(store: RunStore):
    epoch = await begin(store)
    await begin(store, "b")
    seen = (await store.changed(-1)).number
    while True:  # hints from before may come late
        waiting = asyncio.create_task(store.changed(seen))
        await asyncio.sleep(0.3)
        if not waiting.done():
            break
        seen = waiting.result().number
    await store.append("b", "k", b"")
    changes = await asyncio.wait_for(waiting, 30)
    assert (changes.runs, changes.ready) == ({"b"}, False)
    assert await store.release("a", store.owner, epoch)
    epoch = (await take(store)).epoch
    assert await store.park("a", store.owner, epoch, 0, None)
    seen = (await store.changed(-1)).number
    await store.append("a", "k", b"")
    changes = await asyncio.wait_for(store.changed(seen), 30)
    assert (changes.runs is None or "a" in changes.runs, changes.ready) == (True, True)

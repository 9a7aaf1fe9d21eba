"""The part of a store that keeps sessions: turns, their runs, the queue of a session, changes."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.session_protocol import (
    NewTurn,
    SessionChange,
    SessionStore,
    StoredSession,
    StoredTurn,
    TurnOpened,
    TurnRefused,
)
from batonflow.durable.store_protocol import RunCommit, RunStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core.errors import StoreCorruptedError, StoreError
from tests.durable.conftest import Clock, Stores
from tests.durable.runs import TTL, new_run, take

Both = Any
"""A store of runs with sessions."""


def turn(number: int = 1, **fields: Any) -> NewTurn:
    fields = {"session": "ann", "request_id": None, "digest": "d", "asked": b"asked", **fields}
    return NewTurn(workflow="Flow", number=number, **fields)


async def opened(store: Both, number: int = 1, **fields: Any) -> int:
    """Open a turn; returns the epoch of its run."""
    wanted = turn(number, **fields)
    found = await store.open_turn(wanted, new_run(f"{wanted.session}:{number}", first=b"1"), store.owner, TTL)
    assert isinstance(found, TurnOpened), found
    return found.epoch


async def refused(store: Both, number: int = 1, **fields: Any) -> TurnRefused:
    wanted = turn(number, **fields)
    found = await store.open_turn(wanted, new_run(f"{wanted.session}:{number}", first=b"1"), store.owner, TTL)
    assert isinstance(found, TurnRefused)
    return found


async def end(store: Both, epoch: int, number: int = 1, body: bytes | None = b"body", **fields: Any) -> str:
    """End a turn by the commit that ends its run."""
    entry = RunCommit(
        f"ann:{number}", store.owner, epoch, 1, [b"2"], status=fields.pop("status", "completed"), result=b"r", turn=body
    )
    (verdict,) = await store.commit([entry])
    return verdict.outcome


async def session(store: Both, request_id: str | None = None) -> StoredSession:
    found = await store.read_session("ann", request_id)
    assert found is not None
    return found


async def test_the_stores_have_the_part(stores: Stores) -> None:
    store = stores.open()
    assert isinstance(store, SessionStore)
    assert await store.read_session("ann") is None
    assert await store.read_turns("ann") == []


async def test_a_turn_and_its_run_begin_together_and_end_together(stores: Stores) -> None:
    store: Both = stores.open()
    epoch = await opened(store)
    info = await store.info("ann:1")
    assert (info.status, info.session) == ("running", "ann")
    found = await session(store)
    assert found.open_turn is not None
    assert (found.open_turn.run_id, found.open_turn.asked, found.last, found.turns) == ("ann:1", b"asked", 1, 1)
    assert await end(store, epoch) == "committed"
    assert await end(store, epoch) == "already"
    found = await session(store)
    assert (found.open_turn, found.next_number) == (None, 2)
    [stored] = await store.read_turns("ann")
    assert (stored.number, stored.status, stored.asked, stored.body) == (1, "completed", b"asked", b"body")
    assert stored.ended >= stored.started


async def test_a_fenced_owner_cannot_end_a_turn(stores: Stores, clock: Clock) -> None:
    first, second = stores.open(), stores.open()
    epoch = await opened(first)
    clock.monotonic += TTL + 1
    await take(second, "ann:1")
    assert await end(first, epoch) == "fenced"
    assert (await session(second)).open_turn is not None


async def test_a_session_has_one_turn_at_a_time(stores: Stores) -> None:
    first, second = stores.open(), stores.open()
    epoch = await opened(first)
    found = await refused(second, 2)
    assert found.session.open_turn is not None
    assert found.ticket is None
    assert await second.info("ann:2") is None
    await end(first, epoch)
    assert (await refused(second, 1)).session.next_number == 2, "the number says what its caller knows"
    await opened(second, 2)


async def test_a_known_request_is_not_made_again(stores: Stores) -> None:
    store: Both = stores.open()
    epoch = await opened(store, request_id="m1")
    await end(store, epoch)
    found = await refused(store, 2, request_id="m1", queues=True)
    assert found.session.requested is not None
    assert (found.session.requested.number, found.ticket) == (1, None)
    assert (await session(store, "m2")).requested is None


async def test_a_session_that_was_changed_meanwhile_is_read_again(stores: Stores) -> None:
    store: Both = stores.open()
    await end(store, await opened(store))
    await store.change_session(SessionChange("ann", "Flow", 1, undo_after=0))
    await refused(store, 2, turns=1)
    await opened(store, 2, turns=0)


class TestQueue:
    async def test_tickets_are_served_in_order(self, stores: Stores) -> None:
        first, second = stores.open(), stores.open()
        epoch = await opened(first)
        tickets = [(await refused(store, 2, queues=True)).ticket for store in (first, second)]
        assert (await session(first)).queue == (*tickets,)
        await end(first, epoch)
        await refused(second, 2, ticket=tickets[1], queues=True)
        await refused(second, 2)
        await opened(first, 2, ticket=tickets[0])
        assert (await session(first)).queue == (tickets[1],)

    async def test_a_ticket_keeps_its_place_when_it_is_renewed(self, stores: Stores) -> None:
        store: Both = stores.open()
        await opened(store)
        ticket = (await refused(store, 2, queues=True)).ticket
        later = (await refused(store, 2, queues=True)).ticket
        assert (await refused(store, 2, queues=True, ticket=ticket)).ticket == ticket
        assert (await session(store)).queue == (ticket, later)
        await store.leave_queue("ann", ticket)
        assert (await session(store)).queue == (later,)

    async def test_tickets_of_ended_owners_do_not_count(self, stores: Stores) -> None:
        first, second = stores.open(), stores.open()
        epoch = await opened(first)
        await refused(second, 2, queues=True)
        await second.aclose()
        assert (await session(first)).queue == ()
        await end(first, epoch)
        await opened(first, 2)

    async def test_a_ticket_that_nobody_renews_is_passed_over(self, stores: Stores, clock: Clock) -> None:
        store: Both = stores.open()
        await opened(store)
        await refused(store, 2, queues=True, patience=5.0)
        clock.wall += 6
        assert (await session(store)).queue == ()


class TestRunsOfTurns:
    async def test_a_deleted_run_leaves_its_turn(self, stores: Stores) -> None:
        store: Both = stores.open()
        await end(store, await opened(store))
        assert await store.delete("ann:1")
        [stored] = await store.read_turns("ann")
        assert (stored.status, stored.body) == ("completed", b"body")
        assert (await session(store)).next_number == 2

    async def test_a_run_that_is_deleted_under_way_ends_its_turn(self, stores: Stores) -> None:
        store: Both = stores.open()
        await opened(store)
        assert await store.delete("ann:1", force=True)
        [stored] = await store.read_turns("ann")
        assert (stored.status, stored.body) == ("cancelled", b"")
        await opened(store, 2)

    async def test_retaining_leaves_sessions_alone(self, stores: Stores, clock: Clock) -> None:
        store: Both = stores.open()
        await end(store, await opened(store))
        clock.wall += 100
        assert await store.retain(seconds=10) == ["ann:1"]
        assert [one.number for one in await store.read_turns("ann")] == [1]

    async def test_a_branch_of_a_run_is_not_a_turn(self, stores: Stores) -> None:
        store: Both = stores.open()
        await opened(store)
        await store.fork("ann:1", 1, "other")
        assert (await store.info("other")).session == ""

    async def test_a_number_whose_run_exists_is_left_out(self, stores: Stores) -> None:
        store: Both = stores.open()
        await store.create(new_run("ann:1"), store.owner, TTL)
        assert (await refused(store)).session.next_number == 2
        await opened(store, 2)


class TestChanges:
    async def test_turns_are_added_and_undone(self, stores: Stores) -> None:
        store: Both = stores.open()
        added = [StoredTurn(number, "", "completed", 1.0, 1.0, body=b"%d" % number) for number in (1, 2, 3)]
        assert await store.change_session(SessionChange("ann", "Flow", 0, add=added))
        assert not await store.change_session(SessionChange("ann", "Flow", 0, add=added[:1])), "it has changed since"
        assert await store.change_session(SessionChange("ann", "Flow", 3, undo_after=1))
        assert [one.body for one in await store.read_turns("ann")] == [b"1"]
        undo = SessionChange("ann", "Flow", 3, turns=3, undo_after=0)
        assert not await store.change_session(undo), "turns were undone since"
        found = await session(store)
        assert (found.turns, found.last, found.next_number) == (1, 3, 4)
        assert (await session(store, None)).open_turn is None

    async def test_a_session_under_way_does_not_change(self, stores: Stores) -> None:
        store: Both = stores.open()
        await opened(store)
        for change in ({"undo_after": 0}, {"delete": True}):
            assert not await store.change_session(SessionChange("ann", "Flow", 1, **change))  # type: ignore[arg-type]

    async def test_a_deleted_session_takes_its_runs_along(self, stores: Stores) -> None:
        store: Both = stores.open()
        await end(store, await opened(store, request_id="m1"))
        copy = replace((await store.read_turns("ann"))[0], request_id=None)
        assert await store.change_session(SessionChange("bob", "Flow", 0, add=[copy]))
        assert await store.change_session(SessionChange("bob", "Flow", 1, delete=True))
        assert await store.info("ann:1") is not None, "it is a run of the other session"
        assert await store.change_session(SessionChange("ann", "Flow", 1, delete=True))
        assert await store.info("ann:1") is None
        assert await store.read_session("ann") is None
        await opened(store, 1, request_id="m1")

    async def test_turns_are_read_in_pages(self, stores: Stores) -> None:
        store: Both = stores.open()
        added = [StoredTurn(number, "", "completed", 1.0, 1.0) for number in range(1, 8)]
        await store.change_session(SessionChange("ann", "Flow", 0, add=added))

        async def numbers(**chosen: Any) -> list[int]:
            return [one.number for one in await store.read_turns("ann", **chosen)]

        assert await numbers(limit=3) == [1, 2, 3]
        assert await numbers(after=3, before=6) == [4, 5]
        assert await numbers(before=6, limit=2, newest_first=True) == [5, 4]

    async def test_sessions_are_listed(self, stores: Stores) -> None:
        store: Both = stores.open()
        for name in ("b-2", "a", "b-1"):
            await store.change_session(SessionChange(name, "Flow", 0))
        await store.change_session(SessionChange("c", "Other", 0))

        async def names(*chosen: Any, **more: Any) -> list[str]:
            return [one.name for one in await store.list_sessions("Flow", *chosen, **more)]

        assert await names() == ["a", "b-1", "b-2"]
        assert await names("b-") == ["b-1", "b-2"]
        assert await names(after="a", limit=1) == ["b-1"]
        with pytest.raises(StoreError, match="limit=-1"):
            await names(limit=-1)
        with pytest.raises(StoreError, match="is not the name of a session"):
            await store.read_session("a b")


class TestMetadata:
    async def test_runs_are_listed_by_metadata(self, stores: Stores) -> None:
        store: RunStore = stores.open()
        await store.create(new_run("a", metadata={"user": "ann", "place": "wéb"}), store.owner, TTL)
        await store.create(new_run("b", metadata={"user": "bob"}), store.owner, TTL)
        await store.create(new_run("c"), store.owner, TTL)

        async def found(status: Any = None, **wanted: str) -> list[str]:
            return [info.run_id for info in await store.list_runs(metadata=wanted, status=status)]

        assert await found(user="ann") == ["a"]
        assert await found(user="ann", place="wéb") == ["a"]
        assert await found(user="ann", place="mail") == []
        assert await found("running", user="bob") == ["b"]
        assert await found("completed", user="bob") == []
        assert await found() == ["a", "b", "c"]
        info = await store.info("a")
        assert info is not None
        assert dict(info.metadata or {}) == {"user": "ann", "place": "wéb"}
        await store.fork("a", 0, "a-2")
        assert await found(user="ann") == ["a", "a-2"]

    async def test_metadata_is_text(self, stores: Stores) -> None:
        store = stores.open()
        with pytest.raises(StoreError, match="metadata is a dict of texts"):
            await store.list_runs(metadata={"user": 7})  # type: ignore[dict-item]
        with pytest.raises(StoreError, match="metadata of a run has 1,001 characters"):
            await store.create(new_run(metadata={"user": "x" * 1001}), store.owner, TTL)


async def test_a_damaged_turn_is_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    await end(store, await opened(store))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE turns SET body = ?", (b"bodx",))
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorruptedError, match="Turn 1 of a session"):
        await store.read_turns("ann")
    await store.aclose()


async def test_large_turns_are_packed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    body = b'"tides and tides"' * 5000
    await end(store, await opened(store), body=body)
    assert (await store.read_turns("ann"))[0].body == body
    connection = sqlite3.connect(path)
    (size,) = connection.execute("SELECT length(body) FROM turns").fetchone()
    connection.close()
    assert size < len(body) / 10
    await store.aclose()

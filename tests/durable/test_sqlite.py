"""SQLiteStore: its files, versions, threads, and its life in one process."""

# ruff: noqa: ASYNC240 - nothing else runs on the loops of these tests

import asyncio
import gc
import json
import logging
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonflow.durable.store_protocol import Busy, Claimed, CommitVerdict, Serves
from batonflow.durable.stores import sqlite_commits, sqlite_schema
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.stores.sqlite_listing import list_runs
from batonflow.durable.stores.sqlite_schema import DatabaseFile
from batonflow.workflow_core.errors import StoreError
from tests.durable.runs import TTL, begin, bodies, entry, known, new_run, take, write

ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


_of_others: set[threading.Thread] = set()
"""Threads of stores that programs of other tests have left to the end of the process."""


def all_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batonflow-store")]


def threads() -> list[threading.Thread]:
    return [thread for thread in all_threads() if thread not in _of_others]


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    _of_others.update(all_threads())
    yield
    assert threads() == []
    _of_others.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    await store.aclose()


async def test_nothing_is_made_before_the_first_use(store: SQLiteStore, path: Path):
    assert (list(path.parent.iterdir()), threads()) == ([], [])
    await begin(store)
    assert path.exists()


async def test_files_are_for_their_owner_only(tmp_path: Path):
    path = tmp_path / "new" / "deeper" / "runs.db"
    before = os.umask(0)
    try:
        store = SQLiteStore(path)
        await begin(store)
        await known(store)
    finally:
        os.umask(before)
    (lock,) = (path.parent / "runs.db-owners").iterdir()
    for file in (path, path.with_name("runs.db-wal"), path.with_name("runs.db-shm"), lock):
        assert (file.name, mode(file)) == (file.name, 0o600)
    for folder in (path.parent, path.parent.parent, lock.parent):
        assert (folder.name, mode(folder)) == (folder.name, 0o700)
    await store.aclose()
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


async def test_the_path_is_that_of_the_moment_when_the_store_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("a ? name#%20.db")
    monkeypatch.chdir("/")
    await begin(store)
    await store.aclose()
    assert [file.name for file in tmp_path.iterdir()] == ["a ? name#%20.db"]


def test_what_cannot_be_a_file_is_refused_when_the_store_is_made():
    for path in ("", ":memory:"):
        with pytest.raises(StoreError, match="memory"):
            SQLiteStore(path)
    with pytest.raises(StoreError, match='"process" or "power"'):
        SQLiteStore("x.db", durability="disk")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="lease_seconds=0: give a number of seconds above 0"):
        SQLiteStore("x.db", lease_seconds=0)


@pytest.mark.parametrize(
    ("option", "wrong", "said"),
    [
        ("lease_seconds", "x", "lease_seconds='x': give a number of seconds above 0"),
        ("lease_seconds", None, "lease_seconds=None: give a number"),
        ("busy_seconds", "x", "busy_seconds='x': give a number of seconds, 0 or more"),
        ("busy_seconds", -1, "busy_seconds=-1: give"),
        ("busy_seconds", None, "busy_seconds=None: give"),
        ("busy_seconds", float("nan"), "busy_seconds=nan: give"),
        ("max_bytes", "x", "max_bytes='x': give a whole number of bytes above 0, or None for no bound"),
        ("max_bytes", 0, "max_bytes=0: give"),
        ("max_bytes", 1e6, "max_bytes=1000000.0: give"),
        ("max_bytes", True, "max_bytes=True: give"),
    ],
)
def test_an_option_of_a_value_that_it_cannot_have_is_refused(option: str, wrong: Any, said: str):
    with pytest.raises(StoreError, match=said):
        SQLiteStore("x.db", **{option: wrong})


class _Bytes:
    def __fspath__(self) -> bytes:
        return b"runs.db"


@pytest.mark.parametrize("wrong", [5, None, b"runs.db", _Bytes()])
def test_a_path_is_text_or_a_path(wrong: Any):
    with pytest.raises(StoreError, match=r"path=.*: give the path of a file, as text or as a Path"):
        SQLiteStore(wrong)


def test_a_path_has_no_nul_character():
    with pytest.raises(StoreError, match=r"'a\\x00b.db' is not the path of a file: take the NUL character out"):
        SQLiteStore("a\0b.db")


async def test_a_directory_is_refused(tmp_path: Path):
    store = SQLiteStore(tmp_path)
    with pytest.raises(StoreError, match="is a directory"):
        await store.info("a")
    await store.aclose()


async def test_runs_are_there_when_the_file_is_opened_again(path: Path):
    first = SQLiteStore(path)
    epoch = await begin(first)
    await write(first, epoch, 0, [b"1", b"2"])
    await first.aclose()
    second = SQLiteStore(path)
    assert (await take(second)).seq == 2
    assert await bodies(second) == [b"1", b"2"]
    await second.aclose()


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
def test_durability_is_how_often_the_disk_is_waited_for(path: Path, durability: str, synchronous: int):
    connection = DatabaseFile(path, durability).open_writer()  # type: ignore[arg-type]
    assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_power_durability_works_like_the_other(path: Path):
    store = SQLiteStore(path, durability="power")
    assert await write(store, await begin(store), 0) == "committed"
    assert store.durability == "power"
    await store.aclose()


async def test_a_newer_schema_is_refused(store: SQLiteStore, path: Path):
    await begin(store)
    await store.aclose()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    later = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"schema version 99, and this version of batonflow knows versions up to \d+: use a newer"
        ):
            await later.info("a")
    await later.aclose()


async def test_large_records_take_little_room_and_come_back_as_they_were(path: Path):
    talk = b'{"messages": [%s]}' % b", ".join(b'{"role": "user", "text": "And now %d?"}' % n for n in range(5000))
    kept = [talk, b"short", b"x and no more", zlib.compress(talk), random.Random(7).randbytes(50_000)]
    store = SQLiteStore(path)
    epoch = await begin(store)
    await write(store, epoch, 0, kept)
    # Said again, as the answer was lost on its way.
    await write(store, epoch, 0, kept)
    assert await bodies(store) == kept
    await store.aclose()
    connection = sqlite3.connect(path)
    stored = [len(body) for (body,) in connection.execute("SELECT body FROM commits ORDER BY place")]
    connection.close()
    assert stored[0] < len(talk) / 4
    assert stored[1] == len(b"short")
    assert stored[4] == 50_000
    later = SQLiteStore(path)
    assert await bodies(later) == kept
    await later.aclose()


async def test_large_records_of_a_first_version_are_read_as_they_are(path: Path, monkeypatch: pytest.MonkeyPatch):
    large = b'{"text": "%s"}' % (b"tide " * 4000)
    monkeypatch.setattr(sqlite_commits, "packed", bytes)
    older = SQLiteStore(path)
    await write(older, await begin(older), 0, [large])
    await older.aclose()
    monkeypatch.undo()
    bring_back_to_first_version(path)
    store = SQLiteStore(path)
    assert await bodies(store) == [large]
    await store.aclose()


def bring_back_to_first_version(path: Path) -> None:
    """Take out of a file all that later versions of the schema have added."""
    connection = sqlite3.connect(path)
    for table in ("sessions", "turns", "session_queue", "part_logs", "parts", "workers"):
        connection.execute(f"DROP TABLE {table}")
    for index in ("runs_by_part_log", "runs_ready", "runs_timed"):
        connection.execute(f"DROP INDEX {index}")
    for column in ("metadata", "turn", "part_log", "queue", "priority", "not_before", "attempts", "held"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    connection.execute("CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


async def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch):
    store = SQLiteStore(path)
    await write(store, await begin(store), 0, [b"kept"])
    await store.aclose()
    migrations = [*sqlite_schema.MIGRATIONS, lambda connection: connection.execute("CREATE TABLE later (x)")]
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", migrations)
    newer = SQLiteStore(path)
    assert await bodies(newer) == [b"kept"]
    await newer.aclose()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(migrations),)
    assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
    connection.close()
    monkeypatch.undo()
    older = SQLiteStore(path)
    with pytest.raises(StoreError, match="use a newer batonflow"):
        await older.info("a")
    await older.aclose()


async def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    store = SQLiteStore(path)
    await begin(store)
    await store.aclose()

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (x)")
        connection.execute("INSERT INTO nowhere VALUES (1)")

    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", [*sqlite_schema.MIGRATIONS, broken])
    newer = SQLiteStore(path)
    with pytest.raises(StoreError, match="nowhere"):
        await newer.info("a")
    await newer.aclose()
    monkeypatch.undo()
    store = SQLiteStore(path)
    assert (await known(store)).epoch == 1
    await store.aclose()


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 77"])
async def test_a_database_of_another_program_is_left_alone(store: SQLiteStore, path: Path, statement: str):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is a database of another program: choose another path"):
        await begin(store)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_alone(store: SQLiteStore, path: Path):
    path.write_text("My diary. " * 100)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        await begin(store)
    assert path.read_text() == "My diary. " * 100


async def test_an_empty_file_becomes_a_database(store: SQLiteStore, path: Path):
    path.touch()
    assert await begin(store) == 1


async def test_two_stores_that_begin_at_once_make_one_database(path: Path):
    stores = [SQLiteStore(path) for _ in range(6)]
    epochs = await asyncio.gather(*(begin(store, f"r{number}") for number, store in enumerate(stores)))
    assert epochs == [1] * 6
    assert len(await stores[0].list_runs()) == 6
    for store in stores:
        await store.aclose()


async def test_threads_end_with_the_store(store: SQLiteStore):
    await begin(store)
    await asyncio.gather(*(store.info("a") for _ in range(20)))
    assert {thread.name for thread in threads()} == {"batonflow-store-writer", "batonflow-store-reader"}
    assert len(threads()) <= 5
    await store.aclose()
    await store.aclose()
    assert threads() == []


async def test_a_closed_store_says_so(store: SQLiteStore):
    await begin(store)
    await store.aclose()
    for operation in (store.info("a"), store.claim("a", store.owner, TTL)):
        with pytest.raises(StoreError, match="is closed"):
            await operation
    with pytest.raises(StoreError, match="is closed"):
        await store.changed(-1)
    told: list[object] = []
    store.commit_soon([], lambda *outcome: told.extend(outcome))
    assert (told[0], type(told[1])) == (None, StoreError)


async def test_those_who_wait_are_told_when_the_store_closes(store: SQLiteStore):
    await begin(store)
    seen = (await asyncio.wait_for(store.changed((await store.changed(-1)).number), 30)).number
    waiting = asyncio.create_task(store.changed(seen))
    reading = asyncio.create_task(anext(store.subscribe("a")))
    await asyncio.sleep(0.05)
    await store.aclose()
    for task in (waiting, reading):
        with pytest.raises(StoreError, match="is closed"):
            await asyncio.wait_for(task, 30)


async def test_a_mistake_of_a_caller_is_the_callers_alone(store: SQLiteStore):
    epoch = await begin(store)
    results = await asyncio.gather(
        write(store, epoch, 0, [b"1"]),
        write(store, epoch, 1, ["text"]),  # type: ignore[list-item]
        store.read("a", after="one"),  # type: ignore[arg-type]
        store.park("a", store.owner, 2**70, 0, None),
        return_exceptions=True,
    )
    assert results[0] == "committed"
    assert [type(result) for result in results[1:]] == [TypeError, TypeError, OverflowError]
    assert await write(store, epoch, 1, [b"2"]) == "committed"


async def test_what_is_queued_is_written_before_the_store_closes(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    outcomes: list[str] = []

    def done(verdicts: list[CommitVerdict] | None, _error: BaseException | None) -> None:
        outcomes.extend(verdict.outcome for verdict in verdicts or [])

    for number in range(2500):
        store.commit_soon([entry(store, epoch, number, [b"x"])], done)
    await store.aclose()
    assert outcomes == ["committed"] * 2500


async def test_a_receiver_that_raises_does_not_stop_the_others(store: SQLiteStore, caplog: pytest.LogCaptureFixture):
    epoch = await begin(store)

    def done(_verdicts: object, _error: object) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        store.commit_soon([entry(store, epoch, 0, [b"1"])], done)
        assert await write(store, epoch, 1, [b"2"]) == "committed"
    assert "ZeroDivisionError" in caplog.text


def test_one_store_serves_several_loops_and_threads(path: Path):
    store = SQLiteStore(path)

    async def work(name: str) -> None:
        epoch = await begin(store, name)
        for seq in range(20):
            assert await write(store, epoch, seq, run_id=name) == "committed"
        assert len(await store.read(name)) == 20

    workers = [threading.Thread(target=lambda name=f"r{n}": asyncio.run(work(name))) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    async def total() -> int:
        found = sum([info.seq for info in await store.list_runs()])
        await store.aclose()
        return found

    assert asyncio.run(total()) == 80


def test_a_loop_that_is_gone_disturbs_nobody(path: Path):
    store = SQLiteStore(path)

    async def start_and_leave() -> None:
        await begin(store)
        appending = [asyncio.ensure_future(store.append("a", f"k{number}", b"")) for number in range(50)]
        await asyncio.sleep(0)
        assert not all(task.done() for task in appending)

    asyncio.run(start_and_leave())

    async def later() -> int:
        await store.append("a", "last", b"")
        unread = (await known(store)).unread
        await store.aclose()
        return unread

    assert asyncio.run(later()) == 51


def test_a_forgotten_store_ends_its_threads_and_frees_its_name(path: Path):
    store = SQLiteStore(path)
    asyncio.run(begin(store))
    assert threads() != []
    del store
    gc.collect()
    deadline = time.monotonic() + 5
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_a_program_may_end_without_closing_and_nothing_queued_is_lost(path: Path):
    program = """
import asyncio, sys
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import begin, entry, known

store = SQLiteStore(sys.argv[1])

async def main():
    epoch = await begin(store)
    await known(store)
    for number in range(500):
        store.commit_soon([entry(store, epoch, number, [b"x" * 100])], lambda *_: None)

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]

    async def count() -> int:
        store = SQLiteStore(path)
        found = (await known(store)).seq
        await store.aclose()
        return found

    assert asyncio.run(count()) == 500


def test_a_forked_child_has_a_store_of_its_own(path: Path):
    program = """
import asyncio, json, os, sys
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.durable.store_protocol import Busy
from tests.durable.runs import TTL, begin, write

store = SQLiteStore(sys.argv[1])
epoch = asyncio.run(begin(store))
asyncio.run(store.info("a"))
parent = store.owner
reading, writing = os.pipe()
waiting, telling = os.pipe()
if os.fork() == 0:
    async def child():
        assert store.owner != parent
        refused = await store.claim("a", store.owner, TTL)
        fenced = await write(store, epoch, 0)
        await begin(store, "of-the-child")
        os.close(writing)
        os.write(telling, b"x")
        os.read(reading, 1)  # returns when the parent is dead
        for _ in range(100):
            claimed = await store.claim("a", store.owner, TTL)
            if not isinstance(claimed, Busy):
                break
            await asyncio.sleep(0.01)
        await store.aclose()
        print(json.dumps([type(refused).__name__, fenced, type(claimed).__name__]), flush=True)
    asyncio.run(child())
    os._exit(0)  # what was the parent's is not to be closed here
else:
    os.read(waiting, 1)
    os._exit(0)
"""
    # Newer versions of Python warn of every fork in a process with threads.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    ended = subprocess.run(
        [sys.executable, *warnings, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == ["Busy", "fenced", "Claimed"]


async def test_held_leases_are_renewed_while_the_loop_is_busy(path: Path):
    store, other = SQLiteStore(path), SQLiteStore(path)
    await begin(store, ttl=0.6)
    store.hold("a", 1)
    time.sleep(1.2)  # noqa: ASYNC251 - the loop does nothing for longer than the lease lasts
    assert isinstance(await other.claim("a", other.owner, TTL), Busy)
    await store.aclose()
    await other.aclose()


async def test_the_lock_of_a_living_owner_is_seen_within_the_process(path: Path):
    store, other = SQLiteStore(path), SQLiteStore(path)
    assert store.owner != other.owner
    await begin(store)
    assert isinstance(await other.claim("a", other.owner, TTL), Busy)
    with pytest.raises(StoreError, match="is in use by another process or store"):
        await other.claim("a", store.owner, TTL)
    await store.aclose()
    assert isinstance(await other.claim("a", other.owner, TTL), Claimed)
    await other.aclose()


async def test_lock_files_of_the_dead_are_cleared_away(path: Path):
    owners = path.with_name("runs.db-owners")
    owners.mkdir()
    (owners / "long-dead.lock").touch()
    store = SQLiteStore(path)
    await begin(store)
    assert [file.name for file in owners.iterdir()] == [f"{store.owner}.lock"]
    await store.aclose()
    assert not owners.exists()


async def test_a_lease_of_another_boot_does_not_count(store: SQLiteStore, path: Path):
    await begin(store)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET lease_boot = lease_boot + 1")
    connection.commit()
    connection.close()
    assert (await known(store)).lease_left == 0
    other = SQLiteStore(path)
    assert isinstance(await other.claim("a", other.owner, TTL), Claimed)
    await other.aclose()


async def test_a_deleted_run_leaves_no_rows(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    await store.append("a", "k", b"")
    await write(store, epoch, 0, snapshot=b"s", status="completed", result=b"r")
    connection = sqlite3.connect(path)
    tables = ["runs", "commits", "snapshots", "results", "inbox"]
    for rows in (1, 0):
        assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables] == [(rows,)] * 5
        await store.delete("a")
    connection.close()


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(
    "conditions",
    [
        {}, {"statuses": ["ready"]}, {"statuses": ["completed", "failed"]}, {"workflow": "Flow"},
        {"metadata": {"user": "ann"}}, {"statuses": ["completed", "failed"], "metadata": {"user": "ann"}},
    ],
)  # fmt: skip
async def test_a_listing_does_not_sort_the_runs(
    store: SQLiteStore, path: Path, conditions: dict[str, Any], newest_first: bool
):
    plans: list[str] = []

    class Explaining:
        def execute(self, statement: str, values: Any) -> Any:
            plans.extend(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))
            return connection.execute(statement, values)

    assert await store.list_runs() == []  # makes the file
    given = {"statuses": None, "workflow": None, "metadata": None} | conditions
    with closing(sqlite3.connect(path)) as connection:
        session: Any = SimpleNamespace(connection=Explaining())
        list_runs(session, given["statuses"], given["workflow"], None, 10, newest_first, given["metadata"])
    assert plans
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]


async def test_thousands_of_held_leases_are_renewed_in_a_moment(store: SQLiteStore, path: Path):
    await asyncio.gather(*(begin(store, f"r{number}", ttl=1.5) for number in range(2000)))
    for number in range(2000):
        store.hold(f"r{number}", 1)
    await asyncio.sleep(2.0)
    other = SQLiteStore(path)
    assert await other.claim_due(other.owner, TTL, 10) == []
    await other.aclose()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=30), quoted=st.sampled_from(["'", '"', "';--", "' OR '1'='1", "%", "\\", "?", ":a", "\0"]))
async def test_no_text_changes_what_a_statement_means(path: Path, text: str, quoted: str):
    strange = text + quoted + text
    store = SQLiteStore(path)
    existing = await store.create(new_run("keep"), store.owner, TTL)
    count = len(await store.list_runs(limit=1000))
    assert await store.list_runs(workflow=strange) == []
    assert await store.claim_due("other", TTL, 10, [Serves(strange)]) == []
    assert await store.unread({strange: 0}) == {}
    await store.append("keep", strange, strange.encode())
    assert await write(store, 1, 0, run_id="keep", consumed=[1]) in {"committed", "already", "fenced"}
    assert len(await store.list_runs(limit=1000)) == count
    assert existing is not None
    await store.aclose()

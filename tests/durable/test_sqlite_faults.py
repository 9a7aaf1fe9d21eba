"""SQLiteStore when something is wrong with its file: it says what and what to do, and goes on when it is put right."""

# ruff: noqa: ASYNC240 - nothing else runs on the loops of these tests

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core.errors import StoreCorruptedError, StoreError
from tests.durable.runs import begin, bodies, known, take, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_seconds=0.3)
    yield store
    await store.aclose()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program on the file."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        yield connection
    finally:
        connection.close()


def is_intact(path: Path) -> bool:
    with raw(path) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_database_that_is_locked_for_a_while_is_waited_for(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.15, connection.execute, ["COMMIT"])
        timer.start()
        assert await write(store, epoch, 0) == "committed"
        timer.join()


async def test_a_database_that_stays_locked_is_told_by_name(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"])
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"Another program holds .*runs\.db: it was locked for 0\.3 s"):
            await write(store, epoch, 1, [b"2"])
        assert await bodies(store) == [b"1"]  # readers are not held up
        connection.execute("ROLLBACK")
    assert await write(store, epoch, 1, [b"2"]) == "committed"


async def test_everybody_who_waits_is_told_when_the_database_stays_locked(store: SQLiteStore, path: Path):
    for number in range(5):
        await begin(store, f"r{number}")
    with raw(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        results = await asyncio.gather(
            *(write(store, 1, 0, run_id=f"r{number}") for number in range(5)), return_exceptions=True
        )
        assert [type(result) for result in results] == [StoreError] * 5
        assert time.monotonic() - began < 5 * 0.3
    assert await write(store, 1, 0, run_id="r0") == "committed"


async def test_a_database_that_is_locked_when_it_is_opened_is_waited_for(store: SQLiteStore, path: Path):
    first = SQLiteStore(path)
    await begin(first)
    await first.aclose()
    with raw(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="Another program holds the database"):
            await store.info("a")
    assert (await known(store)).epoch == 1


async def test_a_full_database_is_told_and_goes_on_when_there_is_space(path: Path):
    store = SQLiteStore(path, max_bytes=400_000)
    epoch = await begin(store)
    await begin(store, "small")
    with pytest.raises(StoreError, match=r"no space left for the database .*raise max_bytes, now 400,000"):
        await write(store, epoch, 0, [os.urandom(100_000)] * 5)
    assert await bodies(store) == []
    # There is room for less, and one that does not fit does not keep others from being written.
    results = await asyncio.gather(
        write(store, epoch, 0, [b"1"]),
        write(store, 1, 0, [os.urandom(600_000)], "small"),
        store.append("small", "k", b""),
        return_exceptions=True,
    )
    assert (results[0], type(results[1])) == ("committed", StoreError)
    assert not isinstance(results[2], BaseException)
    await store.aclose()
    larger = SQLiteStore(path)
    assert await write(larger, (await take(larger)).epoch, 1, [os.urandom(100_000)] * 5) == "committed"
    await larger.aclose()
    assert is_intact(path)


async def in_a_child(program: str, *arguments: str) -> str:
    """What a program says that tampers with its own process."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


async def test_a_limit_on_the_size_of_files_is_like_a_full_disk(path: Path):
    said = await in_a_child(
        """
import asyncio, os, resource, sys
from batonflow.workflow_core.errors import StoreError
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import begin, bodies, write

async def main():
    store = SQLiteStore(sys.argv[1])
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            await write(store, epoch, 1, [os.urandom(500_000)])
        except StoreError as error:
            print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(await write(store, epoch, 1, [b"2"]), await bodies(store))
    await store.aclose()

asyncio.run(main())
""",
        str(path),
    )
    first, second, last = said.splitlines()
    assert first == second
    assert str(path) in first
    assert "limits on the size of files" in first
    assert last == "committed [b'1', b'2']"
    assert is_intact(path)


async def test_a_path_below_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    store = SQLiteStore(tmp_path / "file" / "runs.db")
    with pytest.raises(StoreError, match=r"file/runs\.db cannot be used: .*Not a directory"):
        await begin(store)
    await store.aclose()


UNPRIVILEGED = """
import asyncio, os, sys, urllib.parse  # which some Pythons import late, from where only root may read
from batonflow.workflow_core.errors import StoreError
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import begin

async def main():
    store = SQLiteStore(sys.argv[1])
    os.setuid(int(sys.argv[2]))
    try:
        print(await begin(store, "new"))
    except StoreError as error:
        print(error)
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody with fewer rights")
@pytest.mark.parametrize(
    "there", ["a directory that cannot be written", "a file that cannot be written", "a file that cannot be read"]
)
async def test_without_the_right_to_write_it_says_which_right(tmp_path: Path, there: str):
    # A directory of its own below /tmp: those above pytest's are closed to other users.
    folder = Path("/tmp") / f"batonflow-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    path = folder / "runs.db"
    try:
        if there.startswith("a file"):
            store = SQLiteStore(path)
            await begin(store)
            await store.aclose()
            path.chmod(0o444 if there.endswith("written") else 0)
            folder.chmod(0o777)
        said = await in_a_child(UNPRIVILEGED, str(path), "65534")
        assert f"The database {path} cannot be {there.split()[-1]}" in said
        assert f"make files in {folder}" in said
    finally:
        shutil.rmtree(folder)


async def test_a_deleted_database_is_an_error_and_never_a_new_one(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    hidden = path.with_name("hidden")
    path.rename(hidden)
    for operation in (write(store, epoch, 0), store.info("a"), begin(store, "b")):
        with pytest.raises(StoreError, match=r"runs\.db is not there any more"):
            await operation
    assert not path.exists()
    hidden.rename(path)
    assert await write(store, epoch, 0) == "committed"


async def test_a_replaced_database_is_an_error(store: SQLiteStore, path: Path, tmp_path: Path):
    epoch = await begin(store)
    another = SQLiteStore(tmp_path / "another.db")
    await begin(another)
    await another.aclose()
    path.rename(tmp_path / "first.db")
    (tmp_path / "another.db").rename(path)
    untouched = path.read_bytes()
    for operation in (write(store, epoch, 0), store.info("a")):
        with pytest.raises(StoreError, match=r"Another file was put in the place of the database .*runs\.db"):
            await operation
    assert path.read_bytes() == untouched
    (tmp_path / "first.db").rename(path)
    assert await write(store, epoch, 0) == "committed"


async def test_a_database_that_was_deleted_before_the_first_use_is_made_anew(store: SQLiteStore, path: Path):
    path.touch()
    path.unlink()
    assert await begin(store) == 1


def flip(path: Path, needle: bytes) -> None:
    """Change one bit of what is stored, behind the back of SQLite."""
    data = bytearray(path.read_bytes())
    position = data.index(needle)
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("needle", "what"),
    [
        (b"the third commit", r"Commit 3 of run 'a' .*runs\.db is damaged"),
        (b"all of it", r"The snapshot after commit 2 of run 'a' "),
        (b"the item", r"Inbox item 1 of run 'a' "),
        (b"the result", r"The result of run 'a' "),
    ],
)
async def test_one_changed_bit_is_noticed_and_named(store: SQLiteStore, path: Path, needle: bytes, what: str):
    epoch = await begin(store)
    await store.append("a", "k", b"the item")
    await write(store, epoch, 0, [b"1", b"2"], snapshot=b"all of it")
    await write(store, epoch, 2, [b"the third commit"], status="completed", result=b"the result")
    await begin(store, "sound", first=b"sound")
    await store.aclose()
    flip(path, needle)
    later = SQLiteStore(path)
    with pytest.raises(StoreCorruptedError, match=what) as raised:
        await later.load("a")
    assert "fork the run at an earlier commit" in str(raised.value)
    assert await bodies(later, "sound") == [b"sound"]
    if needle == b"the third commit":
        with pytest.raises(StoreCorruptedError, match="Commit 3"):
            await later.read("a")
        assert [commit.seq for commit in await later.read("a", limit=2)] == [1, 2]
        assert await later.fork("a", 2, "rescued") == "forked"
        assert await bodies(later, "rescued") == [b"1", b"2"]
    await later.aclose()


async def test_records_that_changed_places_are_noticed(store: SQLiteStore, path: Path):
    for run_id in ("a", "b"):
        await begin(store, run_id)
        await write(store, 1, 0, [run_id.encode() + b"1", run_id.encode() + b"2"], run_id)
    await store.aclose()
    with raw(path) as connection:
        rows = dict(connection.execute("SELECT place, body FROM commits").fetchall())
        (a1, a2, b1, _b2) = sorted(rows)
        crcs = dict(connection.execute("SELECT place, crc FROM commits").fetchall())
        for place, source in ((a1, b1), (b1, a1)):
            connection.execute(
                "UPDATE commits SET body = ?, crc = ? WHERE place = ?", (rows[source], crcs[source], place)
            )
    later = SQLiteStore(path)
    for run_id in ("a", "b"):
        with pytest.raises(StoreCorruptedError, match=f"Commit 1 of run '{run_id}'"):
            await later.read(run_id)
    await later.aclose()
    assert a2 == a1 + 1


async def test_a_missing_commit_is_noticed(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"1", b"2", b"3"])
    with raw(path) as connection:
        connection.execute("DELETE FROM commits WHERE body = CAST('2' AS BLOB)")
    with pytest.raises(StoreCorruptedError, match="Commit 2 of run 'a'"):
        await store.load("a")
    with pytest.raises(StoreCorruptedError, match="Commit 2 of run 'a'"):
        await store.read("a")


async def test_a_damaged_page_is_told_and_harms_only_what_is_on_it(store: SQLiteStore, path: Path):
    for run_id in ("a", "b"):
        epoch = await begin(store, run_id)
        await write(store, epoch, 0, [run_id.encode() + random.Random(at).randbytes(3000) for at in range(20)], run_id)
    await store.aclose()
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM commits ORDER BY place LIMIT 1").fetchone()
    page = data.index(body) // 4096
    data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    later = SQLiteStore(path)
    with pytest.raises(StoreCorruptedError):
        await later.read("a")
    assert len(await later.list_runs()) == 2
    assert await write(later, (await take(later, "b")).epoch, 20, run_id="b") == "committed"
    await later.aclose()


async def test_a_file_cut_short_is_told(store: SQLiteStore, path: Path):
    epoch = await begin(store)
    await write(store, epoch, 0, [b"x" * 3000] * 50)
    await store.aclose()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    later = SQLiteStore(path)
    with pytest.raises(StoreCorruptedError, match=r"runs\.db is damaged, or is not a SQLite database"):
        await later.load("a")
    await later.aclose()


@pytest.mark.parametrize("cut", [1, 700, 5000, 20_000])
async def test_after_a_crash_with_a_torn_log_a_prefix_of_the_commits_is_there(path: Path, cut: int):
    child = subprocess.Popen(  # noqa: ASYNC220
        [
            sys.executable,
            "-c",
            """
import asyncio, sys
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import begin, write

async def main():
    store = SQLiteStore(sys.argv[1])
    epoch = await begin(store)
    for seq in range(40):
        await write(store, epoch, seq, [b"%d" % (seq + 1)])
    print("written", flush=True)
    sys.stdin.read()

asyncio.run(main())
""",
            str(path),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        child.kill()
    log = path.with_name("runs.db-wal")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - cut)
    store = SQLiteStore(path)
    claimed = await take(store)
    assert 0 <= claimed.seq < 40
    assert await bodies(store) == [b"%d" % (seq + 1) for seq in range(claimed.seq)]
    assert await write(store, claimed.epoch, claimed.seq) == "committed"
    await store.aclose()
    assert is_intact(path)

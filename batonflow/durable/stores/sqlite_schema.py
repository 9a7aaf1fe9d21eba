"""The file of a SQLiteStore: its tables, its versions, and connections."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from batonflow.workflow_core.errors import StoreError

__all__ = ["APPLICATION_ID", "MIGRATIONS", "DatabaseFile", "make_private"]

APPLICATION_ID = 0x42464C57
"""Marks the file as one of batonflow's, for SQLite and for ``file``."""

_SYNCHRONOUS = {"process": "PRAGMA synchronous = NORMAL", "power": "PRAGMA synchronous = FULL"}

# The key of a commit is the run's number * 2^32 + its own: the rows of a run are adjacent in one B-tree with integer
# keys, and long run ids are stored once. Results have their own table, so that listings read little.
_VERSION_1 = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so a reader notices that a run was replaced
        run_id TEXT NOT NULL UNIQUE,
        workflow TEXT NOT NULL,
        version TEXT,
        digest TEXT NOT NULL,
        shape TEXT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL,
        claimed_at REAL,
        lease_boot INTEGER,
        lease_until REAL,                      -- of the monotonic clock of that boot
        lease_ttl REAL,
        seq INTEGER NOT NULL,
        compacted INTEGER NOT NULL DEFAULT 0,  -- commits up to here are only in the snapshot
        stream_seq INTEGER NOT NULL DEFAULT 0,
        wake_at REAL,
        wake_no INTEGER NOT NULL DEFAULT 0,    -- how often it was made ready
        due_at REAL,                           -- since when it is ready; while it waits, its timer; else nothing
        inbox_head INTEGER NOT NULL DEFAULT 0,
        unread INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        ended_at REAL,
        forked_from TEXT,
        forked_at INTEGER,
        salt INTEGER NOT NULL                  -- goes into the checks of all its records, and of its forks'
    )
    """,
    "CREATE INDEX runs_by_status ON runs (status, id)",
    # No index contains a column that each commit changes.
    "CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL",
    """
    CREATE TABLE commits (
        place INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE snapshots (
        place INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE results (
        run INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE inbox (
        run INTEGER NOT NULL,
        position INTEGER NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL,
        at REAL NOT NULL,
        came INTEGER NOT NULL,                 -- the run's last commit when it came
        used INTEGER,                          -- the first of the commits that have used it
        crc INTEGER NOT NULL,
        PRIMARY KEY (run, position)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX inbox_keys ON inbox (run, key)",
    "CREATE INDEX inbox_unused ON inbox (run, position) WHERE used IS NULL",
    # appends: a counter of appended items, for other processes. epoch_floor: the highest epoch of deleted runs.
    "CREATE TABLE facts (one INTEGER PRIMARY KEY, appends INTEGER NOT NULL, epoch_floor INTEGER NOT NULL)",
    "INSERT INTO facts VALUES (1, 0, 0)",
    """
    CREATE VIEW run_infos AS
    SELECT runs.*, results.body AS result, results.crc AS result_crc
    FROM runs LEFT JOIN results ON results.run = runs.id
    """,
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)


def _may_be_packed(connection: sqlite3.Connection) -> None:
    """Allow compressed records, which older versions cannot read; present records do not change."""


# The key of a turn is the session's number * 2^32 + its own. The run of a turn has the key of the turn, so that the end
# of a run finds its turn, and other runs have nothing to look for.
_SESSIONS = (
    "ALTER TABLE runs ADD COLUMN metadata TEXT",
    "ALTER TABLE runs ADD COLUMN turn INTEGER",
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        workflow TEXT NOT NULL,
        last INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    )
    """,
    """
    CREATE TABLE turns (
        place INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL,
        status TEXT NOT NULL,
        started REAL NOT NULL,
        ended REAL,
        request_id TEXT,
        digest TEXT NOT NULL,
        asked BLOB NOT NULL,
        body BLOB NOT NULL,
        undone INTEGER NOT NULL DEFAULT 0,
        asked_crc INTEGER NOT NULL,
        body_crc INTEGER NOT NULL
    )
    """,
    "CREATE INDEX turns_by_request ON turns (request_id, place) WHERE request_id IS NOT NULL",
    """
    CREATE TABLE session_queue (
        ticket INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL,
        owner TEXT NOT NULL,
        until REAL NOT NULL
    )
    """,
    "CREATE INDEX session_queue_by_session ON session_queue (session, ticket)",
)


def _add_sessions(connection: sqlite3.Connection) -> None:
    for statement in _SESSIONS:
        connection.execute(statement)


# The key of a part is the log's number * 2^32 + its own. A log has the number of the run that began it; a run without
# ``part_log`` writes into a log of its own.
_PARTS = (
    "ALTER TABLE runs ADD COLUMN part_log INTEGER",
    "ALTER TABLE sessions ADD COLUMN part_log INTEGER",
    "CREATE INDEX runs_by_part_log ON runs (part_log) WHERE part_log IS NOT NULL",
    "CREATE INDEX sessions_by_part_log ON sessions (part_log) WHERE part_log IS NOT NULL",
    """
    CREATE TABLE part_logs (
        id INTEGER PRIMARY KEY,
        parent INTEGER NOT NULL,
        begins INTEGER NOT NULL                -- the number of its first part; the parent has those before it
    )
    """,
    "CREATE INDEX part_logs_by_parent ON part_logs (parent)",
    """
    CREATE TABLE parts (
        place INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL
    )
    """,
)


def _add_parts(connection: sqlite3.Connection) -> None:
    for statement in _PARTS:
        connection.execute(statement)


_QUEUES = (
    "ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default'",
    "ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN not_before REAL",  # a ready run is not taken up before its due_at
    "ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN held TEXT",
    "DROP INDEX runs_due",
    "CREATE INDEX runs_ready ON runs (priority DESC, due_at, id) WHERE status = 'ready'",
    "CREATE INDEX runs_timed ON runs (due_at, id) WHERE status = 'waiting' AND due_at IS NOT NULL",
)


def _add_queues(connection: sqlite3.Connection) -> None:
    for statement in _QUEUES:
        connection.execute(statement)


_WORKERS = """
CREATE TABLE workers (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    since REAL NOT NULL,
    seen_at REAL NOT NULL,
    is_draining INTEGER NOT NULL
)
"""


def _add_workers(connection: sqlite3.Connection) -> None:
    connection.execute(_WORKERS)


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [
    _create, _may_be_packed, _add_sessions, _add_parts, _add_queues, _add_workers,
]  # fmt: skip
"""The function at index n turns version n into n + 1, in one transaction. Version 0 is an empty file."""


class DatabaseFile:
    """The file at a path, with its identity after opening, to detect a replaced file.

    Args:
        path: The path of the file.
        durability: See ``SQLiteStore``.
        max_bytes: The maximum size of the file; None for no limit.
        busy_seconds: Seconds that a reader waits for a lock.
    """

    def __init__(
        self,
        path: Path,
        durability: Literal["process", "power"],
        max_bytes: int | None = None,
        busy_seconds: float = 60.0,
    ) -> None:
        self.path = path
        self.durability = durability
        self.max_bytes = max_bytes
        self._busy_seconds = busy_seconds
        self._identity: tuple[int, int] | None = None

    def check(self) -> None:
        """Refuse a file that was deleted or replaced.

        Raises:
            StoreError: The file was deleted or replaced; the message names the remedy.
        """
        try:
            there = self.path.stat()
        except OSError as error:
            raise StoreError(
                f"The database {self.path} is not there any more ({error.strerror}). Put the same file back, or close "
                "this store and open another one"
            ) from error
        if self._identity not in (None, (there.st_dev, there.st_ino)):
            raise StoreError(
                f"Another file was put in the place of the database {self.path} while it was open. Put the first one "
                "back, or close this store and open another one"
            )

    def open_writer(self) -> sqlite3.Connection:
        """Return a connection that can write; create a missing file and its tables.

        Raises:
            StoreError: This version cannot use the file.
            sqlite3.Error: Another error of SQLite.
            OSError: The file or its folder cannot be created.
        """
        if self._identity is None:
            _make_file(self.path, durable=self.durability == "power")
        self.check()
        connection = self._connect("rw", timeout=0.1)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        there = self.path.stat()
        self._identity = (there.st_dev, there.st_ino)
        return connection

    def open_reader(self) -> sqlite3.Connection:
        """Return a connection that cannot write, for the calling thread.

        Raises:
            StoreError: The file was deleted or replaced.
            sqlite3.Error: Another error of SQLite.
        """
        self.check()
        return self._connect("ro", timeout=self._busy_seconds)

    def _connect(self, mode: str, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # One transaction, because another process may create the tables at the same time.
        connection.execute("BEGIN")
        self._refuse_foreign(connection)
        connection.execute("ROLLBACK")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(
                f"The file system of {self.path} cannot hold a database that several processes use at once (no WAL): "
                "keep it on a local disk"
            )
        connection.execute(_SYNCHRONOUS[self.durability])
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA journal_size_limit = 67108864")  # frees the space after a burst
        if self.durability == "power":
            connection.execute("PRAGMA fullfsync = ON")
        if self.max_bytes is not None:
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            # A pragma does not accept parameters; this is a number by construction.
            connection.execute(f"PRAGMA max_page_count = {max(1, self.max_bytes // int(page_size))}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._migrate(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == APPLICATION_ID:
            return
        # The file may also contain chats, perhaps from before.
        (others,) = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' "
            "AND sql NOT LIKE '%/* batonflow */%'"
        ).fetchone()
        if application or others:
            raise StoreError(f"{self.path} is a database of another program: choose another path for the store")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        self._refuse_foreign(connection)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        newest = len(MIGRATIONS)
        if version > newest:
            raise StoreError(
                f"{self.path} has schema version {version}, and this version of batonflow knows versions up to "
                f"{newest}: use a newer batonflow, or another path"
            )
        if version == newest:
            return
        for migrate in MIGRATIONS[version:]:
            migrate(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {newest}")


def _make_file(path: Path, *, durable: bool) -> None:
    """Create an empty file that only its owner can read, with its folders."""
    if path.exists():
        if path.is_dir():
            raise StoreError(f"{path} is a directory: give the path of a file for the store")
        return
    _make_folder(path.parent)
    make_private(path)
    if durable and os.name == "posix":
        _sync_folder(path.parent)


def make_private(path: Path) -> None:
    """Create an empty file for a database that only its owner can read; keep an existing file."""
    # Made under another name first: closing any descriptor of the database would free the locks that this process
    # has on it, and a file made by SQLite itself could be read by others until its mode is changed.
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    os.close(os.open(made, flags, 0o600))
    with suppress(FileExistsError):  # another process has created it
        try:
            os.link(made, path)
        except FileExistsError:
            raise
        except OSError:  # the file system has no hard links
            os.close(os.open(path, flags, 0o600))
        finally:
            made.unlink()


def _make_folder(folder: Path) -> None:
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

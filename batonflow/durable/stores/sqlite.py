"""A RunStore in one SQLite file, for any number of processes of one machine."""

import os
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from batonflow.clock import current_source
from batonflow.durable.history import StoredHistory
from batonflow.durable.search_protocol import IndexEntry, RunQuery
from batonflow.durable.session_protocol import (
    TURN_PAGE,
    NewTurn,
    SessionChange,
    StoredSession,
    StoredTurn,
    TurnOpened,
    TurnRefused,
)
from batonflow.durable.store_protocol import (
    LEASE_SECONDS,
    Appended,
    Busy,
    Changes,
    Claimed,
    CommitDone,
    CommitVerdict,
    Created,
    Ended,
    Existing,
    InboxItem,
    Loaded,
    NewRun,
    NotDue,
    RunCommit,
    RunInfo,
    RunStatus,
    Serves,
    StoredCommit,
)
from batonflow.durable.stores import sqlite_claims as claims
from batonflow.durable.stores import sqlite_listing as listing
from batonflow.durable.stores import sqlite_reads as reads
from batonflow.durable.stores import sqlite_search as searching
from batonflow.durable.stores import sqlite_sessions as sessions
from batonflow.durable.stores import sqlite_upkeep as upkeep
from batonflow.durable.stores import sqlite_workers as workers
from batonflow.durable.stores.bounds import (
    check_age,
    check_commit_number,
    check_file_options,
    check_lease,
    check_limit,
    check_listing,
    check_metadata,
    check_path,
    check_query,
    check_run_id,
)
from batonflow.durable.stores.hints import Bell
from batonflow.durable.stores.owners import Owners
from batonflow.durable.stores.sqlite_commits import write_commits
from batonflow.durable.stores.sqlite_parts import read_parts
from batonflow.durable.stores.sqlite_rows import DatabaseSession
from batonflow.durable.stores.sqlite_schema import DatabaseFile
from batonflow.durable.stores.sqlite_threads import Readers, Writer
from batonflow.durable.stores.threads import Job, forget_all, outcome
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign
from batonflow.workflow_core.errors import StoreError

__all__ = ["SQLiteStore"]

T = TypeVar("T")

PAGE = 500
"""The number of commits that a subscriber reads at once."""
LOST_HINT_SECONDS = 1.0
"""After so long a subscriber looks for itself, as a hint may have been lost."""
RETIRED_AT_ONCE = 20


class SQLiteStore(StoredHistory):
    """A store of runs in one SQLite file with a write-ahead log, for all processes of one machine.

    The file is opened at first use. One object serves all event loops and threads of a process. After a ``fork``, the
    child's copy is a separate store with another ``owner``. SQLite's ``-wal`` and ``-shm`` are in the same folder, and
    a folder ``-owners`` with one lock file for each live owner. Only the user who created these files can read them.

    A process that is suspended (``SIGSTOP``) during a write blocks all others until it continues or is killed.

    Args:
        path: The file on a local disk; it is created at first use, with its folders.
        durability: The failures that a commit survives: ``"process"``: the end of the process; ``"power"``: also a
            power failure, which costs a sync to the disk for each transaction.
        busy_seconds: Seconds to try while another program locks the database.
        max_bytes: The maximum size of the file; None for no limit.
        lease_seconds: Seconds without a renewal (a suspended process or machine) after which another process may claim
            a run; runs of an ended process are free at once. Leases are renewed three times in that time.

    Raises:
        StoreError: ``path`` cannot be the path of a file, or the value of an option is not allowed.

    Example:
        >>> store = SQLiteStore("runs.db")
        >>> await store.info("order-17")
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        busy_seconds: float = 60.0,
        max_bytes: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        check_file_options(durability, busy_seconds, max_bytes)
        self.path = Path(check_path(path)).absolute()
        self.lease_seconds = check_lease(lease_seconds)
        self.durability: Literal["process", "power"] = durability
        self.busy_seconds = busy_seconds
        self.max_bytes = max_bytes
        self._source = current_source()
        self._begin()
        _stores.add(self)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r}, durability={self.durability!r})"

    def _begin(self) -> None:
        """Set up the parts that belong to one process, without opening files."""
        self._owner = secrets.token_hex(8)
        file = DatabaseFile(self.path, self.durability, self.max_bytes, self.busy_seconds)
        self._owners = Owners(self.path.with_name(self.path.name + "-owners"))
        self._writer = Writer(file, self._owners, self._source, self.busy_seconds)
        self._hints = self._writer.hints
        self._readers = Readers(file, self._owners, self._source, self.busy_seconds)
        self._finalizer = weakref.finalize(self, _stop, self._writer, self._readers)
        self._finalizer.atexit = False  # its threads are joined there
        self._closed = False

    def _after_fork(self) -> None:
        """Start again in a forked child, and leave all files to the parent."""
        self._finalizer.detach()
        self._owners.forget()
        # Kept open, because closing them would affect files that the parent uses.
        _left_to_parents.append((self._writer, self._readers))
        self._begin()

    @property
    def owner(self) -> str:
        """See ``RunStore.owner``."""
        return self._owner

    keeps_parts = True

    async def create(self, run: NewRun, owner: str | None, ttl: float) -> Created | Existing:
        """See ``RunStore.create``."""
        return await self._write(claims.create, run, owner, ttl)

    async def claim(
        self, run_id: str, owner: str, ttl: float, *, only_due: bool = False
    ) -> Claimed | Busy | Ended | NotDue | None:
        """See ``RunStore.claim``."""
        return await self._write(claims.claim, run_id, owner, ttl, only_due)

    async def claim_due(
        self,
        owner: str,
        ttl: float,
        limit: int,
        serves: Sequence[Serves] | None = None,
        *,
        queues: Sequence[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Claimed]:
        """See ``RunStore.claim_due``."""
        return await self._write(claims.claim_due, owner, ttl, limit, serves, queues, skip)

    async def release_held(self, run_id: str) -> bool:
        """See ``RunStore.release_held``."""
        return await self._write(claims.release_held, run_id)

    async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
        """See ``RunStore.load``."""
        check_commit_number(at)
        return await self._read(reads.load, run_id, at)

    async def renew(self, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> list[str]:
        """See ``RunStore.renew``."""
        return await self._write(claims.renew, owner, runs, ttl)

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None = None) -> None:
        """See ``RunStore.hold``."""
        self._writer.hold(run_id, epoch, lost)

    def let_go(self, run_id: str) -> None:
        """See ``RunStore.let_go``."""
        self._writer.let_go(run_id)

    async def commit(self, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
        """See ``RunStore.commit``."""
        return await self._write(write_commits, batch)

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        """See ``RunStore.commit_soon``; ``done`` is called on the thread that writes."""
        try:
            self._writer.submit(Job(lambda session: write_commits(session, batch), done))
        except StoreError as error:
            done(None, error)

    async def park(self, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> bool:
        """See ``RunStore.park``."""
        return await self._write(claims.park, run_id, owner, epoch, seq, wake_at)

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        """See ``RunStore.release``."""
        return await self._write(claims.release, run_id, owner, epoch)

    async def append(
        self, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"] = "event"
    ) -> Appended | Ended | None:
        """See ``RunStore.append``."""
        return await self._write(claims.append, run_id, key, payload, kind)

    async def unread(self, after: Mapping[str, int]) -> dict[str, list[InboxItem]]:
        """See ``RunStore.unread``."""
        return await self._read(reads.unread, dict(after))

    async def changed(self, seen: int) -> Changes:
        """See ``RunStore.changed``."""
        self._writer.check_open()
        changes = await self._hints.changed(seen)
        self._writer.check_open()
        return changes

    async def sweep(self, limit: int, grace: float) -> list[str]:
        """See ``RunStore.sweep``."""
        return await self._write(claims.sweep, limit, grace)

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        """See ``RunStore.read``."""
        return await self._read(reads.read, run_id, after, limit)

    async def read_parts(self, part_log: int) -> list[bytes]:
        """See ``PartStore.read_parts``."""
        return await self._read(read_parts, part_log)

    async def subscribe(self, run_id: str, after: int = 0) -> AsyncGenerator[StoredCommit]:
        """See ``RunStore.subscribe``."""
        check_run_id(run_id)
        number: int | None = None
        with self._hints.listening(run_id) as bell:
            while True:
                number, commits = await self._read(reads.follow, run_id, after, PAGE, number)
                for commit in commits:
                    after = commit.seq
                    yield commit
                if number is None:
                    return
                if not commits:
                    await bell.wait(LOST_HINT_SECONDS)

    async def info(self, run_id: str) -> RunInfo | None:
        """See ``RunStore.info``."""
        return await self._read(reads.info, run_id)

    async def list_runs(
        self,
        *,
        status: RunStatus | Sequence[RunStatus] | None = None,
        workflow: str | None = None,
        after: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> list[RunInfo]:
        """See ``RunStore.list_runs``."""
        statuses, having = check_listing(status, workflow, after, limit), check_metadata(metadata)
        return await self._read(listing.list_runs, statuses, workflow, after, limit, newest_first, having)

    # --- search -------------------------------------------------------------------------------------------------------

    async def outdated(self, limit: int) -> list[tuple[RunInfo, IndexEntry | None]]:
        """See ``SearchStore.outdated``."""
        return await self._write(searching.outdated, limit)

    async def count_outdated(self, most: int) -> int:
        """See ``SearchStore.count_outdated``."""
        return await self._write(searching.count_outdated, most)

    async def index(self, entries: Sequence[IndexEntry]) -> None:
        """See ``SearchStore.index``."""
        await self._write(searching.index, entries)

    async def search(
        self, query: RunQuery, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> list[RunInfo]:
        """See ``SearchStore.search``."""
        return await self._read(searching.search, check_query(query, after, limit), after, limit, newest_first)

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def fork(
        self, run_id: str, at: int, new_id: str, commits: Sequence[bytes] = ()
    ) -> Literal["forked", "exists", "unknown", "compacted"]:
        """See ``RunStore.fork``."""
        return await self._write(upkeep.fork, run_id, at, new_id, commits)

    async def delete(self, run_id: str, *, force: bool = False, conversation: bool = False) -> bool:
        """See ``RunStore.delete``."""
        return await self._write(upkeep.delete, run_id, force, conversation)

    async def compact(self, run_id: str) -> int:
        """See ``RunStore.compact``."""
        return await self._write(upkeep.compact, run_id)

    async def retain(self, *, seconds: float, limit: int = 1000) -> list[str]:
        """See ``RunStore.retain``."""
        found = await self._read(upkeep.to_retire, check_age(seconds), check_limit(limit))
        deleted: list[str] = []
        for begin in range(0, len(found), RETIRED_AT_ONCE):  # so that other operations get their turn
            deleted += await self._write(upkeep.delete_ended, found[begin : begin + RETIRED_AT_ONCE], seconds)
        return deleted

    # --- workers ------------------------------------------------------------------------------------------------------

    async def sign(self, sign: WorkerSign) -> bool:
        """See ``WorkerStore.sign``."""
        return await self._write(workers.sign, sign)

    async def sign_off(self, name: str) -> None:
        """See ``WorkerStore.sign_off``."""
        await self._write(workers.sign_off, name)

    async def workers(self) -> list[WorkerInfo]:
        """See ``WorkerStore.workers``."""
        return await self._read(workers.workers)

    async def drain(self, name: str) -> bool:
        """See ``WorkerStore.drain``."""
        return await self._write(workers.drain, name)

    async def queues(self) -> list[QueueInfo]:
        """See ``WorkerStore.queues``."""
        return await self._read(workers.queues)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def open_turn(self, turn: NewTurn, run: NewRun, owner: str, ttl: float) -> TurnOpened | TurnRefused:
        """See ``SessionStore.open_turn``."""
        return await self._write(sessions.open_turn, turn, run, owner, ttl)

    async def leave_queue(self, session: str, ticket: int) -> None:
        """See ``SessionStore.leave_queue``."""
        await self._write(sessions.leave_queue, session, ticket)

    async def read_session(self, session: str, request_id: str | None = None) -> StoredSession | None:
        """See ``SessionStore.read_session``."""
        return await self._read(sessions.read_session, session, request_id)

    async def read_turns(
        self,
        session: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = TURN_PAGE,
        newest_first: bool = False,
    ) -> list[StoredTurn]:
        """See ``SessionStore.read_turns``."""
        return await self._read(sessions.read_turns, session, after, before, limit, newest_first)

    async def list_sessions(
        self, workflow: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[StoredSession]:
        """See ``SessionStore.list_sessions``."""
        return await self._read(sessions.list_sessions, workflow, prefix, after, check_limit(limit))

    async def change_session(self, change: SessionChange) -> bool:
        """See ``SessionStore.change_session``."""
        return await self._write(sessions.change_session, change)

    @property
    def is_closed(self) -> bool:
        """Tell whether ``aclose`` was called."""
        return self._closed

    async def aclose(self) -> None:
        """See ``RunStore.aclose``. Queued commits are written first."""
        self._closed = True
        _stop(self._writer, self._readers)
        for threads in (self._readers, self._writer):
            ended = Bell()
            threads.when_ended(ended.ring)
            await ended.wait()
            threads.join()
        self._hints.close()

    async def _write(self, operation: Callable[..., T], *arguments: Any) -> T:
        return await outcome(self._writer, lambda session: operation(session, *arguments))

    async def _read(self, operation: Callable[..., T], *arguments: Any) -> T:
        if not self._writer.was_opened:
            # Only a writer creates the file, and refuses a file of another program.
            await self._write(_nothing)
        return await outcome(self._readers, lambda session: operation(session, *arguments))


def _nothing(_session: DatabaseSession) -> None:
    return None


def _stop(writer: Writer, readers: Readers) -> None:
    readers.stop()
    readers.when_ended(writer.stop)  # only the last writer removes the log


_stores: "weakref.WeakSet[SQLiteStore]" = weakref.WeakSet()
_left_to_parents: list[tuple[Writer, Readers]] = []


def _after_fork_in_child() -> None:
    forget_all()
    for store in list(_stores):
        store._after_fork()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

"""A RunStore in a PostgreSQL database, for any number of processes of any number of machines."""

import asyncio
import os
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

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
from batonflow.durable.stores import postgres_claims as claims
from batonflow.durable.stores import postgres_reads as reads
from batonflow.durable.stores import postgres_search as searching
from batonflow.durable.stores import postgres_sessions as sessions
from batonflow.durable.stores import postgres_upkeep as upkeep
from batonflow.durable.stores import postgres_workers as workers
from batonflow.durable.stores.bounds import (
    check_age,
    check_commit_number,
    check_durability,
    check_lease,
    check_limit,
    check_listing,
    check_metadata,
    check_query,
    check_run_id,
)
from batonflow.durable.stores.hints import Bell
from batonflow.durable.stores.postgres_commits import write_commits
from batonflow.durable.stores.postgres_connection import Database, one_connection
from batonflow.durable.stores.postgres_rows import Steps
from batonflow.durable.stores.postgres_schema import is_newest
from batonflow.durable.stores.postgres_threads import Readers, Writer
from batonflow.durable.stores.threads import Job, forget_all, outcome
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign
from batonflow.values.types import is_whole
from batonflow.workflow_core.errors import StoreError

__all__ = ["PostgresStore"]

T = TypeVar("T")

PAGE = 500
"""The number of commits that a subscriber reads at once."""
LOST_HINT_SECONDS = 1.0
"""After so long a subscriber looks for itself, as a hint may have been lost."""
RETIRED_AT_ONCE = 20
_LARGEST_LIMIT = 2**31 - 1


class PostgresStore(StoredHistory):
    """A store of runs in a PostgreSQL database, for any number of processes of any number of machines.

    The database is reached at first use, which creates the tables in a schema of their own. One object serves all event
    loops and threads of a process. After a ``fork``, the child's copy is a separate store with another ``owner``.

    Two kinds of connections are made: some for operations, and one that holds the locks of the owners, and receives and
    sends notifications. The clock of the database decides on leases and timers.

    Args:
        dsn: The address of the database.
        schema: The schema; stores with different schemas are separate.
        pool: The largest number of connections for operations: one to write, the others to read.
        durability: The failures that a commit survives: ``"power"``: also a power failure of the server;
            ``"process"``: the end of processes, but the last moments before a crash of the server may be lost.
        lease_seconds: Seconds without a renewal (a suspended process, a machine without a network) after which another
            process may claim a run; runs of an ended process are free at once. Leases are renewed three times in that
            time.
        listen_dsn: An address that leads directly to the server, if ``dsn`` is that of a pooler.

    Raises:
        StoreError: ``dsn`` is not an address, or the value of an option is not allowed.

    Example:
        >>> store = PostgresStore("postgresql://app@db/prod")
        >>> await store.info("order-17")
    """

    def __init__(
        self,
        dsn: str,
        schema: str = "batonflow",
        *,
        pool: int = 4,
        durability: Literal["process", "power"] = "power",
        lease_seconds: float = LEASE_SECONDS,
        listen_dsn: str | None = None,
    ) -> None:
        check_durability(durability)
        if not is_whole(pool, least=2):
            raise StoreError(f"pool={pool!r}: give a whole number of connections, 2 or more")
        self.lease_seconds = check_lease(lease_seconds)
        self.durability: Literal["process", "power"] = durability
        self._place = dsn, schema, listen_dsn
        self._pool = pool
        self._begin()
        _stores.add(self)

    def __repr__(self) -> str:
        return f"PostgresStore({self.address!r}, {self.schema!r}, durability={self.durability!r})"

    def _begin(self) -> None:
        """Set up the parts that belong to one process, without connections."""
        self._owner = secrets.token_hex(8)
        dsn, schema, listen_dsn = self._place
        self._database = Database(dsn, schema, self.durability, listen_dsn)
        self._writer = Writer(self._database)
        self._hints = self._writer.hints
        self._readers = Readers(self._database, self._writer.listener, self._pool - 1)
        self._finalizer = weakref.finalize(self, _stop, self._writer, self._readers)
        self._finalizer.atexit = False  # its threads are joined there
        self._closed = False

    def _after_fork(self) -> None:
        """Start again in a forked child, and leave all connections to the parent."""
        self._finalizer.detach()
        # Kept, because closing them would end the sessions that the parent uses.
        _left_to_parents.append((self._writer, self._readers))
        self._begin()

    @property
    def address(self) -> str:
        """The address of the database, without user and password."""
        return self._database.address

    @property
    def direct_dsn(self) -> str:
        """The address that leads directly to the server, with user and password, for other libraries."""
        dsn, _, listen_dsn = self._place
        return listen_dsn or dsn

    @property
    def schema(self) -> str:
        """The schema of the tables."""
        return self._database.schema

    @property
    def owner(self) -> str:
        """See ``RunStore.owner``."""
        return self._owner

    async def has_tables(self) -> bool:
        """Tell whether the tables are there, in the newest version. Nothing is created or changed.

        Raises:
            StoreError: The database cannot be reached or used, or its tables have a newer version.
        """
        return await asyncio.to_thread(self._has_tables)

    def _has_tables(self) -> bool:
        with one_connection(self.direct_dsn, self.schema) as connection:
            return is_newest(connection, self.schema, self.address)

    keeps_parts = True

    async def create(self, run: NewRun, owner: str | None, ttl: float) -> Created | Existing:
        """See ``RunStore.create``."""
        return await self._write(claims.create, run, owner, ttl, _nonce())

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
        return await self._write(claims.claim_due, owner, ttl, _limit(limit), serves, queues, skip, _nonce())

    async def release_held(self, run_id: str) -> bool:
        """See ``RunStore.release_held``."""
        return await self._write(claims.release_held, run_id)

    async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
        """See ``RunStore.load``."""
        check_commit_number(at)
        return await self._read(reads.load, run_id, at, is_patient=True)

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
            self._writer.submit(Job(lambda writing: write_commits(writing, batch), done))
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
        return await self._read(reads.unread, dict(after), is_patient=True)

    async def changed(self, seen: int) -> Changes:
        """See ``RunStore.changed``."""
        self._writer.check_open()
        changes = await self._hints.changed(seen)
        self._writer.check_open()
        return changes

    async def sweep(self, limit: int, grace: float) -> list[str]:
        """See ``RunStore.sweep``."""
        return await self._write(claims.sweep, _limit(limit), grace)

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        """See ``RunStore.read``."""
        return await self._read(reads.read, run_id, after, _limit(limit), is_patient=True)

    async def read_parts(self, part_log: int) -> list[bytes]:
        """See ``PartStore.read_parts``."""
        return await self._read(reads.read_parts, part_log, is_patient=True)

    async def subscribe(self, run_id: str, after: int = 0) -> AsyncGenerator[StoredCommit]:
        """See ``RunStore.subscribe``."""
        check_run_id(run_id)
        number: int | None = None
        with self._hints.listening(run_id) as bell:
            while True:
                number, commits = await self._read(reads.follow, run_id, after, PAGE, number, is_patient=True)
                for commit in commits:
                    after = commit.seq
                    yield commit
                if number is None:
                    return
                if not commits:
                    await bell.wait(LOST_HINT_SECONDS)

    async def info(self, run_id: str) -> RunInfo | None:
        """See ``RunStore.info``."""
        return await self._read(reads.info, run_id, is_patient=True)

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
        return await self._read(reads.list_runs, statuses, workflow, after, _limit(limit), newest_first, having)

    # --- search -------------------------------------------------------------------------------------------------------

    async def outdated(self, limit: int) -> list[tuple[RunInfo, IndexEntry | None]]:
        """See ``SearchStore.outdated``."""
        return await self._read(searching.outdated, _limit(limit))

    async def count_outdated(self, most: int) -> int:
        """See ``SearchStore.count_outdated``."""
        return await self._read(searching.count_outdated, _limit(most))

    async def index(self, entries: Sequence[IndexEntry]) -> None:
        """See ``SearchStore.index``."""
        await self._write(searching.index, entries)

    async def search(
        self, query: RunQuery, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> list[RunInfo]:
        """See ``SearchStore.search``."""
        return await self._read(searching.search, check_query(query, after, limit), after, _limit(limit), newest_first)

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def fork(
        self, run_id: str, at: int, new_id: str, commits: Sequence[bytes] = ()
    ) -> Literal["forked", "exists", "unknown", "compacted"]:
        """See ``RunStore.fork``."""
        return await self._write(upkeep.fork, run_id, at, new_id, commits, _nonce())

    async def delete(self, run_id: str, *, force: bool = False, conversation: bool = False) -> bool:
        """See ``RunStore.delete``."""
        return await self._write(upkeep.delete, run_id, force, conversation, [])

    async def compact(self, run_id: str) -> int:
        """See ``RunStore.compact``."""
        return await self._write(upkeep.compact, run_id)

    async def retain(self, *, seconds: float, limit: int = 1000) -> list[str]:
        """See ``RunStore.retain``."""
        check_age(seconds)
        left = check_limit(limit)
        deleted: list[str] = []
        while left > 0:  # in small steps, so that other operations get their turn
            found = await self._write(upkeep.retire, seconds, min(left, RETIRED_AT_ONCE))
            deleted += found
            left = left - len(found) if found else 0
        return deleted

    # --- live streams -------------------------------------------------------------------------------------------------

    def follow_live(self, run_id: str, heard: Callable[[str], None]) -> Callable[[], None]:
        """See ``LiveStore.follow_live``."""
        return self._hints.follow_live(run_id, heard)

    def ask_live(self, run_id: str, after: int, commit: int) -> None:
        """See ``LiveStore.ask_live``."""
        self._writer.listener.ask_live(run_id, after, commit)

    def tell_live(self, run_id: str, message: str) -> None:
        """See ``LiveStore.tell_live``."""
        self._writer.listener.tell_live(run_id, message)

    def when_asked(self, asked: Callable[[str, int, int], None]) -> None:
        """See ``LiveStore.when_asked``."""
        self._hints.when_asked(asked)

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
        return await self._write(sessions.open_turn, turn, run, owner, ttl, _nonce())

    async def leave_queue(self, session: str, ticket: int) -> None:
        """See ``SessionStore.leave_queue``."""
        await self._write(sessions.leave_queue, session, ticket)

    async def read_session(self, session: str, request_id: str | None = None) -> StoredSession | None:
        """See ``SessionStore.read_session``."""
        return await self._read(sessions.read_session, session, request_id, is_patient=True)

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
        return await self._read(sessions.read_turns, session, after, before, _limit(limit), newest_first)

    async def list_sessions(
        self, workflow: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[StoredSession]:
        """See ``SessionStore.list_sessions``."""
        return await self._read(sessions.list_sessions, workflow, prefix, after, _limit(limit))

    async def change_session(self, change: SessionChange) -> bool:
        """See ``SessionStore.change_session``."""
        return await self._write(sessions.change_session, change, _nonce())

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

    async def _write(self, operation: Callable[..., Steps[T]], *arguments: Any) -> T:
        return await outcome(self._writer, lambda writing: operation(writing, *arguments))

    async def _read(self, operation: Callable[..., Steps[T]], *arguments: Any, is_patient: bool = False) -> T:
        """Read; ``is_patient`` is for reads of driven runs, which go on during an outage."""
        return await outcome(self._readers, lambda _writing: operation(*arguments), is_patient=is_patient)


def _limit(limit: int) -> int:
    return min(check_limit(limit), _LARGEST_LIMIT)


def _nonce() -> int:
    """Return the number of a call, by which a repetition is recognized."""
    return secrets.randbits(62)


def _stop(writer: Writer, readers: Readers) -> None:
    readers.stop()
    writer.stop()


_stores: "weakref.WeakSet[PostgresStore]" = weakref.WeakSet()
_left_to_parents: list[tuple[Writer, Readers]] = []


def _after_fork_in_child() -> None:
    forget_all()
    for store in list(_stores):
        store._after_fork()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

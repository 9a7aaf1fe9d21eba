"""A RunStore in the memory of this process."""

import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice
from typing import Literal

from batonflow.clock import current_source
from batonflow.durable.history import StoredHistory
from batonflow.durable.parts.references import whole_result, without_references
from batonflow.durable.search_protocol import IndexEntry, RunQuery
from batonflow.durable.session_protocol import NewTurn, SessionChange, TurnOpened, TurnRefused
from batonflow.durable.store_protocol import (
    ENDS,
    LEASE_SECONDS,
    MOST_ATTEMPTS,
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
from batonflow.durable.stores.attempts import SUSPECT_ATTEMPTS, held_words, pause_after
from batonflow.durable.stores.bounds import (
    check_age,
    check_commit,
    check_commit_number,
    check_fork,
    check_lease,
    check_limit,
    check_listing,
    check_metadata,
    check_new_run,
    check_owner,
    check_payload,
    check_query,
    check_run_id,
    driven,
    in_session,
    no_run_after,
)
from batonflow.durable.stores.claim_bounds import claim_within_bounds
from batonflow.durable.stores.hints import Hints
from batonflow.durable.stores.memory_parts import PartLog, PartLogs
from batonflow.durable.stores.memory_search import MemoryIndex
from batonflow.durable.stores.memory_sessions import SessionsInMemory, SessionTable
from batonflow.durable.stores.memory_workers import WorkerTable, queue_infos
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign
from batonflow.workflow_core.errors import StoreError

__all__ = ["MemoryStore"]

LOST_HINT_SECONDS = 1.0
"""After so long a subscriber looks for itself, as a hint may have been lost."""

_COMMITTED = CommitVerdict("committed")
_FENCED = CommitVerdict("fenced")


@dataclass(slots=True)
class _Item:
    """An inbox item, with the last commit before its arrival and the first commit that used it."""

    item: InboxItem
    came: int
    used: int | None = None


@dataclass(slots=True)
class _Run:
    """A run. The commit with number n is ``bodies[n - 1 - compacted]``."""

    new: NewRun
    created_at: float
    updated_at: float
    status: RunStatus = "ready"
    owner: str | None = None
    epoch: int = 0
    claimed_at: float | None = None
    lease_until: float | None = None
    ttl: float = 0.0
    seq: int = 0
    compacted: int = 0
    stream_seq: int = 0
    wake_at: float | None = None
    due_at: float | None = None
    is_later: bool = False  # it is not taken up before its due_at
    attempts: int = 0
    held: str = ""
    bodies: list[bytes] = field(default_factory=list[bytes])
    times: list[float] = field(default_factory=list[float])
    snapshots: dict[int, bytes] = field(default_factory=dict[int, bytes])
    inbox: list[_Item] = field(default_factory=list[_Item])
    keys: dict[str, int] = field(default_factory=dict[str, int])
    unread: int = 0
    result: bytes | None = None
    forked_from: tuple[str, int] | None = None
    session: str = ""
    log: PartLog = field(default_factory=lambda: PartLog(0))

    def stored(self, after: int, last: int) -> list[StoredCommit]:
        """Return the commits after ``after``, up to ``last``."""
        first = max(after, self.compacted)
        begin, end = first - self.compacted, max(first, last) - self.compacted
        return [
            StoredCommit(seq, at, body)
            for seq, (at, body) in enumerate(zip(self.times[begin:end], self.bodies[begin:end], strict=True), first + 1)
        ]

    def whole(self, after: int, limit: int | None = None) -> list[StoredCommit]:
        """Return the commits after ``after`` without references, up to a limit."""
        return without_references(self.stored(after, self.seq)[:limit], self.log.parts)


@dataclass(slots=True)
class _Shared:
    """The contents that several stores in memory share."""

    runs: dict[str, _Run] = field(default_factory=dict[str, _Run])
    epoch_floor: int = 0
    owners: set[str] = field(default_factory=set[str])
    held: dict[str, int] = field(default_factory=dict[str, int])
    lock: threading.RLock = field(default_factory=threading.RLock)
    hints: Hints = field(default_factory=Hints)
    logs: PartLogs = field(default_factory=PartLogs)
    index: MemoryIndex = field(default_factory=MemoryIndex)
    sessions: SessionTable = field(init=False)
    workers: WorkerTable = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = SessionTable(self.runs.__contains__, self.owners.__contains__)
        self.workers = WorkerTable(self.owners.__contains__, self._count_runs)

    def _count_runs(self, owner: str) -> int:
        return sum(run.status == "running" and run.owner == owner for run in self.runs.values())


class MemoryStore(SessionsInMemory, StoredHistory):
    """A store of runs in the memory of this process (``store="memory:"``), for all event loops and threads.

    Args:
        beside: Another store with which to share runs under a different owner, like a second process on one database.
        lease_seconds: Seconds without a renewal after which another owner may claim a run.

    Raises:
        StoreError: ``lease_seconds`` is not a number of seconds above 0.

    Example:
        >>> store = MemoryStore()
        >>> await store.create(NewRun("order-17", "Orders", digest="a1"), store.owner, ttl=15)
        Created(epoch=1)
    """

    def __init__(self, *, beside: "MemoryStore | None" = None, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_seconds = check_lease(lease_seconds)
        self._owner = secrets.token_hex(8)
        self._shared = _Shared() if beside is None else beside._shared
        self._lock = self._shared.lock
        self._hints = self._shared.hints
        self._runs = self._shared.runs
        self._sessions = self._shared.sessions
        self._names: set[str] = set()

    @property
    def owner(self) -> str:
        """See ``RunStore.owner``."""
        return self._owner

    keeps_parts = True

    async def create(self, run: NewRun, owner: str | None, ttl: float) -> Created | Existing:
        """See ``RunStore.create``."""
        check_new_run(run)
        with self._lock:
            existing = self._runs.get(run.run_id)
            if existing is not None:
                return Existing(self._info(existing))
            created = self._create(run, owner, ttl)
        if owner is None:
            self._hints.appended(())
        return created

    def _create(self, run: NewRun, owner: str | None, ttl: float) -> Created:
        now = current_source().now()
        log = self._shared.logs.for_run(run, self._is_unfinished)
        run = replace(run, parts=())  # the log has them
        created = _Run(run, now, now, epoch=self._shared.epoch_floor, stream_seq=run.stream_seq, log=log)
        if owner is None:
            created.due_at, created.is_later = max(now, run.not_before or now), run.not_before is not None
        else:
            self._own(created, owner, ttl)
        if run.first is not None:
            created.bodies, created.times, created.seq = [run.first], [now], 1
        self._runs[run.run_id] = created
        return Created(created.epoch, log.number)

    def _is_unfinished(self, run_id: str) -> bool:
        run = self._runs.get(run_id)
        return run is not None and run.status not in ENDS

    def _own(self, run: _Run, owner: str, ttl: float) -> None:
        if owner not in self._names:
            self._vouch(check_owner(owner))
        source = current_source()
        if run.status == "running" and run.owner != owner:
            run.attempts += 1
        run.status, run.owner, run.epoch, run.due_at, run.held = "running", owner, run.epoch + 1, None, ""
        run.claimed_at = run.updated_at = source.now()
        run.lease_until, run.ttl = source.monotonic() + ttl, ttl

    def _vouch(self, owner: str) -> None:
        if owner in self._shared.owners:
            raise StoreError(f"Owner {owner!r} is in use by another store: use store.owner as the name")
        self._names.add(owner)
        self._shared.owners.add(owner)

    def _lease_left(self, run: _Run) -> float:
        if run.lease_until is None:
            return 0.0
        if self._shared.held.get(run.new.run_id) == run.epoch and run.owner in self._shared.owners:
            return run.ttl
        return max(0.0, run.lease_until - current_source().monotonic())

    def _driven(self, run: _Run) -> bool:
        return run.status == "running" and run.owner in self._shared.owners and self._lease_left(run) > 0

    async def claim(
        self, run_id: str, owner: str, ttl: float, *, only_due: bool = False
    ) -> Claimed | Busy | Ended | NotDue | None:
        """See ``RunStore.claim``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None:
                return None
            if run.status in ENDS:
                return Ended(self._info(run))
            if run.owner is not None and run.owner != owner and self._driven(run):
                return Busy(run.owner, run.claimed_at or run.created_at, self._lease_left(run))
            if only_due and run.status == "waiting" and not run.unread and not self._is_due(run):
                return NotDue(run.wake_at)
            return self._take(run, owner, ttl)

    def _is_due(self, run: _Run) -> bool:
        return run.wake_at is not None and run.wake_at <= current_source().now()

    def _take(self, run: _Run, owner: str, ttl: float) -> Claimed:
        due_at = run.due_at
        self._own(run, owner, ttl)
        delay = 0.0 if due_at is None else max(0.0, run.updated_at - due_at)
        return Claimed(run.new.run_id, run.epoch, run.seq, run.stream_seq, run.new.workflow, delay=delay)

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

        def claim_some(most: int, served: Sequence[Serves] | None) -> list[Claimed]:
            wanted = [run for run in self._runs.values() if _is_wanted(run.new, served, queues, skip)]
            taken: list[Claimed] = []
            for run in self._left_behind(wanted):
                if len(taken) == most:
                    return taken
                if run.attempts:
                    _pause(run)
                else:
                    taken.append(self._take(run, owner, ttl))
            drives_suspect = self._drives_suspect(owner)
            for run in self._to_drive(wanted, grace=0.0):
                is_suspect = run.attempts >= SUSPECT_ATTEMPTS
                if len(taken) < most and not (is_suspect and drives_suspect):
                    drives_suspect |= is_suspect
                    taken.append(self._take(run, owner, ttl))
            return taken

        with self._lock:
            return claim_within_bounds(limit, serves, self._count_driven, claim_some)

    def _count_driven(self, workflow: str) -> int:
        """Count the runs of a workflow that live owners drive."""
        return sum(run.new.workflow == workflow and self._driven(run) for run in self._runs.values())

    def _drives_suspect(self, owner: str) -> bool:
        runs = self._runs.values()
        return any(run.owner == owner and run.attempts >= SUSPECT_ATTEMPTS for run in runs if run.status == "running")

    async def release_held(self, run_id: str) -> bool:
        """See ``RunStore.release_held``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None or not run.held:
                return False
            run.attempts = 0
            _make_ready(run)
        self._hints.appended(())
        return True

    def _left_behind(self, runs: Iterable[_Run]) -> list[_Run]:
        """Return runs with a dead owner or an expired lease, the longest first."""
        left = [run for run in runs if run.status == "running" and not self._driven(run)]
        return sorted(left, key=lambda run: run.updated_at)

    def _to_drive(self, runs: Iterable[_Run], grace: float) -> list[_Run]:
        """Return ready and due runs, by priority, the longest waiting first."""
        now = current_source().now()
        found = [run for run in runs if (run.status == "waiting" and self._is_due(run)) or _is_ready(run, now, grace)]
        return sorted(found, key=lambda run: (-run.new.priority, run.due_at or run.wake_at or 0.0))

    async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
        """See ``RunStore.load``."""
        check_commit_number(at)
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None:
                return None
            last = run.seq if at is None else at
            if not 0 <= last <= run.seq:
                raise StoreError(f"Run {run_id!r} has no commit {at}: its commits are numbered from 1 to {run.seq}")
            first = max((seq for seq in run.snapshots if seq <= last), default=0)
            if first < run.compacted and first < last:
                raise StoreError(
                    f"Commit {at} of run {run_id!r} is not kept any more: commits up to {run.compacted} were dropped"
                )
            inbox = [
                entry.item
                for entry in run.inbox
                if (entry.used is None if at is None else entry.came <= at and (entry.used is None or entry.used > at))
            ]
            snapshot = (first, run.snapshots[first]) if first in run.snapshots else None
            commits = run.stored(first, last)
            return Loaded(self._info(run), snapshot, commits, inbox, run.log.parts(), run.log.number)

    async def renew(self, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> list[str]:
        """See ``RunStore.renew``."""
        lost: list[str] = []
        with self._lock:
            for run_id, epoch in runs:
                run = self._runs.get(check_run_id(run_id))
                if run is None or not _is_owned(run, owner, epoch):
                    lost.append(run_id)
                else:
                    run.lease_until, run.ttl = current_source().monotonic() + ttl, ttl
        return lost

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None = None) -> None:  # noqa: ARG002
        """See ``RunStore.hold``. The lease lasts as long as its owner lives."""
        with self._lock:
            self._shared.held[run_id] = epoch

    def let_go(self, run_id: str) -> None:
        """See ``RunStore.let_go``."""
        with self._lock:
            self._shared.held.pop(run_id, None)
            run = self._runs.get(run_id)
            if run is not None and run.lease_until is not None:
                run.lease_until = max(run.lease_until, current_source().monotonic() + run.ttl)

    async def commit(self, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
        """See ``RunStore.commit``."""
        return self._commit(batch)

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        """See ``RunStore.commit_soon``; ``done`` is called before this returns."""
        try:
            verdicts = self._commit(batch)
        except StoreError as error:
            done(None, error)
        else:
            done(verdicts, None)

    def _commit(self, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
        for entry in batch:
            check_commit(entry)
        source = current_source()
        now, monotonic = source.now(), source.monotonic()
        with self._lock:
            verdicts = [self._write(entry, now, monotonic) for entry in batch]
        if self._hints.wanted:
            self._hints.committed(entry.run_id for entry in batch)
        return verdicts

    def _write(self, entry: RunCommit, now: float, monotonic: float) -> CommitVerdict:
        run = self._runs.get(entry.run_id)
        if run is None:
            return _FENCED
        if run.seq != entry.expected_seq or not _is_owned(run, entry.owner, entry.epoch):
            return CommitVerdict("already", run.unread > 0) if _was_written(run, entry) else _FENCED
        if entry.consumed:
            _use(run, entry)
        if entry.parts:
            run.log.add(entry.first_part, entry.parts)
        count = len(entry.commits)
        run.bodies += entry.commits
        run.times += [now] * count
        run.seq += count
        if count:
            run.attempts = 0
        run.updated_at, run.wake_at = now, entry.wake_at
        run.lease_until, run.ttl = monotonic + entry.ttl, entry.ttl
        if entry.stream_seq > run.stream_seq:  # noqa: PLR1730 - a call would cost more, and this is often done
            run.stream_seq = entry.stream_seq
        if entry.snapshot is not None:
            run.snapshots[run.seq] = entry.snapshot
        if entry.status is not None:
            run.status, run.result = entry.status, entry.result
            run.owner = run.lease_until = run.wake_at = None
            if run.session:
                self._sessions.end_turn(run.session, entry.run_id, entry.status, entry.turn or b"")
        return CommitVerdict("committed", unread=True) if run.unread else _COMMITTED

    async def park(self, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> bool:
        """See ``RunStore.park``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None or not _is_owned(run, owner, epoch) or run.seq != seq or run.unread:
                return False
            run.status, run.wake_at, run.updated_at = "waiting", wake_at, current_source().now()
            run.owner = run.lease_until = run.due_at = None
            return True

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        """See ``RunStore.release``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None or not _is_owned(run, owner, epoch):
                return False
            _make_ready(run)
            return True

    async def append(
        self, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"] = "event"
    ) -> Appended | Ended | None:
        """See ``RunStore.append``."""
        check_payload(run_id, key, payload)
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return None
            if key in run.keys:
                return Appended(run.keys[key], new=False)
            if run.status in ENDS:
                return Ended(self._info(run))
            position = run.keys[key] = len(run.inbox) + 1
            run.updated_at = current_source().now()
            run.inbox.append(_Item(InboxItem(position, key, kind, payload, run.updated_at), run.seq))
            run.unread += 1
            if waits := run.status == "waiting":
                _make_ready(run)
        self._hints.appended([run_id], ready=waits)
        return Appended(position, new=True)

    async def unread(self, after: Mapping[str, int]) -> dict[str, list[InboxItem]]:
        """See ``RunStore.unread``."""
        items: dict[str, list[InboxItem]] = {}
        with self._lock:
            for run_id, position in after.items():
                run = self._runs.get(run_id)
                if run is not None and run.unread:
                    found = [entry.item for entry in run.inbox[position:] if entry.used is None]
                    if found:
                        items[run_id] = found
        return items

    async def changed(self, seen: int) -> Changes:
        """See ``RunStore.changed``."""
        return await self._hints.changed(seen)

    async def sweep(self, limit: int, grace: float) -> list[str]:
        """See ``RunStore.sweep``."""
        with self._lock:
            left = self._left_behind(self._runs.values())[:limit]
            rung = [run.new.run_id for run in left if _pause(run)]
            runs = [run for run in self._to_drive(self._runs.values(), grace) if run.new.run_id not in rung]
            runs = runs[: limit - len(rung)]
            for run in runs:
                _make_ready(run)
            return [*rung, *(run.new.run_id for run in runs)]

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        """See ``RunStore.read``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            return [] if run is None else run.whole(after, limit)

    async def read_parts(self, part_log: int) -> list[bytes]:
        """See ``PartStore.read_parts``."""
        with self._lock:
            log = self._shared.logs.find(part_log)
            return [] if log is None else log.parts()

    async def subscribe(self, run_id: str, after: int = 0) -> AsyncGenerator[StoredCommit]:
        """See ``RunStore.subscribe``."""
        meant = self._runs.get(check_run_id(run_id))
        with self._hints.listening(run_id) as bell:
            while meant is not None and self._runs.get(run_id) is meant:
                with self._lock:
                    commits, over = meant.whole(after), meant.status in ENDS
                for commit in commits:
                    after = commit.seq
                    yield commit
                if over:
                    return
                if not commits:
                    await bell.wait(LOST_HINT_SECONDS)

    async def info(self, run_id: str) -> RunInfo | None:
        """See ``RunStore.info``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            return None if run is None else self._info(run)

    def _info(self, run: _Run) -> RunInfo:
        return RunInfo(
            run_id=run.new.run_id,
            workflow=run.new.workflow,
            version=run.new.version,
            digest=run.new.digest,
            shape=run.new.shape,
            status=run.status,
            owner=run.owner,
            owner_alive=run.owner in self._shared.owners,
            lease_left=self._lease_left(run),
            claimed_at=run.claimed_at,
            epoch=run.epoch,
            seq=run.seq,
            stream_seq=run.stream_seq,
            wake_at=run.wake_at,
            unread=run.unread,
            created_at=run.created_at,
            updated_at=run.updated_at,
            result=None if run.result is None else whole_result(run.result, run.log.parts),
            forked_from=run.forked_from,
            metadata=run.new.metadata or {},
            session=run.session,
            queue=run.new.queue,
            priority=run.new.priority,
            attempts=run.attempts,
            held=run.held,
        )

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
        statuses = check_listing(status, workflow, after, limit)
        wanted = (check_metadata(metadata) or {}).items()
        with self._lock:
            return [
                self._info(run)
                for run in islice(
                    (
                        run
                        for run in self._behind(after, newest_first)
                        if (statuses is None or run.status in statuses)
                        and (workflow is None or run.new.workflow == workflow)
                        and wanted <= (run.new.metadata or {}).items()
                    ),
                    limit,
                )
            ]

    def _behind(self, after: str | None, newest_first: bool) -> Iterator[_Run]:
        """Yield the runs after one in the order of their creation."""
        if after is not None and after not in self._runs:
            raise no_run_after(after)
        ordered = iter(reversed(self._runs.values()) if newest_first else self._runs.values())
        if after is not None:
            ordered = dropwhile(lambda run: run.new.run_id != after, ordered)
            next(ordered)
        return ordered

    async def outdated(self, limit: int) -> list[tuple[RunInfo, IndexEntry | None]]:
        """See ``SearchStore.outdated``."""
        index = self._shared.index
        with self._lock:
            late = sorted(self._late(), key=lambda run: index.entry(run.new.run_id) is not None)
            return [(self._info(run), index.entry(run.new.run_id)) for run in late[:limit]]

    def _late(self) -> list[_Run]:
        is_late = self._shared.index.is_late
        return [run for run in self._runs.values() if is_late(run.new.run_id, run.created_at, run.seq)]

    async def count_outdated(self, most: int) -> int:
        """See ``SearchStore.count_outdated``."""
        with self._lock:
            return min(len(self._late()), most)

    async def index(self, entries: Sequence[IndexEntry]) -> None:
        """See ``SearchStore.index``."""
        with self._lock:
            for entry in entries:
                run = self._runs.get(entry.run_id)
                if run is not None and run.created_at == entry.created_at:
                    self._shared.index.write(entry)

    async def search(
        self, query: RunQuery, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> list[RunInfo]:
        """See ``SearchStore.search``."""
        query = check_query(query, after, limit)
        with self._lock:
            infos = map(self._info, self._behind(after, newest_first))
            return list(islice((info for info in infos if self._shared.index.matches(info, query)), limit))

    async def fork(
        self, run_id: str, at: int, new_id: str, commits: Sequence[bytes] = ()
    ) -> Literal["forked", "exists", "unknown", "compacted"]:
        """See ``RunStore.fork``."""
        check_fork(new_id, at, commits)
        with self._lock:
            source = self._runs.get(check_run_id(run_id))
            if source is None or not 0 <= at <= source.seq:
                return "unknown"
            if new_id in self._runs:
                return "exists"
            snapshot = max((seq for seq in source.snapshots if seq <= at), default=0)
            if snapshot < min(at, source.compacted):
                return "compacted"
            now = current_source().now()
            new = replace(source.new, run_id=new_id, first=None, not_before=None)
            log = self._shared.logs.new(source.log, source.log.length)
            log.writer = new_id
            fork = _Run(new, now, now, epoch=self._shared.epoch_floor, due_at=now, forked_from=(run_id, at))
            fork.log = log
            fork.seq, fork.stream_seq, fork.compacted = at + len(commits), source.stream_seq, min(source.compacted, at)
            kept = at - fork.compacted
            fork.bodies = [*source.bodies[:kept], *commits]
            fork.times = [*source.times[:kept], *(now for _ in commits)]
            if snapshot in source.snapshots:
                fork.snapshots[snapshot] = source.snapshots[snapshot]
            self._runs[new_id] = fork
            return "forked"

    async def delete(self, run_id: str, *, force: bool = False, conversation: bool = False) -> bool:
        """See ``RunStore.delete``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None:
                return False
            first = run.log.first
            found = [one for one in self._runs.values() if one.log.first is first] if conversation else [run]
            for one in found:
                if conversation and one.session:
                    raise in_session(one.new.run_id)
                if not force and self._driven(one):
                    raise driven(one.new.run_id, one.owner)
            for one in found:
                self._remove(one)
            return True

    def _remove(self, run: _Run) -> None:
        del self._runs[run.new.run_id]
        if run.session and run.status not in ENDS:
            self._sessions.end_turn(run.session, run.new.run_id, "cancelled", b"")
        self._shared.index.forget(run.new.run_id)
        self._shared.epoch_floor = max(self._shared.epoch_floor, run.epoch)
        self._hints.committed([run.new.run_id])

    async def compact(self, run_id: str) -> int:
        """See ``RunStore.compact``."""
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
            if run is None or not run.snapshots:
                return 0
            newest = max(run.snapshots)
            dropped = max(0, newest - run.compacted)
            del run.bodies[:dropped], run.times[:dropped]
            run.snapshots = {newest: run.snapshots[newest]}
            run.compacted = max(run.compacted, newest)
            return dropped

    async def retain(self, *, seconds: float, limit: int = 1000) -> list[str]:
        """See ``RunStore.retain``."""
        with self._lock:
            before, limit = current_source().now() - check_age(seconds), check_limit(limit)
            ended = [run for run in self._runs.values() if run.status in ENDS and run.updated_at < before]
            ended.sort(key=lambda run: run.updated_at)
            for run in ended[:limit]:
                self._remove(run)
            return [run.new.run_id for run in ended[:limit]]

    # --- workers ------------------------------------------------------------------------------------------------------

    async def sign(self, sign: WorkerSign) -> bool:
        """See ``WorkerStore.sign``."""
        with self._lock:
            if sign.owner not in self._names:
                self._vouch(check_owner(sign.owner))
            return self._shared.workers.sign(sign)

    async def sign_off(self, name: str) -> None:
        """See ``WorkerStore.sign_off``."""
        with self._lock:
            self._shared.workers.sign_off(name)

    async def workers(self) -> list[WorkerInfo]:
        """See ``WorkerStore.workers``."""
        with self._lock:
            return self._shared.workers.all()

    async def drain(self, name: str) -> bool:
        """See ``WorkerStore.drain``."""
        with self._lock:
            return self._shared.workers.drain(name)

    async def queues(self) -> list[QueueInfo]:
        """See ``WorkerStore.queues``."""
        now = current_source().now()
        with self._lock:
            runs = [run for run in self._runs.values() if run.status not in ENDS]
            found = [
                (
                    run.new.queue,
                    run.new.workflow,
                    run.new.version,
                    self._standing(run, now),
                    run.due_at or run.updated_at,
                )
                for run in runs
            ]
        return queue_infos(found, now)

    def _standing(self, run: _Run, now: float) -> str:
        """Return the status of an unfinished run, with held runs and runs of a later time apart."""
        if run.status == "running" and run.owner not in self._shared.owners:
            return "ready"
        if run.status != "ready":
            return run.status
        if run.held:
            return "held"
        return "later" if run.is_later and (run.due_at or 0.0) > now else "ready"

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def open_turn(self, turn: NewTurn, run: NewRun, owner: str, ttl: float) -> TurnOpened | TurnRefused:
        """See ``SessionStore.open_turn``."""
        check_new_run(run)
        with self._lock:
            if owner not in self._names:
                self._vouch(check_owner(owner))
            refused = self._sessions.open_turn(turn, run.run_id, owner)
            if refused is not None:
                return refused
            created = self._create(run, owner, ttl)
            self._runs[run.run_id].session = turn.session
            self._sessions.keep_log(turn.session, self._runs[run.run_id].log)
            return TurnOpened(created.epoch, created.part_log)

    def _drop_runs(self, change: SessionChange, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            if (run := self._runs.get(run_id)) is not None and run.session == change.session:
                self._remove(run)

    async def aclose(self) -> None:
        """See ``RunStore.aclose``. The runs stay for other stores that share them."""
        with self._lock:
            self._shared.owners -= self._names
            self._names.clear()


def _is_owned(run: _Run, owner: str, epoch: int) -> bool:
    return run.owner == owner and run.epoch == epoch and run.status == "running"


def _make_ready(run: _Run, pause: float = 0.0) -> None:
    run.status, run.updated_at, run.held = "ready", current_source().now(), ""
    run.due_at = run.updated_at + pause
    run.is_later = pause > 0
    run.owner = run.lease_until = None


def _pause(run: _Run) -> bool:
    """Make a run of a lost owner ready. Return whether it can be claimed at once."""
    run.attempts += 1
    held = "" if run.attempts < MOST_ATTEMPTS else held_words(run.attempts, run.owner)
    pause = pause_after(run.attempts, run.new.run_id)
    _make_ready(run, pause)
    run.held = held
    return not (pause or held)


def _is_ready(run: _Run, now: float, grace: float) -> bool:
    if run.status != "ready" or run.held:
        return False
    due = run.due_at or 0.0
    if due > now:  # else the wall clock was set back
        return not run.is_later
    return due <= now - grace


def _is_wanted(
    run: NewRun, serves: Sequence[Serves] | None, queues: Sequence[str] | None, skip: Collection[str]
) -> bool:
    return (
        (serves is None or any(_serves(one, run) for one in serves))
        and (queues is None or run.queue in queues)
        and run.run_id not in skip
    )


def _serves(one: Serves, run: NewRun) -> bool:
    return one.workflow == run.workflow and (one.versions is None or run.version in one.versions)


def _use(run: _Run, entry: RunCommit) -> None:
    for position in entry.consumed:
        if 0 < position <= len(run.inbox) and run.inbox[position - 1].used is None:
            run.inbox[position - 1].used = entry.expected_seq + 1
            run.unread -= 1
    for position in entry.passed_over:
        key = run.inbox[position - 1].item.key
        if run.keys.get(key) == position:
            del run.keys[key]


def _was_written(run: _Run, entry: RunCommit) -> bool:
    """Tell whether the same commits were written before, by comparing epoch and bodies."""
    last = entry.expected_seq + len(entry.commits)
    if run.epoch != entry.epoch or run.seq < last or (entry.status is not None and run.status != entry.status):
        return False
    if not entry.commits:
        return entry.status is not None
    first = max(0, run.compacted - entry.expected_seq)
    kept = entry.commits[first:]
    begin = entry.expected_seq + first - run.compacted
    return run.bodies[begin : begin + len(kept)] == kept

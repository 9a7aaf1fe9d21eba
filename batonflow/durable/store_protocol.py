"""RunStore: the protocol of stores of runs, with their guarantees.

A store keeps bytes, numbers and names; the layers above interpret the bytes. Each operation that concerns other
processes is atomic, and returns a value for each expected outcome. Three rules make a store safe for several
processes:

- a run is driven by one *owner* at a time, under an *epoch* that grows with every claim, while its lease lasts;
- each write contains owner, epoch and the number of the last commit, and is refused if one of them is outdated
  (*fencing*), so that a process that was suspended cannot do harm later;
- other processes only append to a run's *inbox*; the owner's commits mark the used items.

The store's clocks measure leases and timers: callers pass durations or due times, but not the present time.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from batonflow.workflow_core.errors import StoreError

__all__ = [
    "DEFAULT_QUEUE",
    "ENDS",
    "LEASE_SECONDS",
    "MOST_ATTEMPTS",
    "Appended",
    "Busy",
    "Claimed",
    "CommitDone",
    "CommitVerdict",
    "Created",
    "Ended",
    "Existing",
    "InboxItem",
    "Loaded",
    "NewRun",
    "NotDue",
    "PartStore",
    "PartsGoneError",
    "RunCommit",
    "RunInfo",
    "RunStatus",
    "RunStore",
    "Serves",
    "StoredCommit",
]

LEASE_SECONDS = 15.0
"""Seconds that a run belongs to its owner without a renewal, unless a store says otherwise."""

DEFAULT_QUEUE = "default"
"""The queue of runs that name no other one."""

MOST_ATTEMPTS = 5
"""Owners that may end or lose their lease without a commit until a run is held."""

RunStatus = Literal["ready", "running", "waiting", "completed", "failed", "cancelled"]
"""``ready``: to be driven; ``running``: an owner drives it; ``waiting``: nothing to do until its inbox or a
timer says so; the others are ends."""

ENDS: frozenset[RunStatus] = frozenset({"completed", "failed", "cancelled"})
"""The statuses of runs that are over."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to create.

    Attributes:
        run_id: 1 to 200 characters of ``A-Za-z0-9_.:/-``.
        workflow: The name of the workflow.
        version: The version of its code.
        digest: A digest of the start event, which identifies the input.
        shape: A digest of the workflow's steps, for messages if code and records do not fit.
        first: The commit with number 1, so that each run has its start.
        stream_seq: The end of the reserved numbers of streamed events.
        metadata: Names and values to find the run by.
        parts: The parts that ``first`` refers to, in a store that keeps parts.
        continues: The log of parts that the run continues, and the number of parts there; None for a new log.
        queue: The queue of the run; processes take up the runs of some queues.
        priority: Ready runs with a larger number are taken up first.
        not_before: The time before which nobody takes up the run, in wall-clock seconds.
    """

    run_id: str
    workflow: str
    digest: str
    version: str | None = None
    shape: str = ""
    first: bytes | None = None
    stream_seq: int = 0
    metadata: Mapping[str, str] | None = None
    parts: Sequence[bytes] = ()
    continues: tuple[int, int] | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The listing of a run, without its records. Times are in wall-clock seconds.

    Attributes:
        run_id: The run.
        workflow: The name of the workflow.
        version: The version of its code.
        digest: The digest of its input.
        shape: The digest of its steps.
        status: The status.
        owner: The owner that drives the run, or None.
        owner_alive: Whether the owner's process lives, as far as the store knows.
        lease_left: Seconds until the end of the lease; 0 without one.
        claimed_at: The time of the last claim.
        epoch: The number of the last claim.
        seq: The number of the last commit.
        stream_seq: The end of the reserved numbers of streamed events.
        wake_at: The time of its earliest timer.
        unread: The number of unused inbox items.
        created_at: The time of creation.
        updated_at: The time of the last change.
        result: The result of a finished run; None before.
        forked_from: The run and the commit from which it was forked.
        metadata: Names and values that were given to the run.
        session: The name of the session of which the run is a turn; empty for other runs.
        queue: Its queue.
        priority: Its priority.
        attempts: The number of owners that have ended or lost their lease since the last commit.
        held: The reason why ``claim_due`` passes the run over; empty for other runs.
    """

    run_id: str
    workflow: str
    version: str | None
    digest: str
    shape: str
    status: RunStatus
    owner: str | None
    owner_alive: bool
    lease_left: float
    claimed_at: float | None
    epoch: int
    seq: int
    stream_seq: int
    wake_at: float | None
    unread: int
    created_at: float
    updated_at: float
    result: bytes | None
    forked_from: tuple[str, int] | None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    session: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    attempts: int = 0
    held: str = ""

    @property
    def is_over(self) -> bool:
        """Tell whether the run is over."""
        return self.status in ENDS

    @property
    def is_driven(self) -> bool:
        """Tell whether a live process drives the run."""
        return self.status == "running" and self.owner_alive and self.lease_left > 0


@dataclass(frozen=True, slots=True)
class Serves:
    """The runs that a process can take up.

    Attributes:
        workflow: The name of a workflow.
        versions: The versions of the runs whose records its code understands; None for all.
        most: The largest number of runs of the workflow, of all versions, that live owners drive at a time; None for
            any number. Runs that are claimed by their id count, but are not refused.
    """

    workflow: str
    versions: Sequence[str | None] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The run was created and belongs to its creator under this epoch. Its parts are in the log ``part_log``.

    A run that was created without an owner has the epoch from which claims count.
    """

    epoch: int
    part_log: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Existing:
    """A run with this id exists; nothing was changed."""

    info: RunInfo


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run belongs to the claiming owner.

    Attributes:
        run_id: The run.
        epoch: The epoch for all writes.
        seq: The number of the last commit.
        stream_seq: The number of the next streamed event.
        workflow: The name of its workflow.
        abandoned: Whether the earlier owner's process ended without a release, as far as the store knows.
        delay: Seconds for which the run was ready; 0 for a run of an earlier owner.
    """

    run_id: str
    epoch: int
    seq: int
    stream_seq: int
    workflow: str
    abandoned: bool = field(default=False, compare=False)
    delay: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Changes:
    """A hint at changes by any process. It may be false, so readers check for changes.

    Attributes:
        number: The number for the next wait.
        runs: The runs with new items in their inboxes; None for any.
        ready: Whether a run may have become ready.
    """

    number: int
    runs: frozenset[str] | None
    ready: bool


@dataclass(frozen=True, slots=True)
class Busy:
    """Another owner drives the run, since a time (in wall-clock seconds) and for at least some more seconds."""

    owner: str
    since: float
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over."""

    info: RunInfo


@dataclass(frozen=True, slots=True)
class NotDue:
    """The run waits, and there is no input for it."""

    wake_at: float | None


@dataclass(slots=True)
class RunCommit:
    """Commits of the owner of a run, which become durable together or not at all.

    Attributes:
        run_id: The run.
        owner: The owner.
        epoch: The epoch of the claim.
        expected_seq: The number of the commit before these.
        commits: The bodies of the commits, numbered after ``expected_seq``.
        consumed: The positions of the inbox items that these commits have used.
        passed_over: The positions of consumed items that could not be used, so that their keys are free again.
        status: The end of the run with the last commit; None while it goes on.
        result: The result of the run.
        wake_at: The time of the earliest timer, in wall-clock seconds; None without a timer.
        stream_seq: The end of the reserved numbers of streamed events.
        snapshot: The state after the last of these commits, from which later loading starts.
        ttl: The seconds from now to the end of the extended lease.
        turn: The data of the turn of a session that the run is, if the run ends.
        parts: New parts that the commits refer to.
        first_part: The number of the first of these parts.
    """

    run_id: str
    owner: str
    epoch: int
    expected_seq: int
    commits: list[bytes]
    consumed: list[int] = field(default_factory=list[int])
    passed_over: list[int] = field(default_factory=list[int])
    status: Literal["completed", "failed", "cancelled"] | None = None
    result: bytes | None = None
    wake_at: float | None = None
    stream_seq: int = 0
    snapshot: bytes | None = None
    ttl: float = 15.0
    turn: bytes | None = None
    parts: list[bytes] = field(default_factory=list[bytes])
    first_part: int = 0


class CommitVerdict(NamedTuple):
    """The outcome of a RunCommit.

    Attributes:
        outcome: ``"committed"``; ``"already"``: the same commits were written before; ``"fenced"``: the writer does
            not own the run any more, and nothing was written.
        unread: Whether the run has further inbox items.
    """

    outcome: Literal["committed", "already", "fenced"]
    unread: bool = False


CommitDone: TypeAlias = Callable[[list[CommitVerdict] | None, BaseException | None], None]
"""The callback of a batch: its verdicts, or the error that kept all of it from being written."""


class InboxItem(NamedTuple):
    """An input of a run from outside.

    Attributes:
        position: The position in the run's inbox, from 1.
        key: The key.
        kind: ``"event"``, or ``"cancel"`` with a reason as payload.
        payload: The payload.
        at: The time of arrival, in wall-clock seconds.
    """

    position: int
    key: str
    kind: Literal["event", "cancel"]
    payload: bytes
    at: float


class StoredCommit(NamedTuple):
    """A stored commit: its number, its time (in wall-clock seconds), and its bytes."""

    seq: int
    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """The place of an inbox item.

    Attributes:
        position: The position.
        new: False if an item with the same key was there before.
    """

    position: int
    new: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """The data to continue a run.

    Attributes:
        info: The present listing, also for an earlier commit.
        snapshot: The newest snapshot up to the commit, with the number of its last commit.
        commits: The commits after the snapshot, in order; they may refer to parts.
        inbox: The unused inbox items, in order.
        parts: The parts of the run, from number 0 on, in a store that keeps parts.
        part_log: The log of these parts.
    """

    info: RunInfo
    snapshot: tuple[int, bytes] | None
    commits: list[StoredCommit]
    inbox: list[InboxItem]
    parts: list[bytes] = field(default_factory=list[bytes])
    part_log: int = 0


@runtime_checkable
class RunStore(Protocol):
    """A store of runs; the docstring of the module contains the rules.

    All methods raise ``StoreError`` if the store fails (a full disk, a damaged file); the message names the remedy.
    """

    @property
    def owner(self) -> str:
        """The unique name of this store object, also within a process."""
        ...

    @property
    def lease_seconds(self) -> float:
        """The seconds of a lease: without renewal for so long, another owner may claim the run."""
        ...

    async def create(self, run: NewRun, owner: str | None, ttl: float) -> Created | Existing:
        """Create a run and claim it for ``owner``. No deleted run of this id has had its epoch.

        Without an owner the run is ready for ``claim_due``, from its ``not_before`` on. ``owner`` is usually the
        store's own name. Other names are possible here and below: they count as alive until this store is closed or
        its process ends.
        """
        ...

    async def claim(
        self, run_id: str, owner: str, ttl: float, *, only_due: bool = False
    ) -> Claimed | Busy | Ended | NotDue | None:
        """Claim a run for an owner, under the next epoch.

        This is possible if the run has no owner, its owner is dead, its lease has ended, or ``owner`` already owns it.
        A waiting run is claimed, too, unless ``only_due`` requires new input or a due timer.

        Returns:
            None if the run does not exist.
        """
        ...

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
        """Claim runs without a live owner: first runs of dead owners, then the longest ready or due.

        Ready runs with a larger priority come first. Each run is returned to one caller only.

        A run whose owner has ended or lost its lease without a commit is claimed at once the first time. After that it
        waits 1, 2, 4 seconds and so on, at most 300, and after ``MOST_ATTEMPTS`` such owners it is *held*: it is passed
        over until ``release_held``.

        A run with two such owners or more is a *suspect*, as it may have ended them itself. An owner gets a suspect
        only while it drives no other one, so that the runs that were beside the one at fault end, and are not held.

        Args:
            owner: The owner that gets the runs.
            ttl: The seconds of their leases.
            limit: The largest number of runs.
            serves: The workflows and versions, and the bounds of workflows; None for all.
            queues: The queues; None for all.
            skip: The ids of runs to leave out.
        """
        ...

    async def release_held(self, run_id: str) -> bool:
        """Let a held run be claimed again, like a new one. Return False if it is not held."""
        ...

    async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
        """Return the data of a run, at present or after commit ``at``; None for an unknown run.

        Raises:
            StoreError: The commit ``at`` does not exist, was dropped, or is not a number.
            StoreCorruptedError: Stored data is damaged; the message names the run and commit.
        """
        ...

    async def renew(self, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> list[str]:
        """Extend the leases of driven runs, by id and epoch; return the lost ones."""
        ...

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None = None) -> None:
        """Renew the lease of a run automatically from now on, even if the caller is busy.

        The lease is extended by its last ttl, three times per ttl.

        Args:
            run_id: The run.
            epoch: The epoch of the claim.
            lost: Called once, on any thread, if another owner has claimed the run or it was deleted. It must be quick
                and must not raise.
        """
        ...

    def let_go(self, run_id: str) -> None:
        """Stop the automatic renewal of a run's lease."""
        ...

    async def commit(self, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
        """Write commits of several runs; each entry succeeds or fails by itself, in the given order.

        A cancelled caller does not get the outcome; the same call again returns it.
        """
        ...

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        """Queue commits from any thread without waiting; the batch must not change afterwards.

        Args:
            batch: The commits.
            done: Called once with the outcome, on any thread, perhaps before this returns. It must be quick and must
                not raise.
        """
        ...

    async def park(self, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> bool:
        """Release a waiting run; refused if it has unread inbox items or another owner."""
        ...

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        """Release a run that can continue, so that another owner can claim it. Return False for another owner's run."""
        ...

    async def append(
        self, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"] = "event"
    ) -> Appended | Ended | None:
        """Append an item to a run's inbox, from any process. An item with a known ``key`` is not appended again.

        A waiting run becomes ready.

        Returns:
            Ended if the run is over; None for an unknown run.
        """
        ...

    async def unread(self, after: Mapping[str, int]) -> dict[str, list[InboxItem]]:
        """Return the unused inbox items after a position, by run id; runs without items are left out."""
        ...

    async def changed(self, seen: int) -> Changes:
        """Wait until an item was appended by any process after ``seen``, or a run became ready.

        Example:
            >>> seen = (await store.changed(-1)).number  # at once
        """
        ...

    async def sweep(self, limit: int, grace: float) -> list[str]:
        """Make runs ready with a dead owner, an expired lease or a due timer; return their ids.

        Attempts count as in ``claim_due``: a run may become ready for a later time, or held.

        Runs that have been ready for more than ``grace`` seconds are returned again, because their signal may be lost.
        """
        ...

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        """Return the commits after a number, in order; empty for an unknown run. Compacted commits are skipped."""
        ...

    def subscribe(self, run_id: str, after: int = 0) -> AsyncIterator[StoredCommit]:
        """Yield the commits after a number, including future ones, until the run is over or deleted."""
        ...

    async def info(self, run_id: str) -> RunInfo | None:
        """Return the listing of a run."""
        ...

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
        """Return the listings of runs in the order of creation, or in reverse, after the run ``after``.

        With ``metadata``, only runs that have all of these names and values.

        Raises:
            StoreError: ``after`` does not exist, the status is unknown, or ``limit`` is not a whole number from 0 on.
        """
        ...

    async def fork(
        self, run_id: str, at: int, new_id: str, commits: Sequence[bytes] = ()
    ) -> Literal["forked", "exists", "unknown", "compacted"]:
        """Create a run that shares the commits up to ``at``; it is ready to be claimed.

        Args:
            run_id: The run to fork; it does not change.
            at: The last shared commit; 0 for no commit.
            new_id: The id of the new run.
            commits: Further commits of the new run.

        Returns:
            ``"exists"``: ``new_id`` is used; ``"unknown"``: the run or the commit does not exist; ``"compacted"``: the
            commit was dropped.
        """
        ...

    async def delete(self, run_id: str, *, force: bool = False, conversation: bool = False) -> bool:
        """Delete a run; return False if it is unknown.

        Args:
            run_id: The run.
            force: Whether to delete it although it has a live owner.
            conversation: Whether to delete all runs that share parts with it: earlier and later turns, and forks.

        Raises:
            StoreError: A run has a live owner, or is a turn of a session, which keeps the messages; all runs stay.
        """
        ...

    async def compact(self, run_id: str) -> int:
        """Drop the commits that the newest snapshot replaces, and return their number; 0 for an unknown run."""
        ...

    async def retain(self, *, seconds: float, limit: int = 1000) -> list[str]:
        """Delete runs that ended more than ``seconds`` ago, and return their ids.

        Raises:
            ValueError: ``seconds`` is not a number of at least 0.
            StoreError: ``limit`` is not a whole number of at least 0.
        """
        ...

    async def aclose(self) -> None:
        """Close files and threads, and release the name of this owner."""
        ...


class PartsGoneError(StoreError):
    """The log of parts that a run continues was deleted, because no run needed it."""


@runtime_checkable
class PartStore(Protocol):
    """The part of a store that keeps messages and long texts as numbered parts. Each is written once.

    ``NewRun`` and ``RunCommit`` bring new parts, which become durable together with the commits that refer to them.
    Parts are in *logs*. A run that continues the conversation of an earlier run continues its log. If another run has
    continued it already, the run gets a log of its own, behind the parts that it knows; so has a fork. A log is
    deleted when no run, no session and no other log needs it. ``read`` and ``subscribe`` return commits without
    references; ``load`` returns them as they are stored, with the parts.
    """

    @property
    def keeps_parts(self) -> bool:
        """Tell whether commits may refer to parts."""
        ...

    async def read_parts(self, part_log: int) -> list[bytes]:
        """Return the parts of a log, from number 0 on; empty for an unknown log."""
        ...

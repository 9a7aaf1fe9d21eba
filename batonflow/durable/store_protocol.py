"""RunStore: the protocol of a store of runs, with the promises that it must keep.

A store carries bytes, numbers and names; what the bytes mean is the business of the layers above. Every operation
that may meet another process is one atomic step and returns a value for each foreseeable outcome. Three rules make it
safe that several processes use one store:

- a run is driven by one *owner* at a time, under an *epoch* that grows with every claim, while its lease lasts;
- every write of the owner names owner, epoch and the number of the last commit, and is refused when one of them is not
  true any more (*fencing*), so a process that was stopped and wakes up late can do no harm;
- everybody else only appends to a run's *inbox*; what the owner has used of it is marked in the owner's own commits.

Leases and timers are measured by the store's clocks: callers pass durations, or wall-clock times at which something is
due, never what time it is now.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "ENDS",
    "LEASE_SECONDS",
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
    "RunCommit",
    "RunInfo",
    "RunStatus",
    "RunStore",
    "StoredCommit",
]

LEASE_SECONDS = 15.0
"""Seconds that a run belongs to its owner without a renewal, unless a store says otherwise."""

RunStatus = Literal["ready", "running", "waiting", "completed", "failed", "cancelled"]
"""``ready``: to be driven; ``running``: an owner drives it; ``waiting``: nothing to do until its inbox or a
timer says so; the others are ends."""

ENDS: frozenset[RunStatus] = frozenset({"completed", "failed", "cancelled"})
"""The statuses of runs that are over."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is to be created.

    Attributes:
        run_id: 1 to 200 characters of ``A-Za-z0-9_.:/-``.
        workflow: Name of the workflow.
        version: Version of its code, as the workflow says.
        digest: Tells apart the inputs of runs: the same for the same start event.
        shape: A digest of the workflow's steps, for the message when code and records do not fit any more.
        first: The commit with number 1, so that no run is created of which nobody knows how it begins.
        stream_seq: No streamed event has a number of this or more.
    """

    run_id: str
    workflow: str
    digest: str
    version: str | None = None
    shape: str = ""
    first: bytes | None = None
    stream_seq: int = 0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as a store lists it, without its records. Times are wall-clock seconds.

    Attributes:
        run_id: The run.
        workflow: Name of the workflow.
        version: Version of its code.
        digest: Of its input.
        shape: Of its steps.
        status: Where it stands.
        owner: Who drives it, None when nobody does.
        owner_alive: Whether the owner's process lives, as far as the store can tell.
        lease_left: Seconds until the lease runs out; 0 without one.
        claimed_at: When the owner took it.
        epoch: Number of the last claim.
        seq: Number of the last commit.
        stream_seq: Numbers of streamed events up to here may have been given out.
        wake_at: When its earliest timer is due.
        unread: How many inbox items are not used yet.
        created_at: When it was created.
        updated_at: When it changed last.
        result: What the last commit gave as the end, None before.
        forked_from: Run and commit that it branched off from.
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

    @property
    def is_over(self) -> bool:
        """Tell whether the run has come to its end."""
        return self.status in ENDS


@dataclass(frozen=True, slots=True)
class Created:
    """The run was created and belongs to its creator under this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Existing:
    """A run of this id was there before; nothing was changed."""

    info: RunInfo


@dataclass(frozen=True, slots=True)
class Claimed:
    """The run belongs to the claimer now.

    Attributes:
        run_id: The run.
        epoch: To be named in every write.
        seq: Number of the last commit.
        stream_seq: Streamed events are numbered from here on.
        workflow: Name of its workflow.
        abandoned: Whether the process that drove it ended without letting go of it, as far as the store can tell.
    """

    run_id: str
    epoch: int
    seq: int
    stream_seq: int
    workflow: str
    abandoned: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Busy:
    """Another owner drives the run, since a time (wall-clock seconds) and for some more seconds at least."""

    owner: str
    since: float
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over."""

    info: RunInfo


@dataclass(frozen=True, slots=True)
class NotDue:
    """The run waits, and nothing that it waits for has come."""

    wake_at: float | None


@dataclass(slots=True)
class RunCommit:
    """A commit of the owner of a run: all of it becomes durable, or nothing.

    Attributes:
        run_id: The run.
        owner: Who writes.
        epoch: Of the claim.
        expected_seq: Number of the commit before these.
        commits: Each is a commit of its own, numbered on from ``expected_seq``.
        consumed: Positions of inbox items that these commits have used.
        passed_over: Those of them that could not be used: something else may come under their keys.
        status: The end of the run with the last commit; None while it goes on.
        result: What is kept as the end.
        wake_at: When the earliest timer is due, in wall-clock seconds; None for no timer.
        stream_seq: No streamed event has a number of this or more.
        snapshot: The whole state after the last of these commits, so that loading need not begin at the first.
        ttl: Seconds for which the lease is extended.
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


class CommitVerdict(NamedTuple):
    """The outcome of a RunCommit.

    Attributes:
        outcome: ``"committed"``; ``"already"``: the same was asked before and is there; ``"fenced"``: the writer does
            not own the run any more, and nothing was written.
        unread: The run has inbox items beyond those consumed.
    """

    outcome: Literal["committed", "already", "fenced"]
    unread: bool = False


CommitDone: TypeAlias = Callable[[list[CommitVerdict] | None, BaseException | None], None]
"""The callback of a batch: its verdicts, or the error that kept all of it from being written."""


class InboxItem(NamedTuple):
    """Something that came for a run from outside.

    Attributes:
        position: Its place in the run's inbox, from 1.
        key: As appended.
        kind: ``"event"``, or ``"cancel"`` with a reason as payload.
        payload: As appended.
        at: When it came, in wall-clock seconds.
    """

    position: int
    key: str
    kind: Literal["event", "cancel"]
    payload: bytes
    at: float


class StoredCommit(NamedTuple):
    """A commit as it is kept: its number, when it was written (wall-clock seconds), and its bytes."""

    seq: int
    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """The place of an inbox item.

    Attributes:
        position: Its place.
        new: Whether this call put it there; else one with the same key did before.
    """

    position: int
    new: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run as it can be gone on with.

    Attributes:
        info: What holds now, also when an earlier commit was asked for.
        snapshot: The newest snapshot up to there, with the number of the last commit in it.
        commits: What was committed after the snapshot, in order.
        inbox: What had come and had not been used, in order.
    """

    info: RunInfo
    snapshot: tuple[int, bytes] | None
    commits: list[StoredCommit]
    inbox: list[InboxItem]


@runtime_checkable
class RunStore(Protocol):
    """A store of runs; the docstring of the module has the rules.

    Every method raises ``StoreError`` when the store itself fails (a full disk, a broken file), with what to do.
    """

    @property
    def owner(self) -> str:
        """Names this store object to all others; a new one has another name, also in the same process."""
        ...

    @property
    def lease_seconds(self) -> float:
        """The seconds of a claim: after so long without renewal another owner may take the run."""
        ...

    async def create(self, run: NewRun, owner: str, ttl: float) -> Created | Existing:
        """Create a run and claim it for ``owner``, under an epoch that no deleted run of this id has had.

        ``owner`` is mostly the store's own name. For any other one that is claimed with, here and below, the store
        vouches in the same way: it counts as alive until this store is closed or its process ends.
        """
        ...

    async def claim(
        self, run_id: str, owner: str, ttl: float, *, only_due: bool = False
    ) -> Claimed | Busy | Ended | NotDue | None:
        """Become the owner of a run, under the next epoch.

        Possible when nobody drives it, or when its owner is dead or its lease has run out; also when ``owner`` itself
        has it already. A waiting run is claimed too, unless ``only_due`` asks for one with something to do.

        Returns:
            None when there is no such run.
        """
        ...

    async def claim_due(
        self, owner: str, ttl: float, limit: int, workflows: Sequence[str] | None = None
    ) -> list[Claimed]:
        """Claim runs without a driver: runs of dead owners first, then the longest ready or due.

        Two callers never get the same run.
        """
        ...

    async def load(self, run_id: str, at: int | None = None) -> Loaded | None:
        """A consistent read of a run, as it was after commit ``at``, or is now. None when there is no such run.

        Raises:
            StoreError: There is no commit ``at``, it is not kept any more, or it is not a number.
            StoreCorruptedError: What was stored is damaged; the message names run and commit.
        """
        ...

    async def renew(self, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> list[str]:
        """Extend the leases of driven runs, by id and epoch; return the lost ones."""
        ...

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None = None) -> None:
        """From now on renew the lease of this run without being asked, however busy the caller is.

        It is extended by the ttl last used for it, three times in each ttl.

        Args:
            run_id: The run.
            epoch: Of the claim.
            lost: Called once, on any thread, when the run turns out to have been claimed by another or deleted, so that
                one which only waits learns of it; must be quick and must not raise.
        """
        ...

    def let_go(self, run_id: str) -> None:
        """Stop renewing the lease of a run."""
        ...

    async def commit(self, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
        """Write commits of several runs; each entry stands or falls by itself, and is judged in the order given.

        A caller that is cancelled meanwhile does not know what became of them; asking the same again tells.
        """
        ...

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        """Like ``commit``, from any thread and without waiting: only takes the batch, which must not change any more.

        Args:
            batch: What to write.
            done: Called once with the outcome, on whichever thread it is known first, perhaps before this returns; it
                must be quick and must not raise.
        """
        ...

    async def park(self, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> bool:
        """Give up a run that waits; refused when it has unread inbox items, or is not the owner's any more."""
        ...

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        """Give up a run that could go on, so that another takes it at once; False when it is not the owner's."""
        ...

    async def append(
        self, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"] = "event"
    ) -> Appended | Ended | None:
        """Put something into a run's inbox; anybody may. The same ``key`` again gives the same place again.

        A run that waits becomes ready by it.

        Returns:
            Ended when the run is over, None when there is no such run.
        """
        ...

    async def unread(self, after: Mapping[str, int]) -> dict[str, list[InboxItem]]:
        """For each run id, the unused inbox items behind a position; runs without any are left out."""
        ...

    async def changed(self, seen: int) -> int:
        """Wait until something was appended, by whichever process, since this gave ``seen``; a hint that may be wrong.

        Example:
            >>> seen = await store.changed(-1)  # at once
        """
        ...

    async def sweep(self, limit: int, grace: float) -> list[str]:
        """Make runs ready with a dead owner, an expired lease or a due timer; return their ids.

        ``grace``: runs that have been ready for more seconds than this are returned again, as their bell may be lost.
        """
        ...

    async def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[StoredCommit]:
        """Return commits behind a number, in order; empty for an unknown run. Compacted commits are passed over."""
        ...

    def subscribe(self, run_id: str, after: int = 0) -> AsyncIterator[StoredCommit]:
        """Yield commits behind a number, also future ones, until the run is over or gone."""
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
    ) -> list[RunInfo]:
        """Runs in the order of their creation, or in the opposite one, behind the run ``after``.

        Raises:
            StoreError: ``after`` is gone, the status is unknown, or ``limit`` is not a whole number of at least 0.
        """
        ...

    async def fork(
        self, run_id: str, at: int, new_id: str, commits: Sequence[bytes] = ()
    ) -> Literal["forked", "exists", "unknown", "compacted"]:
        """A new run that shares the commits up to ``at``; it is ready to be claimed, the source stays as it is.

        Args:
            run_id: The run to branch off from.
            at: The last commit that both have; 0 for no commit.
            new_id: Id of the new run.
            commits: What the new run has behind that, from the beginning.

        Returns:
            ``"exists"``: ``new_id`` is taken; ``"unknown"``: no such run or commit; ``"compacted"``: the commit is not
            kept any more.
        """
        ...

    async def delete(self, run_id: str, *, force: bool = False) -> bool:
        """Delete a run; False when it is unknown. One that is being driven is refused unless ``force`` is set.

        Raises:
            StoreError: It is being driven.
        """
        ...

    async def compact(self, run_id: str) -> int:
        """Drop the commits that the newest snapshot makes unnecessary; returns how many, 0 for an unknown run."""
        ...

    async def retain(self, *, seconds: float, limit: int = 1000) -> list[str]:
        """Delete runs that ended longer ago than this; returns their ids.

        Raises:
            ValueError: ``seconds`` is not a number of at least 0.
            StoreError: ``limit`` is not a whole number of at least 0.
        """
        ...

    async def aclose(self) -> None:
        """Give everything up: files, threads, and the name of this owner."""
        ...

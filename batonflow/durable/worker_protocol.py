"""WorkerStore: the part of a store that knows the workers, which sign in it regularly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from batonflow.clock import current_source

__all__ = ["QueueInfo", "WorkerInfo", "WorkerSign", "WorkerStore"]

SILENT_SECONDS = 15.0
SECONDS_UNTIL_LEFT = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSign:
    """The sign of life of a worker.

    Attributes:
        name: Its name, which no other worker has.
        owner: The owner under which it drives runs.
        host: The name of its machine.
        pid: Its process.
        workflows: The runs that it takes up: ``shop`` for all versions of a workflow, ``shop@2`` for one version,
            ``shop@`` for runs without a version, and ``schedule of shop`` for the times of schedules.
        queues: Its queues; None for all.
        slots: The largest number of runs in its memory.
    """

    name: str
    owner: str
    host: str
    pid: int
    workflows: Sequence[str]
    queues: Sequence[str] | None
    slots: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """The listing of a worker. Times are in wall-clock seconds.

    Attributes:
        sign: Its last sign of life.
        since: The time of its first sign.
        seen_at: The time of its last sign.
        runs: The number of runs that it drives.
        is_alive: Whether its process lives, as far as the store knows.
        is_draining: Whether it was asked to take up no further run.
    """

    sign: WorkerSign
    since: float
    seen_at: float
    runs: int
    is_alive: bool
    is_draining: bool

    @property
    def state(self) -> Literal["working", "draining", "silent", "ended"]:
        """The state: ``silent`` without a sign of life for a while, ``ended`` if the process does not live."""
        if not self.is_alive:
            return "ended"
        if current_source().now() - self.seen_at > SILENT_SECONDS:
            return "silent"
        return "draining" if self.is_draining else "working"


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The unfinished runs of one queue, workflow and version.

    Attributes:
        queue: The queue.
        workflow: The name of the workflow.
        version: The version.
        ready: The number of runs that may be taken up, also those that an ended owner drove.
        later: The number of runs that may be taken up at a later time.
        running: The number of runs that a living owner drives.
        waiting: The number of runs that wait for an event or a timer.
        held: The number of runs that are passed over.
        oldest: The longest time in seconds since which a run is ready, or since the last change of a run that an ended
            owner drove; None without ready runs.
    """

    queue: str
    workflow: str
    version: str | None
    ready: int
    later: int
    running: int
    waiting: int
    held: int
    oldest: float | None

    def is_left(self, workers: Sequence[WorkerInfo]) -> bool:
        """Tell whether runs are ready that no worker takes up. Servers take up runs within seconds."""
        waits = self.oldest is not None and (bool(workers) or self.oldest > SECONDS_UNTIL_LEFT)
        return waits and not self.count_workers(workers)

    def count_workers(self, workers: Iterable[WorkerInfo]) -> int:
        """Return the number of workers that take up these runs."""
        names = {self.workflow, f"{self.workflow}@{self.version or ''}"}
        return sum(
            worker.state == "working"
            and not names.isdisjoint(worker.sign.workflows)
            and (worker.sign.queues is None or self.queue in worker.sign.queues)
            for worker in workers
        )


@runtime_checkable
class WorkerStore(Protocol):
    """A store that knows its workers."""

    async def sign(self, sign: WorkerSign) -> bool:
        """Write a sign of life; return True if the worker was asked to drain. Forget workers of earlier days."""
        ...

    async def sign_off(self, name: str) -> None:
        """Forget a worker that ends."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers, also killed ones of the last day, in the order of their first signs."""
        ...

    async def drain(self, name: str) -> bool:
        """Ask a worker to take up no further run, and to end. Return False for an unknown worker."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Count the unfinished runs, in the order of queues, workflows and versions."""
        ...

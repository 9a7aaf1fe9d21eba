"""WorkerStore: the part of a store that knows the workers, which sign in it regularly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["WorkerInfo", "WorkerSign", "WorkerStore"]


@dataclass(frozen=True, slots=True)
class WorkerSign:
    """The sign of life of a worker.

    Attributes:
        name: Its name, which no other worker has.
        owner: The owner under which it drives runs.
        host: The name of its machine.
        pid: Its process.
        workflows: The names of its workflows, with their versions as in ``shop@2``.
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

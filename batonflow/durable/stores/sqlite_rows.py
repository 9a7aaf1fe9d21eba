"""Shared parts of the operations of a SQLiteStore: tools, rows of runs, checksums."""

import math
import sqlite3
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from batonflow.clock import Source
from batonflow.durable.store_protocol import ENDS, RunStatus
from batonflow.durable.stores.owners import Owners, boot_number
from batonflow.workflow_core.errors import StoreCorruptedError

__all__ = ["ENDS", "PLACE_BITS", "DatabaseSession", "RunRow", "checksum", "damaged", "find_run", "salt_of"]

PLACE_BITS = 32
"""A record's place is the number of its run, shifted by these, plus its own number."""


class RunRow(NamedTuple):
    """A row of the view ``run_infos``; the schema describes its columns."""

    id: int
    run_id: str
    workflow: str
    version: str | None
    digest: str
    shape: str
    status: RunStatus
    owner: str | None
    epoch: int
    claimed_at: float | None
    lease_boot: int | None
    lease_until: float | None
    lease_ttl: float | None
    seq: int
    compacted: int
    stream_seq: int
    wake_at: float | None
    wake_no: int
    due_at: float | None
    inbox_head: int
    unread: int
    created_at: float
    updated_at: float
    ended_at: float | None
    forked_from: str | None
    forked_at: int | None
    salt: int
    metadata: str | None
    turn: int | None
    part_log: int | None
    queue: str
    priority: int
    not_before: float | None
    attempts: int
    held: str | None
    result: bytes | None
    result_crc: int | None

    @property
    def log(self) -> int:
        """The log of the run's parts."""
        return self.id if self.part_log is None else self.part_log


@dataclass(slots=True)
class DatabaseSession:
    """A connection to the database with the data that operations share; each thread has its own.

    Attributes:
        connection: The connection to the database.
        path: The path of the database, for messages.
        owners: The live owners.
        source: The clocks.
        boot: The number of the present start of the machine.
        known: Row number, salt and log of parts of runs that this connection has driven, to save lookups. It is
            cleared after a rollback, which frees the numbers of new runs.
        shortest_ttl: The shortest ttl of the leases, in seconds.
        rows: The values of commits to insert in this transaction, four for each.
        touched: The runs that have new commits, are over, or are deleted in this transaction.
        appended: The runs with new items in their inboxes in this transaction.
        signals: The number of these items, and of runs that became ready.
        ready: Whether a run became ready in this transaction.
    """

    connection: sqlite3.Connection
    path: Path
    owners: Owners
    source: Source
    boot: int = field(default_factory=boot_number)
    known: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    shortest_ttl: float = math.inf
    rows: list[float | bytes] = field(default_factory=list[float | bytes])
    touched: list[str] = field(default_factory=list[str])
    appended: list[str] = field(default_factory=list[str])
    signals: int = 0
    ready: bool = False

    def lease_left(self, row: RunRow) -> float:
        """Return the seconds until the end of a run's lease, by the monotonic clock; 0 without a lease."""
        if row.lease_until is None or row.lease_ttl is None or row.lease_boot != self.boot:
            return 0.0
        left = row.lease_until - self.source.monotonic()
        # Longer than its ttl: the clock has restarted, and the system does not provide a number of the start.
        return max(0.0, left) if left <= row.lease_ttl + 1.0 else 0.0

    def lease(self, ttl: float) -> float:
        """Return the end of a new lease, by the monotonic clock."""
        self.shortest_ttl = min(self.shortest_ttl, ttl)
        return self.source.monotonic() + ttl

    def driven(self, row: RunRow) -> bool:
        """Tell whether a run has a live owner with a valid lease."""
        return (
            row.status == "running"
            and row.owner is not None
            and self.lease_left(row) > 0
            and self.owners.alive(row.owner)
        )

    def dead_owners(self) -> list[str]:
        """Return the owners of running runs whose processes have ended."""
        owners = self.connection.execute("SELECT DISTINCT owner FROM runs WHERE status = 'running'").fetchall()
        return [owner for (owner,) in owners if owner is not None and not self.owners.alive(owner)]


def find_run(session: DatabaseSession, run_id: str) -> RunRow | None:
    """Return the row of a run, or None."""
    row = session.connection.execute("SELECT * FROM run_infos WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else RunRow(*row)


def salt_of(run_id: str) -> int:
    """Return the salt of the checksums of a run."""
    return zlib.crc32(run_id.encode())


def checksum(salt: int, number: int, data: bytes) -> int:
    """Return the checksum of a record, its run and its number."""
    return zlib.crc32(data, salt ^ number)


def damaged(session: DatabaseSession, what: str) -> StoreCorruptedError:
    """Return the error for a damaged record."""
    return StoreCorruptedError(
        f"{what} in {session.path} is damaged: it differs from the data that was written. Restore the database from a "
        "backup, fork the run at an earlier commit, or delete the run"
    )

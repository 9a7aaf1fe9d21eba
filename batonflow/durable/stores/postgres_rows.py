"""Shared parts of the operations of a PostgresStore: queries, rows of runs, texts, checksums."""

import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from typing_extensions import override

from batonflow.durable.parts.references import whole_result
from batonflow.durable.store_protocol import RunInfo, RunStatus
from batonflow.durable.stores.packing import unpacked
from batonflow.workflow_core.errors import StoreCorruptedError

__all__ = [
    "RUN_COLUMNS", "Query", "RunRow", "Snapshot", "Steps", "Writing", "bounded", "checksum", "damaged", "info_of",
    "infos_of", "no_parts", "parts_of", "parts_query", "plain", "stored_text", "with_parts",
]  # fmt: skip

T = TypeVar("T")


class Query(NamedTuple):
    """A statement with its values.

    Attributes:
        sql: The statement.
        values: Its values by name.
        key: The run of which it locks the row. Queries with a key share a transaction, in the order of the keys, so
            that two processes do not wait for each other. A query without one has a transaction of its own.
    """

    sql: str
    values: Mapping[str, Any]
    key: str | None = None


class Snapshot(NamedTuple):
    """Queries that read the same state of the database."""

    queries: Sequence[Query]


Steps: TypeAlias = Generator[Query | Sequence[Query] | Snapshot, Any, T]
"""An operation. It yields queries, gets their rows (for several queries, a list for each), and returns its result."""


@dataclass(slots=True)
class Writing:
    """The data that operations of one transaction share.

    Attributes:
        vouch: Takes the lock of an owner of this process.
        retries: Whether the operation may have been done before, because the connection was lost meanwhile.
        touched: The runs that have new commits, are over, or are deleted.
        appended: The runs with new items in their inboxes.
        ready: Whether a run became ready.
        shortest_ttl: The shortest ttl of the leases, in seconds.
    """

    vouch: Callable[[str], None]
    retries: bool = False
    touched: list[str] = field(default_factory=list[str])
    appended: list[str] = field(default_factory=list[str])
    ready: bool = False
    shortest_ttl: float = float("inf")

    def lease(self, ttl: float) -> float:
        """Note the ttl of a new lease, and return it."""
        self.shortest_ttl = min(self.shortest_ttl, ttl)
        return ttl


# PostgreSQL refuses NUL in texts. It is written as \x01 and 0, and \x01 as \x01 and 1.
_SPECIAL = re.compile("[\x00\x01]")


def stored_text(text: str) -> str:
    """Return a text in the form in which the database keeps it."""
    return _SPECIAL.sub(lambda found: "\x010" if found[0] == "\x00" else "\x011", text)


def plain(stored: str) -> str:
    """Return the text for the stored form."""
    return re.sub("\x01(.)", lambda found: "\x00" if found[1] == "0" else "\x01", stored)


def bounded(number: int) -> int:
    """Return a number that the database can take, and which is as far beyond all records."""
    return max(-1, min(number, 2**62))


def checksum(number: int, data: bytes) -> int:
    """Return the checksum of a record and its number."""
    return zlib.crc32(data, number & 0xFFFFFFFF)


def damaged(what: str) -> StoreCorruptedError:
    """Return the error for a damaged record."""
    return StoreCorruptedError(
        f"{what} in the database is damaged: it differs from the data that was written. Restore the database from a "
        "backup, fork the run at an earlier commit, or delete the run"
    )


RUN_COLUMNS = """
    runs.id, runs.run_id, runs.workflow, runs.version, runs.digest, runs.shape, runs.status, runs.owner,
    batonflow.is_alive(runs.owner), batonflow.lease_left(runs.lease_until, runs.lease_ttl), runs.claimed_at, runs.epoch,
    runs.seq, runs.compacted, runs.stream_seq, runs.wake_at, runs.unread, runs.created_at, runs.updated_at,
    runs.forked_from, runs.forked_at, runs.metadata, runs.session IS NOT NULL, coalesce(runs.part_log, runs.id),
    runs.queue, runs.priority, runs.attempts, runs.held, results.body, results.crc
    FROM batonflow.runs LEFT JOIN batonflow.results ON results.run = runs.id
"""


class RunRow(NamedTuple):
    """A row of ``RUN_COLUMNS``."""

    id: int
    run_id: str
    workflow: str
    version: str | None
    digest: str
    shape: str
    status: RunStatus
    owner: str | None
    owner_alive: bool
    lease_left: float | None
    claimed_at: float | None
    epoch: int
    seq: int
    compacted: int
    stream_seq: int
    wake_at: float | None
    unread: int
    created_at: float
    updated_at: float
    forked_from: str | None
    forked_at: int | None
    metadata: Mapping[str, str] | None
    in_session: bool
    log: int
    queue: str
    priority: int
    attempts: int
    held: str | None
    result: bytes | None
    result_crc: int | None


_PARTS = """
SELECT asked.log, parts.log, number, body, crc
FROM unnest(%(logs)b::bigint[]) AS asked (log) CROSS JOIN LATERAL batonflow.line_of(asked.log) AS line
JOIN batonflow.parts ON parts.log = line.log AND (line.until IS NULL OR number < line.until)
ORDER BY asked.log, number
"""


def parts_query(logs: Sequence[int]) -> Query:
    """Return the query for the parts of logs."""
    return Query(_PARTS, {"logs": list(logs)})


def parts_of(rows: Iterable[Any], log: int, describe: Callable[[], str] = lambda: "a run") -> list[bytes]:
    """Return the parts of a log from the rows of ``parts_query``.

    Raises:
        StoreCorruptedError: A part is damaged or missing.
    """
    parts: list[bytes] = []
    for asked, _, number, body, crc in rows:
        if asked != log:
            continue
        if number != len(parts) or crc != checksum(number, body):
            raise damaged(f"Part {len(parts)} of the conversation of {describe()}")
        parts.append(unpacked(body))
    return parts


class NeedsPartsError(Exception):
    """Data refer to parts, which were not read yet."""


class _Unread(Sequence[bytes]):
    """Stands for parts that were not read yet."""

    @override
    def __len__(self) -> int:
        return sys.maxsize

    @override
    def __getitem__(self, index: Any) -> Any:
        raise NeedsPartsError


_UNREAD = _Unread()


def no_parts() -> Sequence[bytes]:
    """Return a sequence in the place of unread parts, for data that may not refer to any."""
    return _UNREAD


def with_parts(make: Callable[[Callable[[], Sequence[bytes]]], T], log: int) -> Steps[T]:
    """Make data that may refer to parts of a log, which are read only in this case."""
    try:
        return make(no_parts)
    except NeedsPartsError:
        rows = yield parts_query([log])
        return make(lambda: parts_of(rows, log))


def info_of(values: Sequence[Any]) -> Steps[RunInfo]:
    """Make the listing of a run from its row."""
    row = RunRow(*values)
    return (yield from with_parts(lambda parts: _info(row, parts), row.log))


def infos_of(rows: Sequence[Sequence[Any]]) -> Steps[list[RunInfo]]:
    """Make the listings of runs from their rows; parts that results refer to are read together."""
    found = [RunRow(*values) for values in rows]
    infos: dict[int, RunInfo] = {}
    for row in found:
        try:
            infos[row.id] = _info(row, no_parts)
        except NeedsPartsError:
            continue
    missing = [row for row in found if row.id not in infos]
    if missing:
        parts = yield parts_query(sorted({row.log for row in missing}))
        infos |= {row.id: _info(row, lambda row=row: parts_of(parts, row.log)) for row in missing}
    return [infos[row.id] for row in found]


def _info(row: RunRow, parts: Callable[[], Sequence[bytes]]) -> RunInfo:
    if row.result is not None and row.result_crc != checksum(row.seq, row.result):
        raise damaged(f"The result of run {row.run_id!r}")
    return RunInfo(
        run_id=row.run_id,
        workflow=plain(row.workflow),
        version=None if row.version is None else plain(row.version),
        digest=plain(row.digest),
        shape=plain(row.shape),
        status=row.status,
        owner=row.owner,
        owner_alive=row.owner_alive,
        lease_left=row.lease_left or 0.0,
        claimed_at=row.claimed_at,
        epoch=row.epoch,
        seq=row.seq,
        stream_seq=row.stream_seq,
        wake_at=row.wake_at,
        unread=row.unread,
        created_at=row.created_at,
        updated_at=row.updated_at,
        result=None if row.result is None else whole_result(unpacked(row.result), parts),
        forked_from=None if row.forked_from is None or row.forked_at is None else (row.forked_from, row.forked_at),
        metadata={plain(name): plain(value) for name, value in (row.metadata or {}).items()},
        session=row.run_id.rpartition(":")[0] if row.in_session else "",
        queue=row.queue,
        priority=row.priority,
        attempts=row.attempts,
        held=row.held or "",
    )

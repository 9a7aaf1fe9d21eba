"""Logs of parts in the file of a SQLiteStore, and listings of runs, whose results refer to parts.

A log has the number of the run that began it. Most logs have no row of their own; one that continues another has.
"""

import json
from collections.abc import Sequence
from typing import overload

from typing_extensions import override

from batonflow.durable.parts.references import whole_result
from batonflow.durable.store_protocol import NewRun, PartsGoneError, RunInfo
from batonflow.durable.stores.packing import PACKED_TEXT_FROM, packed, unpacked
from batonflow.durable.stores.sqlite_rows import PLACE_BITS, DatabaseSession, RunRow, checksum, damaged
from batonflow.workflow_core.errors import StoreCorruptedError

__all__ = [
    "LogParts", "collect_log", "continue_log", "continued_log", "insert_parts", "log_length", "read_parts",
    "runs_of_conversation",
]  # fmt: skip

_MOST_NAMED = 5

_IS_USED = """
SELECT EXISTS (SELECT 1 FROM runs WHERE id = :log AND part_log IS NULL)
    OR EXISTS (SELECT 1 FROM runs WHERE part_log = :log)
    OR EXISTS (SELECT 1 FROM sessions WHERE part_log = :log)
    OR EXISTS (SELECT 1 FROM part_logs WHERE parent = :log)
"""
_CONVERSATION = """
WITH RECURSIVE line(id) AS (
    SELECT ? UNION ALL SELECT part_logs.id FROM part_logs JOIN line ON part_logs.parent = line.id
)
SELECT run_id FROM runs WHERE part_log IN (SELECT id FROM line) OR (id IN (SELECT id FROM line) AND part_log IS NULL)
"""
_IS_WRITTEN = """
SELECT EXISTS (SELECT 1 FROM runs
    WHERE (part_log = :log OR (id = :log AND part_log IS NULL)) AND status IN ('running', 'ready', 'waiting'))
"""


def _parent(session: DatabaseSession, log: int) -> tuple[int, int] | None:
    """Return the log that a log continues, and the number of the first part of its own."""
    found = session.connection.execute("SELECT parent, begins FROM part_logs WHERE id = ?", (log,)).fetchone()
    return None if found is None else (found[0], found[1])


def log_length(session: DatabaseSession, log: int) -> int:
    """Return the number of parts of a log, with those of the logs that it continues."""
    first, behind = log << PLACE_BITS, (log + 1) << PLACE_BITS
    (last,) = session.connection.execute(
        "SELECT max(place) FROM parts WHERE place >= ? AND place < ?", (first, behind)
    ).fetchone()
    if last is not None:
        return last - first + 1
    parent = _parent(session, log)
    return 0 if parent is None else parent[1]


def continued_log(session: DatabaseSession, run: NewRun) -> tuple[int | None, tuple[int, int] | None]:
    """Return the log that a new run shares, or the parent and the begin of its own. None twice for a new log.

    Raises:
        PartsGoneError: The log that the run continues was deleted.
    """
    if run.continues is None:
        return None, None
    log, length = run.continues
    there = log_length(session, log)
    if there < length:
        raise PartsGoneError(f"The parts that run {run.run_id!r} continues were deleted")
    (is_written,) = session.connection.execute(_IS_WRITTEN, {"log": log}).fetchone()
    return (None, (log, length)) if is_written or there > length else (log, None)


def continue_log(session: DatabaseSession, log: int, parent: int, begins: int) -> None:
    """Make a log that continues another one."""
    session.connection.execute("INSERT INTO part_logs VALUES (?, ?, ?)", (log, parent, begins))


def insert_parts(session: DatabaseSession, log: int, first: int, bodies: Sequence[bytes]) -> None:
    """Add parts to a log, from a number on."""
    rows: list[tuple[int, bytes, int]] = []
    for number, body in enumerate(bodies, first):
        stored = packed(body, PACKED_TEXT_FROM)
        rows.append(((log << PLACE_BITS) + number, stored, checksum(log, number, stored)))
    session.connection.executemany("INSERT INTO parts VALUES (?, ?, ?)", rows)


def read_parts(session: DatabaseSession, log: int) -> list[bytes]:
    """Return the parts of a log, with those of the logs that it continues.

    Raises:
        StoreCorruptedError: A part is damaged or missing.
    """
    # The logs with the ends of the ranges that are read of them, the latest log first.
    line: list[tuple[int, int | None]] = [(log, None)]
    while (parent := _parent(session, line[-1][0])) is not None:
        last = line[-1][1]
        line.append((parent[0], parent[1] if last is None else min(parent[1], last)))
    parts: list[bytes] = []
    for each, last in reversed(line):
        first = each << PLACE_BITS
        found = session.connection.execute(
            "SELECT place, body, crc FROM parts WHERE place >= ? AND place < ? ORDER BY place",
            (first, (each + 1) << PLACE_BITS if last is None else first + last),
        )
        for number, (place, body, crc) in enumerate(found.fetchall(), len(parts)):
            if place - first != number or crc != checksum(each, number, body):
                raise _damaged_part(session, each, number)
            parts.append(unpacked(body))
    return parts


class LogParts(Sequence[bytes]):
    """The parts of a log. A part is read when it is asked for."""

    def __init__(self, session: DatabaseSession, log: int) -> None:
        self._session, self._log = session, log

    @override
    def __len__(self) -> int:
        return log_length(self._session, self._log)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    @override
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return read_parts(self._session, self._log)[index]
        log = self._log
        while (parent := _parent(self._session, log)) is not None and index < parent[1]:
            log = parent[0]
        found = self._session.connection.execute(
            "SELECT body, crc FROM parts WHERE place = ?", ((log << PLACE_BITS) + index,)
        ).fetchone()
        if found is None or found[1] != checksum(log, index, found[0]):
            raise _damaged_part(self._session, log, index)
        return unpacked(found[0])


def _damaged_part(session: DatabaseSession, log: int, number: int) -> StoreCorruptedError:
    return damaged(session, f"Part {number} of the conversation of {_runs_of(session, log)}")


def _runs_of(session: DatabaseSession, log: int) -> str:
    """Name the runs that write into a log."""
    found = session.connection.execute(
        "SELECT run_id FROM runs WHERE part_log = ? OR (id = ? AND part_log IS NULL) ORDER BY id DESC", (log, log)
    )
    names = [repr(run_id) for (run_id,) in found.fetchmany(_MOST_NAMED)]
    return f"the runs {', '.join(names)}" if names else "runs that were deleted"


def info_of(session: DatabaseSession, row: RunRow) -> RunInfo:
    """Return the listing of a run from its row.

    Raises:
        StoreCorruptedError: The result is damaged.
    """
    if row.result is not None and row.result_crc != checksum(row.salt, row.seq, row.result):
        raise damaged(session, f"The result of run {row.run_id!r}")
    return RunInfo(
        run_id=row.run_id,
        workflow=row.workflow,
        version=row.version,
        digest=row.digest,
        shape=row.shape,
        status=row.status,
        owner=row.owner,
        owner_alive=row.owner is not None and session.owners.alive(row.owner),
        lease_left=session.lease_left(row),
        claimed_at=row.claimed_at,
        epoch=row.epoch,
        seq=row.seq,
        stream_seq=row.stream_seq,
        wake_at=row.wake_at,
        unread=row.unread,
        created_at=row.created_at,
        updated_at=row.updated_at,
        result=None if row.result is None else whole_result(unpacked(row.result), lambda: LogParts(session, row.log)),
        forked_from=None if row.forked_from is None or row.forked_at is None else (row.forked_from, row.forked_at),
        metadata={} if row.metadata is None else json.loads(row.metadata),
        session="" if row.turn is None else row.run_id.rpartition(":")[0],
        queue=row.queue,
        priority=row.priority,
        attempts=row.attempts,
        held=row.held or "",
    )


def runs_of_conversation(session: DatabaseSession, log: int) -> list[str]:
    """Return the runs that write into a log, its parent logs, or logs that continue one of these."""
    while (parent := _parent(session, log)) is not None:
        log = parent[0]
    return [run_id for (run_id,) in session.connection.execute(_CONVERSATION, (log,)).fetchall()]


def collect_log(session: DatabaseSession, log: int) -> None:
    """Delete a log that no run, session or other log needs. Then do so for the log that it continues."""
    following: int | None = log
    while following is not None:
        (is_used,) = session.connection.execute(_IS_USED, {"log": following}).fetchone()
        if is_used:
            return
        parent = _parent(session, following)
        session.connection.execute(
            "DELETE FROM parts WHERE place >= ? AND place < ?", (following << PLACE_BITS, (following + 1) << PLACE_BITS)
        )
        session.connection.execute("DELETE FROM part_logs WHERE id = ?", (following,))
        following = None if parent is None else parent[0]

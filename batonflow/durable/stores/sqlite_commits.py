"""Writing of commits into the file of a SQLiteStore, the fast path of the store."""

from collections.abc import Sequence
from functools import lru_cache

from batonflow.durable.store_protocol import CommitVerdict, RunCommit
from batonflow.durable.stores.bounds import check_commit, check_run_id
from batonflow.durable.stores.packing import packed, unpacked
from batonflow.durable.stores.sqlite_parts import insert_parts
from batonflow.durable.stores.sqlite_rows import PLACE_BITS, DatabaseSession, RunRow, checksum, find_run

__all__ = ["end_turn", "flush", "insert_bodies", "write_commits"]

_COMMITTED = CommitVerdict("committed")
_FENCED = CommitVerdict("fenced")
_ROWS = 64
_VALUES = 4 * _ROWS

# The common case in one statement: the owner's next commit of a run with an empty inbox.
_GO_ON = """
UPDATE runs
SET seq = ?, stream_seq = max(stream_seq, ?), wake_at = ?, lease_until = ?, lease_ttl = ?, updated_at = ?,
    attempts = attempts * ?
WHERE id = ? AND run_id = ? AND owner = ? AND epoch = ? AND seq = ? AND status = 'running' AND unread = 0
"""
_GO_ON_OR_END = """
UPDATE runs
SET seq = ?, stream_seq = max(stream_seq, ?), wake_at = ?, lease_until = ?, lease_ttl = ?, updated_at = ?,
    status = ?, ended_at = ?, owner = ?, unread = unread - ?, attempts = attempts * ?
WHERE id = ?
"""


def write_commits(session: DatabaseSession, batch: Sequence[RunCommit]) -> list[CommitVerdict]:
    """Write the entries of a batch, and return their verdicts.

    Raises:
        StoreError: An entry is too large; nothing was written.
    """
    for entry in batch:
        check_commit(entry)
    return [_write(session, entry) for entry in batch]


def _write(session: DatabaseSession, entry: RunCommit) -> CommitVerdict:
    known = session.known.get(entry.run_id)
    if known is None or entry.consumed or entry.status is not None:
        return _write_with_care(session, entry)
    number, salt, log = known
    now = session.source.now()
    done = session.connection.execute(
        _GO_ON,
        (
            entry.expected_seq + len(entry.commits),
            entry.stream_seq,
            entry.wake_at,
            session.lease(entry.ttl),
            entry.ttl,
            now,
            not entry.commits,
            number,
            entry.run_id,
            entry.owner,
            entry.epoch,
            entry.expected_seq,
        ),
    )
    if not done.rowcount:
        return _write_with_care(session, entry)
    _insert(session, number, salt, log, entry, now)
    return _COMMITTED


def _write_with_care(session: DatabaseSession, entry: RunCommit) -> CommitVerdict:
    row = find_run(session, check_run_id(entry.run_id))
    if row is None:
        return _FENCED
    if (row.status, row.owner, row.epoch, row.seq) != ("running", entry.owner, entry.epoch, entry.expected_seq):
        return CommitVerdict("already", row.unread > 0) if _was_written(session, row, entry) else _FENCED
    session.known[entry.run_id] = (row.id, row.salt, row.log)
    now = session.source.now()
    over = entry.status is not None
    used = _use(session, row, entry)
    session.connection.execute(
        _GO_ON_OR_END,
        (
            entry.expected_seq + len(entry.commits),
            entry.stream_seq,
            None if over else entry.wake_at,
            None if over else session.lease(entry.ttl),
            entry.ttl,
            now,
            entry.status or "running",
            now if over else None,
            None if over else entry.owner,
            used,
            not entry.commits,
            row.id,
        ),
    )
    _insert(session, row.id, row.salt, row.log, entry, now)
    if over:
        session.known.pop(entry.run_id, None)
        if entry.result is not None:
            result = packed(entry.result)
            crc = checksum(row.salt, entry.expected_seq + len(entry.commits), result)
            session.connection.execute("INSERT INTO results VALUES (?, ?, ?)", (row.id, result, crc))
        if row.turn is not None:
            end_turn(session, row, row.turn, entry.status or "", entry.turn)
    return CommitVerdict("committed", row.unread > used)


def end_turn(session: DatabaseSession, row: RunRow, place: int, status: str, body: bytes | None) -> None:
    """End a turn of a session, in the transaction that ends its run."""
    stored, now = packed(body or b""), session.source.now()
    session.connection.execute(
        "UPDATE turns SET status = ?, ended = ?, body = ?, body_crc = ? WHERE place = ? AND status = 'running'",
        (status, now, stored, checksum(place >> PLACE_BITS, place, stored), place),
    )
    # A run of an earlier version has begun without a log.
    session.connection.execute(
        "UPDATE sessions SET updated_at = ?, part_log = coalesce(part_log, ?) WHERE id = ?",
        (now, row.log, place >> PLACE_BITS),
    )


def _use(session: DatabaseSession, row: RunRow, entry: RunCommit) -> int:
    """Mark the consumed inbox items; return the number of newly used ones."""
    used = 0
    for position in entry.consumed:
        used += session.connection.execute(
            "UPDATE inbox SET used = ? WHERE run = ? AND position = ? AND used IS NULL",
            (entry.expected_seq + 1, row.id, position),
        ).rowcount
    for position in entry.passed_over:
        # If a caller has used the new key, the old key stays in use.
        session.connection.execute(
            "UPDATE OR IGNORE inbox SET key = key || ' passed over ' || position WHERE run = ? AND position = ?",
            (row.id, position),
        )
    return used


def _insert(session: DatabaseSession, run: int, salt: int, log: int, entry: RunCommit, now: float) -> None:
    if entry.parts:
        insert_parts(session, log, entry.first_part, entry.parts)
    seq = insert_bodies(session, run, salt, entry.expected_seq, entry.commits, now)
    if entry.snapshot is not None:
        snapshot = packed(entry.snapshot)
        session.connection.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            ((run << PLACE_BITS) + seq, snapshot, checksum(salt, seq, snapshot)),
        )
    session.touched.append(entry.run_id)


def insert_bodies(session: DatabaseSession, run: int, salt: int, seq: int, bodies: Sequence[bytes], now: float) -> int:
    """Add commits after number ``seq`` to the transaction, and return the last number."""
    base = run << PLACE_BITS
    rows = session.rows
    for body in bodies:
        seq += 1
        stored = packed(body)
        rows += (base + seq, now, stored, checksum(salt, seq, stored))
    if len(rows) >= _VALUES:
        _flush_full(session)
    return seq


def flush(session: DatabaseSession) -> None:
    """Write the collected commits, before the table is read or the transaction ends."""
    if not session.rows:
        return
    _flush_full(session)
    while session.rows:
        count = 1 << (len(session.rows) // 4).bit_length() - 1
        session.connection.execute(_insert_statement(count), session.rows[: 4 * count])
        del session.rows[: 4 * count]


def _flush_full(session: DatabaseSession) -> None:
    # Few statements with many rows, because each statement releases and takes Python's global lock.
    rows = session.rows
    full = len(rows) - len(rows) % _VALUES
    for begin in range(0, full, _VALUES):
        session.connection.execute(_insert_statement(_ROWS), rows[begin : begin + _VALUES])
    del rows[:full]


@lru_cache
def _insert_statement(rows: int) -> str:
    return "INSERT INTO commits VALUES (?, ?, ?, ?)" + ", (?, ?, ?, ?)" * (rows - 1)


def _was_written(session: DatabaseSession, row: RunRow, entry: RunCommit) -> bool:
    """Tell whether the same commits were written before, and the answer was lost.

    A run has one writer per epoch, so commits with these numbers are from the same owner; the bodies are compared.
    """
    last = entry.expected_seq + len(entry.commits)
    if row.epoch != entry.epoch or row.seq < last or (entry.status is not None and row.status != entry.status):
        return False
    if not entry.commits:
        return entry.status is not None
    flush(session)
    base = row.id << PLACE_BITS
    for seq, body in enumerate(entry.commits, entry.expected_seq + 1):
        if seq <= row.compacted:
            continue
        found = session.connection.execute("SELECT body FROM commits WHERE place = ?", (base + seq,)).fetchone()
        if found is None or unpacked(found[0]) != body:
            return False
    return True

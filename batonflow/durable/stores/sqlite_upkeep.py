"""Branching off, deleting and compacting runs of a SQLiteStore: operations inside one write transaction each."""

from collections.abc import Sequence
from typing import Literal

from batonflow.durable.stores.bounds import check_fork, check_run_id
from batonflow.durable.stores.sqlite_commits import flush, insert_bodies
from batonflow.durable.stores.sqlite_rows import PLACE_BITS, Desk, RunRow, find_run
from batonflow.workflow_core.errors import StoreError

__all__ = ["compact", "delete", "delete_ended", "fork", "to_retire"]


def fork(
    desk: Desk, run_id: str, at: int, new_id: str, commits: Sequence[bytes]
) -> Literal["forked", "exists", "unknown", "compacted"]:
    """See ``RunStore.fork``."""
    check_fork(new_id, at, commits)
    source = find_run(desk, check_run_id(run_id))
    if source is None or not 0 <= at <= source.seq:
        return "unknown"
    if find_run(desk, new_id) is not None:
        return "exists"
    first, last = source.id << PLACE_BITS, (source.id << PLACE_BITS) + at
    (snapshot,) = desk.connection.execute(
        "SELECT max(place) FROM snapshots WHERE place BETWEEN ? AND ?", (first, last)
    ).fetchone()
    if at > 0 and (snapshot or first) < first + min(at, source.compacted):
        return "compacted"
    flush(desk)
    now = desk.source.now()
    inserted = desk.connection.execute(
        """
        INSERT INTO runs (run_id, workflow, version, digest, shape, status, epoch, seq, compacted, stream_seq, due_at,
                          created_at, updated_at, forked_from, forked_at, salt)
        SELECT ?, workflow, version, digest, shape, 'ready', (SELECT epoch_floor FROM facts), ?, min(compacted, ?),
               stream_seq, ?, ?, ?, run_id, ?, salt
        FROM runs WHERE id = ?
        """,
        (new_id, at + len(commits), at, now, now, now, at, source.id),
    )
    assert inserted.lastrowid is not None
    moved = (inserted.lastrowid - source.id) << PLACE_BITS
    desk.connection.execute(
        "INSERT INTO commits SELECT place + ?, at, body, crc FROM commits WHERE place > ? AND place <= ?",
        (moved, first, last),
    )
    desk.connection.execute(
        "INSERT INTO snapshots SELECT place + ?, body, crc FROM snapshots WHERE place = ?", (moved, snapshot)
    )
    insert_bodies(desk, inserted.lastrowid, source.salt, at, commits, now)
    return "forked"


def delete(desk: Desk, run_id: str, force: bool) -> bool:
    """See ``RunStore.delete``."""
    row = find_run(desk, check_run_id(run_id))
    if row is None:
        return False
    if not force and desk.driven(row):
        raise StoreError(
            f"Run {run_id!r} is being driven by {row.owner}: cancel it and wait for its end, or delete it with "
            "force=True, after which nothing more of it is recorded"
        )
    _remove(desk, row)
    return True


def _remove(desk: Desk, row: RunRow) -> None:
    flush(desk)
    first, behind = row.id << PLACE_BITS, (row.id + 1) << PLACE_BITS
    connection = desk.connection
    connection.execute("DELETE FROM commits WHERE place >= ? AND place < ?", (first, behind))
    connection.execute("DELETE FROM snapshots WHERE place >= ? AND place < ?", (first, behind))
    connection.execute("DELETE FROM inbox WHERE run = ?", (row.id,))
    connection.execute("DELETE FROM results WHERE run = ?", (row.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (row.id,))
    # A former owner holds an epoch up to this one; a new run of the same name begins above it.
    connection.execute("UPDATE facts SET epoch_floor = max(epoch_floor, ?)", (row.epoch,))
    desk.known.pop(row.run_id, None)
    desk.touched.append(row.run_id)


def compact(desk: Desk, run_id: str) -> int:
    """See ``RunStore.compact``."""
    row = find_run(desk, check_run_id(run_id))
    if row is None:
        return 0
    first = row.id << PLACE_BITS
    (newest,) = desk.connection.execute(
        "SELECT max(place) FROM snapshots WHERE place BETWEEN ? AND ?", (first, first + row.seq)
    ).fetchone()
    if newest is None:
        return 0
    flush(desk)
    dropped = desk.connection.execute("DELETE FROM commits WHERE place > ? AND place <= ?", (first, newest)).rowcount
    desk.connection.execute("DELETE FROM snapshots WHERE place >= ? AND place < ?", (first, newest))
    desk.connection.execute("UPDATE runs SET compacted = ? WHERE id = ?", (newest - first, row.id))
    return dropped


def to_retire(desk: Desk, seconds: float, limit: int) -> list[str]:
    """Runs that ended longer ago than this, the oldest first."""
    found = desk.connection.execute(
        """
        SELECT run_id FROM runs
        WHERE ended_at < ? ORDER BY ended_at LIMIT ?
        """,
        (desk.source.now() - seconds, limit),
    )
    return [run_id for (run_id,) in found.fetchall()]


def delete_ended(desk: Desk, run_ids: Sequence[str], seconds: float) -> list[str]:
    """Delete runs that ended longer ago than this; return their ids."""
    before = desk.source.now() - seconds
    deleted: list[str] = []
    for run_id in run_ids:
        row = find_run(desk, run_id)
        if row is not None and row.ended_at is not None and row.ended_at < before:
            _remove(desk, row)
            deleted.append(run_id)
    return deleted

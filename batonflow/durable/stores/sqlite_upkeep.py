"""Fork, delete and compact runs of a SQLiteStore; each operation is one write transaction."""

from collections.abc import Sequence
from typing import Literal

from batonflow.durable.stores.bounds import check_fork, check_run_id, driven, in_session
from batonflow.durable.stores.sqlite_commits import end_turn, flush, insert_bodies
from batonflow.durable.stores.sqlite_parts import collect_log, continue_log, log_length, runs_of_conversation
from batonflow.durable.stores.sqlite_rows import ENDS, PLACE_BITS, DatabaseSession, RunRow, find_run
from batonflow.durable.stores.sqlite_search import forget_entry

__all__ = ["compact", "delete", "delete_ended", "fork", "remove", "to_retire"]


def fork(
    session: DatabaseSession, run_id: str, at: int, new_id: str, commits: Sequence[bytes]
) -> Literal["forked", "exists", "unknown", "compacted"]:
    """See ``RunStore.fork``."""
    check_fork(new_id, at, commits)
    source = find_run(session, check_run_id(run_id))
    if source is None or not 0 <= at <= source.seq:
        return "unknown"
    if find_run(session, new_id) is not None:
        return "exists"
    first, last = source.id << PLACE_BITS, (source.id << PLACE_BITS) + at
    (snapshot,) = session.connection.execute(
        "SELECT max(place) FROM snapshots WHERE place BETWEEN ? AND ?", (first, last)
    ).fetchone()
    if at > 0 and (snapshot or first) < first + min(at, source.compacted):
        return "compacted"
    flush(session)
    now = session.source.now()
    inserted = session.connection.execute(
        """
        INSERT INTO runs (run_id, workflow, version, digest, shape, status, epoch, seq, compacted, stream_seq, due_at,
                          created_at, updated_at, forked_from, forked_at, salt, metadata, queue, priority)
        SELECT ?, workflow, version, digest, shape, 'ready', (SELECT epoch_floor FROM facts), ?, min(compacted, ?),
               stream_seq, ?, ?, ?, run_id, ?, salt, metadata, queue, priority
        FROM runs WHERE id = ?
        """,
        (new_id, at + len(commits), at, now, now, now, at, source.id),
    )
    assert inserted.lastrowid is not None
    moved = (inserted.lastrowid - source.id) << PLACE_BITS
    session.connection.execute(
        "INSERT INTO commits SELECT place + ?, at, body, crc FROM commits WHERE place > ? AND place <= ?",
        (moved, first, last),
    )
    session.connection.execute(
        "INSERT INTO snapshots SELECT place + ?, body, crc FROM snapshots WHERE place = ?", (moved, snapshot)
    )
    insert_bodies(session, inserted.lastrowid, source.salt, at, commits, now)
    if (length := log_length(session, source.log)) > 0:
        continue_log(session, inserted.lastrowid, source.log, length)
    return "forked"


def delete(session: DatabaseSession, run_id: str, force: bool, conversation: bool) -> bool:
    """See ``RunStore.delete``."""
    row = find_run(session, check_run_id(run_id))
    if row is None:
        return False
    names = runs_of_conversation(session, row.log) if conversation else [run_id]
    rows = [one for name in names if (one := find_run(session, name)) is not None]
    for one in rows:
        if conversation and one.turn is not None:
            raise in_session(one.run_id)
        if not force and session.driven(one):
            raise driven(one.run_id, one.owner)
    for one in rows:
        remove(session, one)
    return True


def remove(session: DatabaseSession, row: RunRow) -> None:
    """Delete a run with its records; its turn in a session stays."""
    flush(session)
    first, behind = row.id << PLACE_BITS, (row.id + 1) << PLACE_BITS
    forget_entry(session, row)
    connection = session.connection
    connection.execute("DELETE FROM commits WHERE place >= ? AND place < ?", (first, behind))
    connection.execute("DELETE FROM snapshots WHERE place >= ? AND place < ?", (first, behind))
    connection.execute("DELETE FROM inbox WHERE run = ?", (row.id,))
    connection.execute("DELETE FROM results WHERE run = ?", (row.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (row.id,))
    collect_log(session, row.log)
    # A former owner has an epoch up to this one, so a new run of the same name begins above it.
    connection.execute("UPDATE facts SET epoch_floor = max(epoch_floor, ?)", (row.epoch,))
    if row.turn is not None and row.status not in ENDS:
        end_turn(session, row, row.turn, "cancelled", None)
    session.known.pop(row.run_id, None)
    session.touched.append(row.run_id)


def compact(session: DatabaseSession, run_id: str) -> int:
    """See ``RunStore.compact``."""
    row = find_run(session, check_run_id(run_id))
    if row is None:
        return 0
    first = row.id << PLACE_BITS
    (newest,) = session.connection.execute(
        "SELECT max(place) FROM snapshots WHERE place BETWEEN ? AND ?", (first, first + row.seq)
    ).fetchone()
    if newest is None:
        return 0
    flush(session)
    dropped = session.connection.execute("DELETE FROM commits WHERE place > ? AND place <= ?", (first, newest)).rowcount
    session.connection.execute("DELETE FROM snapshots WHERE place >= ? AND place < ?", (first, newest))
    session.connection.execute("UPDATE runs SET compacted = ? WHERE id = ?", (newest - first, row.id))
    return dropped


def to_retire(session: DatabaseSession, seconds: float, limit: int) -> list[str]:
    """Return the runs that ended more than ``seconds`` ago, the oldest first."""
    found = session.connection.execute(
        """
        SELECT run_id FROM runs
        WHERE ended_at < ? ORDER BY ended_at LIMIT ?
        """,
        (session.source.now() - seconds, limit),
    )
    return [run_id for (run_id,) in found.fetchall()]


def delete_ended(session: DatabaseSession, run_ids: Sequence[str], seconds: float) -> list[str]:
    """Delete the given runs that ended more than ``seconds`` ago, and return their ids."""
    before = session.source.now() - seconds
    deleted: list[str] = []
    for run_id in run_ids:
        row = find_run(session, run_id)
        if row is not None and row.ended_at is not None and row.ended_at < before:
            remove(session, row)
            deleted.append(run_id)
    return deleted

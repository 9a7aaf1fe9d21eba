"""Reading from the file of a SQLiteStore, each operation in one read transaction, with checksums."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from batonflow.durable.parts.references import without_references
from batonflow.durable.store_protocol import InboxItem, Loaded, RunInfo, StoredCommit
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.stores.packing import unpacked
from batonflow.durable.stores.sqlite_parts import LogParts, info_of, read_parts
from batonflow.durable.stores.sqlite_rows import ENDS, PLACE_BITS, DatabaseSession, RunRow, checksum, damaged, find_run
from batonflow.workflow_core.errors import StoreError

__all__ = ["follow", "info", "load", "read", "unread"]


def info(session: DatabaseSession, run_id: str) -> RunInfo | None:
    """See ``RunStore.info``."""
    row = find_run(session, check_run_id(run_id))
    return None if row is None else info_of(session, row)


def load(session: DatabaseSession, run_id: str, at: int | None) -> Loaded | None:
    """See ``RunStore.load``."""
    row = find_run(session, check_run_id(run_id))
    if row is None:
        return None
    last = row.seq if at is None else at
    if not 0 <= last <= row.seq:
        raise StoreError(f"Run {run_id!r} has no commit {at}: its commits are numbered from 1 to {row.seq}")
    snapshot = _snapshot(session, row, last)
    first = snapshot[0] if snapshot else 0
    if first < row.compacted and first < last:
        raise StoreError(
            f"Commit {at} of run {run_id!r} is not kept any more: commits up to {row.compacted} were dropped"
        )
    commits = _commits(session, row, first, last, last - first)
    inbox = _inbox(session, row, last if at is not None else None)
    return Loaded(info_of(session, row), snapshot, commits, inbox, read_parts(session, row.log), row.log)


def _snapshot(session: DatabaseSession, row: RunRow, last: int) -> tuple[int, bytes] | None:
    base = row.id << PLACE_BITS
    found = session.connection.execute(
        "SELECT place, body, crc FROM snapshots WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        (base, base + last),
    ).fetchone()
    if found is None:
        return None
    seq, body = found[0] - base, found[1]
    if found[2] != checksum(row.salt, seq, body):
        raise damaged(session, f"The snapshot after commit {seq} of run {row.run_id!r}")
    return seq, unpacked(body)


def _commits(session: DatabaseSession, row: RunRow, after: int, last: int, limit: int) -> list[StoredCommit]:
    """Return the commits after ``after`` or the compacted ones, up to ``last`` and a limit; all must exist."""
    base = row.id << PLACE_BITS
    begin = max(after, row.compacted)
    end = min(last, begin + limit)
    found = session.connection.execute(
        "SELECT place, at, body, crc FROM commits WHERE place > ? AND place <= ? ORDER BY place",
        (base + begin, base + end),
    ).fetchall()
    commits: list[StoredCommit] = []
    for seq, (place, at, body, crc) in enumerate(found, begin + 1):
        if place != base + seq:
            break
        if crc != checksum(row.salt, seq, body):
            raise damaged(session, f"Commit {seq} of run {row.run_id!r}")
        commits.append(StoredCommit(seq, at, unpacked(body)))
    if len(commits) < end - begin:
        raise damaged(session, f"Commit {begin + len(commits) + 1} of run {row.run_id!r} is missing, so the run")
    return commits


def _inbox(session: DatabaseSession, row: RunRow, last: int | None) -> list[InboxItem]:
    """Return the inbox items that are unused now, or were unused at commit ``last``."""
    if last is None:
        return _items(
            session,
            row,
            session.connection.execute(
                """
                SELECT position, key, kind, payload, at, crc FROM inbox
                WHERE run = ? AND used IS NULL ORDER BY position
                """,
                (row.id,),
            ),
        )
    return _items(
        session,
        row,
        session.connection.execute(
            """
            SELECT position, key, kind, payload, at, crc FROM inbox
            WHERE run = ? AND came <= ? AND (used IS NULL OR used > ?) ORDER BY position
            """,
            (row.id, last, last),
        ),
    )


def _items(session: DatabaseSession, row: RunRow, found: Iterable[Any]) -> list[InboxItem]:
    items: list[InboxItem] = []
    for position, key, kind, payload, at, crc in found:
        if crc != checksum(row.salt, position, payload):
            raise damaged(session, f"Inbox item {position} of run {row.run_id!r}")
        items.append(InboxItem(position, key, kind, payload, at))
    return items


def read(session: DatabaseSession, run_id: str, after: int, limit: int) -> list[StoredCommit]:
    """See ``RunStore.read``."""
    row = find_run(session, check_run_id(run_id))
    return [] if row is None else _whole_commits(session, row, after, limit)


def _whole_commits(session: DatabaseSession, row: RunRow, after: int, limit: int) -> list[StoredCommit]:
    commits = _commits(session, row, after, row.seq, limit)
    return without_references(commits, lambda: LogParts(session, row.log))


def follow(
    session: DatabaseSession, run_id: str, after: int, limit: int, number: int | None
) -> tuple[int | None, list[StoredCommit]]:
    """Return commits for a continuous reader, with the last number; None at the end.

    Args:
        session: Of this thread.
        run_id: The run.
        after: The last commit that is known.
        limit: How many at most.
        number: The number that the run had before; another run of that name is not meant.
    """
    row = find_run(session, run_id)
    if row is None or number not in (None, row.id):
        return None, []
    commits = _whole_commits(session, row, after, limit)
    over = row.status in ENDS and (commits[-1].seq if commits else after) >= row.seq
    return None if over else row.id, commits


def unread(session: DatabaseSession, after: Mapping[str, int]) -> dict[str, list[InboxItem]]:
    """See ``RunStore.unread``."""
    found = session.connection.execute(
        """
        SELECT runs.run_id, runs.salt, inbox.position, inbox.key, kind, payload, inbox.at, inbox.crc
        FROM json_each(?) AS asked
        JOIN runs ON runs.run_id = asked.key AND runs.unread > 0
        JOIN inbox ON inbox.run = runs.id AND inbox.position > asked.value AND inbox.used IS NULL
        ORDER BY inbox.run, inbox.position
        """,
        (json.dumps(dict(after)),),
    )
    items: dict[str, list[InboxItem]] = {}
    for run_id, salt, position, key, kind, payload, at, crc in found:
        if crc != checksum(salt, position, payload):
            raise damaged(session, f"Inbox item {position} of run {run_id!r}")
        items.setdefault(run_id, []).append(InboxItem(position, key, kind, payload, at))
    return items

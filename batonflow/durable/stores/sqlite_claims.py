"""Claims and inboxes of a SQLiteStore, each operation in one write transaction."""

import json
from collections.abc import Sequence
from typing import Literal

from batonflow.durable.store_protocol import Appended, Busy, Claimed, Created, Ended, Existing, NewRun, NotDue
from batonflow.durable.stores.bounds import check_new_run, check_owner, check_payload, check_run_id
from batonflow.durable.stores.sqlite_commits import insert_bodies
from batonflow.durable.stores.sqlite_parts import continue_log, continued_log, info_of, insert_parts
from batonflow.durable.stores.sqlite_rows import ENDS, DatabaseSession, RunRow, checksum, find_run, salt_of

__all__ = ["append", "claim", "claim_due", "create", "park", "release", "renew", "renew_held", "sweep"]

_READY = """
UPDATE runs
SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1, due_at = ?, updated_at = ?
WHERE id = ?
"""


def create(
    session: DatabaseSession, run: NewRun, owner: str, ttl: float, turn: int | None = None
) -> Created | Existing:
    """See ``RunStore.create``; ``turn`` is the place of the turn that the run is."""
    check_new_run(run)
    existing = find_run(session, run.run_id)
    if existing is not None:
        return Existing(info_of(session, existing))
    session.owners.vouch(check_owner(owner))
    (floor,) = session.connection.execute("SELECT epoch_floor FROM facts").fetchone()
    now = session.source.now()
    salt = salt_of(run.run_id)
    until = session.lease(ttl)
    shared, parent = continued_log(session, run)
    inserted = session.connection.execute(
        """
        INSERT INTO runs (run_id, workflow, version, digest, shape, status, owner, epoch, claimed_at, lease_boot,
                          lease_until, lease_ttl, seq, stream_seq, created_at, updated_at, salt, metadata, turn,
                          part_log)
        VALUES (?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            *_names(run),
            owner,
            floor + 1,
            now,
            session.boot,
            until,
            ttl,
            int(run.first is not None),
            run.stream_seq,
            now,
            now,
            salt,
            json.dumps(dict(run.metadata), ensure_ascii=False) if run.metadata else None,
            turn,
            shared,
        ),
    )
    number = inserted.lastrowid
    assert number is not None
    log = number if shared is None else shared
    session.known[run.run_id] = (number, salt, log)
    if run.first is not None:
        insert_bodies(session, number, salt, 0, [run.first], now)
    if parent is not None:
        continue_log(session, log, *parent)
    if run.parts:
        insert_parts(session, log, 0 if run.continues is None else run.continues[1], run.parts)
    return Created(floor + 1, log)


def _names(run: NewRun) -> tuple[str | None, ...]:
    return run.run_id, run.workflow, run.version, run.digest, run.shape


def claim(
    session: DatabaseSession, run_id: str, owner: str, ttl: float, only_due: bool
) -> Claimed | Busy | Ended | NotDue | None:
    """See ``RunStore.claim``."""
    row = find_run(session, check_run_id(run_id))
    if row is None:
        return None
    if row.status in ENDS:
        return Ended(info_of(session, row))
    if row.owner is not None and row.owner != owner and session.driven(row):
        return Busy(row.owner, row.claimed_at or row.created_at, session.lease_left(row))
    if only_due and row.status == "waiting" and not row.unread and not _is_due(session, row):
        return NotDue(row.wake_at)
    return _take(session, row, owner, ttl)


def _is_due(session: DatabaseSession, row: RunRow) -> bool:
    return row.wake_at is not None and row.wake_at <= session.source.now()


def _take(session: DatabaseSession, row: RunRow, owner: str, ttl: float) -> Claimed:
    session.owners.vouch(check_owner(owner))
    abandoned = row.status == "running" and row.owner is not None and not session.owners.alive(row.owner)
    now = session.source.now()
    session.connection.execute(
        """
        UPDATE runs
        SET status = 'running', owner = ?, epoch = epoch + 1, claimed_at = ?, lease_boot = ?, lease_until = ?,
            lease_ttl = ?, due_at = NULL, updated_at = ?
        WHERE id = ?
        """,
        (owner, now, session.boot, session.lease(ttl), ttl, now, row.id),
    )
    session.known[row.run_id] = (row.id, row.salt, row.log)
    return Claimed(row.run_id, row.epoch + 1, row.seq, row.stream_seq, row.workflow, abandoned)


def claim_due(
    session: DatabaseSession, owner: str, ttl: float, limit: int, workflows: Sequence[str] | None
) -> list[Claimed]:
    """See ``RunStore.claim_due``."""
    names = None if workflows is None else json.dumps(list(workflows))
    now = session.source.now()
    rows = _left_behind(session, names, limit)
    rows += _runs(
        session,
        """
        SELECT * FROM run_infos
        WHERE due_at <= ? AND (? IS NULL OR workflow IN (SELECT value FROM json_each(?)))
        ORDER BY due_at, id LIMIT ?
        """,
        (now, names, names, limit - len(rows)),
    )
    # Ready since a future time: the wall clock was set back.
    rows += _runs(
        session,
        """
        SELECT * FROM run_infos
        WHERE status = 'ready' AND due_at > ? AND (? IS NULL OR workflow IN (SELECT value FROM json_each(?)))
        ORDER BY id LIMIT ?
        """,
        (now, names, names, limit - len(rows)),
    )
    return [_take(session, row, owner, ttl) for row in rows]


def _runs(session: DatabaseSession, statement: str, values: tuple[object, ...]) -> list[RunRow]:
    return [RunRow(*row) for row in session.connection.execute(statement, values).fetchall()]


def _left_behind(session: DatabaseSession, workflows: str | None, limit: int) -> list[RunRow]:
    """Return runs with a dead owner or an expired lease, the longest first."""
    owners = session.connection.execute("SELECT DISTINCT owner FROM runs WHERE status = 'running'").fetchall()
    dead = [owner for (owner,) in owners if owner is not None and not session.owners.alive(owner)]
    now = session.source.monotonic()
    return _runs(
        session,
        # A lease that lasts longer than it ever did is from before the last start, see DatabaseSession.lease_left.
        """
        SELECT * FROM run_infos
        WHERE status = 'running'
            AND (lease_boot <> ? OR lease_until <= ? OR lease_until > ? + lease_ttl + 1
                 OR owner IN (SELECT value FROM json_each(?)))
            AND (? IS NULL OR workflow IN (SELECT value FROM json_each(?)))
        ORDER BY updated_at, id LIMIT ?
        """,
        (session.boot, now, now, json.dumps(dead), workflows, workflows, limit),
    )


def renew(session: DatabaseSession, owner: str, runs: Sequence[tuple[str, int]], ttl: float) -> list[str]:
    """See ``RunStore.renew``."""
    until = session.lease(ttl)
    lost: list[str] = []
    for run_id, epoch in runs:
        renewed = session.connection.execute(
            """
            UPDATE runs SET lease_boot = ?, lease_until = ?, lease_ttl = ?
            WHERE run_id = ? AND owner = ? AND epoch = ? AND status = 'running'
            """,
            (session.boot, until, ttl, check_run_id(run_id), owner, epoch),
        )
        if not renewed.rowcount:
            lost.append(run_id)
    return lost


def renew_held(session: DatabaseSession, held: dict[str, int]) -> list[tuple[str, int]]:
    """Extend the leases of runs, by id and epoch, each by its own ttl.

    Returns:
        The runs that were claimed by another owner, or deleted.
    """
    session.connection.execute(
        """
        UPDATE runs SET lease_until = ? + lease_ttl
        WHERE id IN (
            -- CROSS keeps SQLite from looking through all running runs for each of those held.
            SELECT runs.id FROM json_each(?) AS held CROSS JOIN runs
            WHERE runs.run_id = held.key AND runs.epoch = held.value AND runs.status = 'running'
        )
        """,
        (session.source.monotonic(), json.dumps(held)),
    )
    return session.connection.execute(
        """
        SELECT held.key, held.value FROM json_each(?) AS held LEFT JOIN runs ON runs.run_id = held.key
        WHERE runs.epoch IS NOT held.value
        """,
        (json.dumps(held),),
    ).fetchall()


def park(session: DatabaseSession, run_id: str, owner: str, epoch: int, seq: int, wake_at: float | None) -> bool:
    """See ``RunStore.park``."""
    parked = session.connection.execute(
        """
        UPDATE runs
        SET status = 'waiting', owner = NULL, lease_until = NULL, wake_at = ?, due_at = ?, updated_at = ?
        WHERE run_id = ? AND owner = ? AND epoch = ? AND seq = ? AND status = 'running' AND unread = 0
        """,
        (wake_at, wake_at, session.source.now(), check_run_id(run_id), owner, epoch, seq),
    )
    session.known.pop(run_id, None)
    return bool(parked.rowcount)


def release(session: DatabaseSession, run_id: str, owner: str, epoch: int) -> bool:
    """See ``RunStore.release``."""
    row = find_run(session, check_run_id(run_id))
    if row is None or (row.status, row.owner, row.epoch) != ("running", owner, epoch):
        return False
    _make_ready(session, row)
    return True


def _make_ready(session: DatabaseSession, row: RunRow) -> None:
    now = session.source.now()
    session.connection.execute(_READY, (now, now, row.id))
    session.known.pop(row.run_id, None)


def append(
    session: DatabaseSession, run_id: str, key: str, payload: bytes, kind: Literal["event", "cancel"]
) -> Appended | Ended | None:
    """See ``RunStore.append``."""
    check_payload(run_id, key, payload)
    row = find_run(session, run_id)
    if row is None:
        return None
    before = session.connection.execute(
        "SELECT position FROM inbox WHERE run = ? AND key = ?", (row.id, key)
    ).fetchone()
    if before is not None:
        return Appended(before[0], new=False)
    if row.status in ENDS:
        return Ended(info_of(session, row))
    position = row.inbox_head + 1
    now = session.source.now()
    session.connection.execute(
        "INSERT INTO inbox (run, position, key, kind, payload, at, came, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (row.id, position, key, kind, payload, now, row.seq, checksum(row.salt, position, payload)),
    )
    session.connection.execute(
        "UPDATE runs SET inbox_head = ?, unread = unread + 1, updated_at = ? WHERE id = ?", (position, now, row.id)
    )
    session.connection.execute("UPDATE facts SET appends = appends + 1")
    session.appended += 1
    if row.status == "waiting":
        _make_ready(session, row)
    return Appended(position, new=True)


def sweep(session: DatabaseSession, limit: int, grace: float) -> list[str]:
    """See ``RunStore.sweep``."""
    now = session.source.now()
    rows = _left_behind(session, None, limit)
    rows += _runs(
        session,
        """
        SELECT * FROM run_infos WHERE due_at <= ? AND (status = 'waiting' OR due_at <= ?) ORDER BY due_at, id LIMIT ?
        """,
        (now, now - grace, limit - len(rows)),
    )
    # Ready since a future time: the wall clock was set back.
    rows += _runs(
        session,
        "SELECT * FROM run_infos WHERE status = 'ready' AND due_at > ? ORDER BY id LIMIT ?",
        (now, limit - len(rows)),
    )
    for row in rows:
        _make_ready(session, row)
    return [row.run_id for row in rows]

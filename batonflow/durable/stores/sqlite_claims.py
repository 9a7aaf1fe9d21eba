"""Claims and inboxes of a SQLiteStore, each operation in one write transaction."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from batonflow.durable.store_protocol import (
    MOST_ATTEMPTS,
    Appended,
    Busy,
    Claimed,
    Created,
    Ended,
    Existing,
    NewRun,
    NotDue,
    Serves,
)
from batonflow.durable.stores.attempts import SUSPECT_ATTEMPTS, held_words, pause_after
from batonflow.durable.stores.bounds import check_new_run, check_owner, check_payload, check_run_id
from batonflow.durable.stores.claim_bounds import claim_within_bounds
from batonflow.durable.stores.sqlite_commits import insert_bodies
from batonflow.durable.stores.sqlite_parts import continue_log, continued_log, info_of, insert_parts
from batonflow.durable.stores.sqlite_rows import ENDS, DatabaseSession, RunRow, checksum, find_run, salt_of

__all__ = [
    "append", "claim", "claim_due", "create", "park", "release", "release_held", "renew", "renew_held",
    "sweep",
]  # fmt: skip

_READY = """
UPDATE runs
SET status = 'ready', owner = NULL, lease_until = NULL, wake_no = wake_no + 1, due_at = ?, updated_at = ?,
    not_before = ?, attempts = ?, held = ?
WHERE id = ?
"""


_INSERT = """
INSERT INTO runs (run_id, workflow, version, digest, shape, status, owner, epoch, claimed_at, lease_boot, lease_until,
                  lease_ttl, due_at, seq, stream_seq, created_at, updated_at, salt, metadata, turn, part_log, queue,
                  priority, not_before)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def create(
    session: DatabaseSession, run: NewRun, owner: str | None, ttl: float, turn: int | None = None
) -> Created | Existing:
    """See ``RunStore.create``; ``turn`` is the place of the turn that the run is."""
    check_new_run(run)
    existing = find_run(session, run.run_id)
    if existing is not None:
        return Existing(info_of(session, existing))
    (floor,) = session.connection.execute("SELECT epoch_floor FROM facts").fetchone()
    now = session.source.now()
    salt = salt_of(run.run_id)
    if owner is not None:
        session.owners.vouch(check_owner(owner))
    shared, parent = continued_log(session, run)
    inserted = session.connection.execute(
        _INSERT,
        (
            run.run_id,
            run.workflow,
            run.version,
            run.digest,
            run.shape,
            "running" if owner is not None else "ready",
            owner,
            floor if owner is None else floor + 1,
            None if owner is None else now,
            None if owner is None else session.boot,
            None if owner is None else session.lease(ttl),
            None if owner is None else ttl,
            None if owner is not None else max(now, run.not_before or now),
            int(run.first is not None),
            run.stream_seq,
            now,
            now,
            salt,
            json.dumps(dict(run.metadata), ensure_ascii=False) if run.metadata else None,
            turn,
            shared,
            run.queue,
            run.priority,
            run.not_before if owner is None else None,
        ),
    )
    number = inserted.lastrowid
    assert number is not None
    log = number if shared is None else shared
    if owner is not None:
        session.known[run.run_id] = (number, salt, log)
    if run.first is not None:
        insert_bodies(session, number, salt, 0, [run.first], now)
    if parent is not None:
        continue_log(session, log, *parent)
    if run.parts:
        insert_parts(session, log, 0 if run.continues is None else run.continues[1], run.parts)
    if owner is None:
        _tell_ready(session)
    return Created(floor if owner is None else floor + 1, log)


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
    attempts = row.attempts + (row.status == "running" and row.owner != owner)
    now = session.source.now()
    session.connection.execute(
        """
        UPDATE runs
        SET status = 'running', owner = ?, epoch = epoch + 1, claimed_at = ?, lease_boot = ?, lease_until = ?,
            lease_ttl = ?, due_at = NULL, updated_at = ?, not_before = NULL, attempts = ?, held = NULL
        WHERE id = ?
        """,
        (owner, now, session.boot, session.lease(ttl), ttl, now, attempts, row.id),
    )
    session.known[row.run_id] = (row.id, row.salt, row.log)
    delay = max(0.0, now - (now if row.due_at is None else row.due_at))
    return Claimed(row.run_id, row.epoch + 1, row.seq, row.stream_seq, row.workflow, abandoned, delay)


def claim_due(
    session: DatabaseSession,
    owner: str,
    ttl: float,
    limit: int,
    serves: Sequence[Serves] | None,
    queues: Sequence[str] | None,
    skip: Collection[str],
) -> list[Claimed]:
    """See ``RunStore.claim_due``."""

    def claim_some(most: int, served: Sequence[Serves] | None) -> list[Claimed]:
        return _claim_some(session, owner, ttl, most, served, queues, skip)

    return claim_within_bounds(limit, serves, lambda workflow: _count_driven(session, workflow), claim_some)


def _count_driven(session: DatabaseSession, workflow: str) -> int:
    """Count the runs of a workflow that live owners drive."""
    rows = _runs(session, "SELECT * FROM run_infos WHERE status = 'running' AND workflow = :name", {"name": workflow})
    return sum(session.driven(row) for row in rows)


def _claim_some(
    session: DatabaseSession,
    owner: str,
    ttl: float,
    limit: int,
    serves: Sequence[Serves] | None,
    queues: Sequence[str] | None,
    skip: Collection[str],
) -> list[Claimed]:
    """Claim runs, whatever the bounds of their workflows."""
    wanted: dict[str, Any] = {
        "serves": None if serves is None else json.dumps([(one.workflow, one.versions) for one in serves]),
        "queues": None if queues is None else json.dumps(list(queues)),
        "skip": json.dumps(list(skip)),
        "suspect": None,
    }
    taken: list[Claimed] = []
    while len(taken) < limit and (left := _left_behind(session, limit - len(taken), wanted)):
        for row in left:
            if row.attempts:
                _pause(session, row)
            else:
                taken.append(_take(session, row, owner, ttl))
    if _drives_suspect(session, owner):
        wanted["suspect"] = 0  # no row has this id
    rows = _ready(session, limit - len(taken), wanted)
    suspects = [row.id for row in rows if row.attempts >= SUSPECT_ATTEMPTS]
    if len(suspects) > 1:
        rows = _ready(session, limit - len(taken), {**wanted, "suspect": suspects[0]})
    return [*taken, *(_take(session, row, owner, ttl) for row in rows)]


def _drives_suspect(session: DatabaseSession, owner: str) -> bool:
    statement = "SELECT 1 FROM runs WHERE status = 'running' AND owner = ? AND attempts >= ? LIMIT 1"
    return session.connection.execute(statement, (owner, SUSPECT_ATTEMPTS)).fetchone() is not None


_WANTED = f"""
(:serves IS NULL OR EXISTS (
    SELECT 1 FROM json_each(:serves) AS served
    WHERE json_extract(served.value, '$[0]') = workflow AND (json_extract(served.value, '$[1]') IS NULL OR EXISTS (
        SELECT 1 FROM json_each(served.value, '$[1]') AS known WHERE known.value IS version))))
AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
AND run_id NOT IN (SELECT value FROM json_each(:skip))
AND (:suspect IS NULL OR id = :suspect OR attempts < {SUSPECT_ATTEMPTS})
"""  # noqa: S608 - a constant
_ALL: dict[str, Any] = {"serves": None, "queues": None, "skip": "[]", "suspect": None}


def _ready(session: DatabaseSession, limit: int, wanted: Mapping[str, Any]) -> list[RunRow]:
    """Return ready runs and runs with a due timer, by priority, the longest first."""
    given = {**wanted, "now": session.source.now(), "limit": limit}
    rows = _runs(
        session,
        f"""
        SELECT * FROM run_infos WHERE status = 'ready' AND due_at <= :now AND held IS NULL AND {_WANTED}
        ORDER BY priority DESC, due_at, id LIMIT :limit
        """,  # noqa: S608 - constants
        given,
    )
    rows += _runs(
        session,
        f"""
        SELECT * FROM run_infos WHERE status = 'waiting' AND due_at <= :now AND {_WANTED}
        ORDER BY due_at, id LIMIT :limit
        """,  # noqa: S608 - as before
        given,
    )
    rows.sort(key=lambda row: (-row.priority, row.due_at or 0.0, row.id))
    return (rows + _ready_since_later(session, limit, wanted))[:limit]


def _ready_since_later(session: DatabaseSession, limit: int, wanted: Mapping[str, Any]) -> list[RunRow]:
    """Return runs that are ready since a future time, because the wall clock was set back."""
    return _runs(
        session,
        f"""
        SELECT * FROM run_infos
        WHERE status = 'ready' AND due_at > :now AND not_before IS NULL AND held IS NULL AND {_WANTED}
        ORDER BY id LIMIT :limit
        """,  # noqa: S608 - constants
        {**wanted, "now": session.source.now(), "limit": limit},
    )


def _runs(session: DatabaseSession, statement: str, values: Mapping[str, Any]) -> list[RunRow]:
    return [RunRow(*row) for row in session.connection.execute(statement, values).fetchall()]


def _left_behind(session: DatabaseSession, limit: int, wanted: Mapping[str, Any]) -> list[RunRow]:
    """Return runs with a dead owner or an expired lease, the longest first."""
    return _runs(
        session,
        # A lease that lasts longer than it ever did is from before the last start, see DatabaseSession.lease_left.
        f"""
        SELECT * FROM run_infos
        WHERE status = 'running'
            AND (lease_boot <> :boot OR lease_until <= :monotonic OR lease_until > :monotonic + lease_ttl + 1
                 OR owner IN (SELECT value FROM json_each(:dead)))
            AND {_WANTED}
        ORDER BY updated_at, id LIMIT :limit
        """,  # noqa: S608 - constants
        {
            **wanted,
            "boot": session.boot,
            "monotonic": session.source.monotonic(),
            "dead": json.dumps(session.dead_owners()),
            "limit": limit,
        },
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
    """Make a run ready from now on."""
    _become_ready(session, row, session.source.now(), row.attempts)


def _pause(session: DatabaseSession, row: RunRow) -> bool:
    """Make a run of a lost owner ready. Return whether it can be claimed at once."""
    attempts, now = row.attempts + 1, session.source.now()
    held = None if attempts < MOST_ATTEMPTS else held_words(attempts, row.owner)
    pause = pause_after(attempts, row.run_id)
    _become_ready(session, row, now + pause, attempts, not_before=now + pause if pause else None, held=held)
    return not pause and held is None


def _become_ready(
    session: DatabaseSession,
    row: RunRow,
    due_at: float,
    attempts: int,
    *,
    not_before: float | None = None,
    held: str | None = None,
) -> None:
    now = session.source.now()
    session.connection.execute(_READY, (due_at, now, not_before, attempts, held, row.id))
    session.known.pop(row.run_id, None)
    _tell_ready(session)


def _tell_ready(session: DatabaseSession) -> None:
    """Give a hint to all processes that a run is ready."""
    session.ready = True
    _signal(session)


def _signal(session: DatabaseSession) -> None:
    session.connection.execute("UPDATE facts SET appends = appends + 1")
    session.signals += 1


def release_held(session: DatabaseSession, run_id: str) -> bool:
    """See ``RunStore.release_held``."""
    row = find_run(session, check_run_id(run_id))
    if row is None or row.held is None:
        return False
    _become_ready(session, row, session.source.now(), 0)
    return True


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
    session.appended.append(run_id)
    if row.status == "waiting":
        _make_ready(session, row)
    else:
        _signal(session)
    return Appended(position, new=True)


def sweep(session: DatabaseSession, limit: int, grace: float) -> list[str]:
    """See ``RunStore.sweep``."""
    now = session.source.now()
    rung = [row.run_id for row in _left_behind(session, limit, _ALL) if _pause(session, row)]
    rows = _runs(
        session,
        """
        SELECT * FROM run_infos WHERE status = 'waiting' AND due_at <= :now
        UNION ALL SELECT * FROM run_infos WHERE status = 'ready' AND due_at <= :late AND held IS NULL
        ORDER BY due_at, id LIMIT :limit
        """,
        {"now": now, "late": now - grace, "limit": limit - len(rung)},
    )
    rows += _ready_since_later(session, limit - len(rung) - len(rows), _ALL)
    for row in rows:
        _make_ready(session, row)
    return [*rung, *(row.run_id for row in rows)]

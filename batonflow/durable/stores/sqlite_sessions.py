"""Sessions of a SQLiteStore: turns, the queue of a session, and changes; each operation is one transaction."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from batonflow.durable.parts.references import whole_data
from batonflow.durable.session_protocol import (
    NewTurn,
    SessionChange,
    StoredSession,
    StoredTurn,
    TurnOpened,
    TurnRefused,
)
from batonflow.durable.store_protocol import Created, NewRun
from batonflow.durable.stores.bounds import check_session_name
from batonflow.durable.stores.packing import packed, unpacked
from batonflow.durable.stores.sqlite_claims import create
from batonflow.durable.stores.sqlite_parts import LogParts, collect_log
from batonflow.durable.stores.sqlite_rows import PLACE_BITS, DatabaseSession, checksum, damaged, find_run
from batonflow.durable.stores.sqlite_upkeep import remove

__all__ = ["change_session", "leave_queue", "list_sessions", "open_turn", "read_session", "read_turns"]

_TURN = "place, run_id, status, started, ended, request_id, digest, asked, body, asked_crc, body_crc"


class _Row(NamedTuple):
    """A row of ``sessions``."""

    id: int
    name: str
    workflow: str
    last: int
    turns: int
    created_at: float
    updated_at: float
    part_log: int | None


def _find(session: DatabaseSession, name: str) -> _Row | None:
    found = session.connection.execute("SELECT * FROM sessions WHERE name = ?", (name,)).fetchone()
    return None if found is None else _Row(*found)


def _turns(session: DatabaseSession, row: _Row, where: str, values: Sequence[Any]) -> list[StoredTurn]:
    def parts() -> Sequence[bytes]:
        return () if row.part_log is None else LogParts(session, row.part_log)

    rows = session.connection.execute(f"SELECT {_TURN} FROM turns WHERE {where}", values)  # noqa: S608 - constants
    turns: list[StoredTurn] = []
    for place, run_id, status, started, ended, request_id, digest, asked, body, asked_crc, body_crc in rows:
        number = place & ((1 << PLACE_BITS) - 1)
        if (asked_crc, body_crc) != (_crc(place, asked), _crc(place, body)):
            raise damaged(session, f"Turn {number} of a session (run {run_id!r})")
        turns.append(
            StoredTurn(
                number, run_id, status, started, ended, request_id, digest, unpacked(asked) if asked else b"",
                whole_data(unpacked(body), parts) if body else b"",
            )
        )  # fmt: skip
    return turns


def _crc(place: int, data: bytes) -> int:
    return checksum(place >> PLACE_BITS, place, data)


def _live_tickets(session: DatabaseSession, name: str) -> list[int]:
    found = session.connection.execute(
        "SELECT ticket, owner FROM session_queue WHERE session = ? AND until > ? ORDER BY ticket",
        (name, session.source.now()),
    ).fetchall()
    return [ticket for ticket, owner in found if session.owners.alive(owner)]


def read_session(session: DatabaseSession, name: str, request_id: str | None) -> StoredSession | None:
    """See ``SessionStore.read_session``."""
    row = _find(session, check_session_name(name))
    return None if row is None else _stored(session, row, request_id)


def _stored(session: DatabaseSession, row: _Row, request_id: str | None = None) -> StoredSession:
    base = row.id << PLACE_BITS
    last = _turns(session, row, "place = ? AND status = 'running'", (base + row.last,))
    requested: list[StoredTurn] = []
    if request_id is not None:
        requested = _turns(
            session, row, "request_id = ? AND place > ? AND place <= ?", (request_id, base, base + row.last)
        )
    return StoredSession(
        row.name, row.workflow, row.turns, row.last, _next_number(session, row.name, row.last), row.created_at,
        row.updated_at, last[0] if last else None, requested[0] if requested else None,
        tuple(_live_tickets(session, row.name)), row.part_log,
    )  # fmt: skip


def _next_number(session: DatabaseSession, name: str, last: int) -> int:
    """Return the next number without a run. A deleted session of this name may have left runs."""
    number = last + 1
    while session.connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (f"{name}:{number}",)).fetchone():
        number += 1
    return number


def _make(session: DatabaseSession, name: str, workflow: str) -> _Row:
    now = session.source.now()
    session.connection.execute(
        "INSERT INTO sessions (name, workflow, last, turns, created_at, updated_at) VALUES (?, ?, 0, 0, ?, ?)",
        (name, workflow, now, now),
    )
    made = _find(session, name)
    assert made is not None
    return made


def open_turn(session: DatabaseSession, turn: NewTurn, run: NewRun, owner: str, ttl: float) -> TurnOpened | TurnRefused:
    """See ``SessionStore.open_turn``."""
    row = _find(session, check_session_name(turn.session)) or _make(session, turn.session, turn.workflow)
    stored = _stored(session, row, turn.request_id)
    first = stored.queue[0] if stored.queue else turn.ticket
    if (
        stored.open_turn is not None
        or stored.requested is not None
        or stored.next_number != turn.number
        or turn.turns not in (None, stored.turns)
        or first != turn.ticket
    ):
        waits = turn.queues and stored.requested is None
        return TurnRefused(stored, _in_queue(session, turn, owner) if waits else None)
    place = (row.id << PLACE_BITS) + turn.number
    created = create(session, run, owner, ttl, place)
    assert isinstance(created, Created)  # the number says that there is no such run
    now = session.source.now()
    _insert(
        session,
        row.id,
        StoredTurn(turn.number, run.run_id, "running", now, None, turn.request_id, turn.digest, turn.asked),
    )
    session.connection.execute(
        "UPDATE sessions SET last = ?, turns = turns + 1, updated_at = ?, part_log = ? WHERE id = ?",
        (turn.number, now, created.part_log, row.id),
    )
    if turn.ticket is not None:
        leave_queue(session, turn.session, turn.ticket)
    return TurnOpened(created.epoch, created.part_log)


def _insert(session: DatabaseSession, number: int, turn: StoredTurn) -> None:
    place = (number << PLACE_BITS) + turn.number
    asked, body = packed(turn.asked) if turn.asked else b"", packed(turn.body) if turn.body else b""
    values = (
        place, turn.run_id, turn.status, turn.started, turn.ended, turn.request_id, turn.digest, asked, body,
        _crc(place, asked), _crc(place, body),
    )  # fmt: skip
    session.connection.execute(f"INSERT INTO turns ({_TURN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608 - a constant


def _in_queue(session: DatabaseSession, turn: NewTurn, owner: str) -> int:
    """Return the ticket of a turn, renewed or new."""
    until = session.source.now() + turn.patience
    if turn.ticket is not None:
        renewed = session.connection.execute(
            "UPDATE session_queue SET until = ? WHERE ticket = ? AND session = ?", (until, turn.ticket, turn.session)
        )
        if renewed.rowcount:
            return turn.ticket
    session.owners.vouch(owner)
    session.connection.execute("DELETE FROM session_queue WHERE until <= ?", (session.source.now(),))
    added = session.connection.execute(
        "INSERT INTO session_queue (session, owner, until) VALUES (?, ?, ?)", (turn.session, owner, until)
    )
    assert added.lastrowid is not None
    return added.lastrowid


def leave_queue(session: DatabaseSession, name: str, ticket: int) -> None:
    """See ``SessionStore.leave_queue``."""
    session.connection.execute("DELETE FROM session_queue WHERE ticket = ? AND session = ?", (ticket, name))


def read_turns(
    session: DatabaseSession, name: str, after: int, before: int | None, limit: int, newest_first: bool
) -> list[StoredTurn]:
    """See ``SessionStore.read_turns``."""
    row = _find(session, check_session_name(name))
    if row is None:
        return []
    base = row.id << PLACE_BITS
    end = row.last + 1 if before is None else min(before, row.last + 1)
    order = "DESC" if newest_first else "ASC"
    return _turns(
        session,
        row,
        f"place > ? AND place < ? AND NOT undone ORDER BY place {order} LIMIT ?",
        (base + after, base + end, limit),
    )


def list_sessions(session: DatabaseSession, workflow: str, prefix: str, after: str, limit: int) -> list[StoredSession]:
    """See ``SessionStore.list_sessions``."""
    found = session.connection.execute(
        """
        SELECT * FROM sessions WHERE workflow = ? AND substr(name, 1, ?) = ? AND name > ? ORDER BY name LIMIT ?
        """,
        (workflow, len(prefix), prefix, after, limit),
    ).fetchall()
    return [_stored(session, _Row(*row)) for row in found]


def change_session(session: DatabaseSession, change: SessionChange) -> bool:
    """See ``SessionStore.change_session``."""
    row = _find(session, check_session_name(change.session))
    if (0 if row is None else row.last) != change.last:
        return False
    if change.turns not in (None, 0 if row is None else row.turns):
        return False
    if row is None:
        if change.delete:
            return True
        row = _make(session, change.session, change.workflow)
    if _stored(session, row).open_turn is not None:
        return False
    base, behind = row.id << PLACE_BITS, (row.id + 1) << PLACE_BITS
    if change.delete:
        _delete(session, row, base, behind)
        return True
    if change.undo_after is not None:
        session.connection.execute(
            "UPDATE turns SET undone = 1 WHERE place > ? AND place < ?", (base + change.undo_after, behind)
        )
    for turn in change.add:
        _insert(session, row.id, turn)
    session.connection.execute(
        """
        UPDATE sessions SET last = ?, updated_at = ?,
            turns = (SELECT count(*) FROM turns WHERE place > ? AND place < ? AND NOT undone)
        WHERE id = ?
        """,
        (max([row.last, *(turn.number for turn in change.add)]), session.source.now(), base, behind, row.id),
    )
    return True


def _delete(session: DatabaseSession, row: _Row, base: int, behind: int) -> None:
    found = session.connection.execute(
        """
        SELECT runs.run_id FROM turns JOIN runs ON runs.run_id = turns.run_id AND runs.turn = turns.place
        WHERE turns.place > ? AND turns.place < ?
        """,
        (base, behind),
    )
    for (run_id,) in found.fetchall():
        run = find_run(session, run_id)
        if run is not None:
            remove(session, run)
    session.connection.execute("DELETE FROM turns WHERE place > ? AND place < ?", (base, behind))
    session.connection.execute("DELETE FROM session_queue WHERE session = ?", (row.name,))
    session.connection.execute("DELETE FROM sessions WHERE id = ?", (row.id,))
    if row.part_log is not None:
        collect_log(session, row.part_log)

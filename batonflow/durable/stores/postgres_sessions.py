"""Sessions of a PostgresStore: turns, the queue of a session, and changes; each operation is one statement."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from batonflow.durable.parts.references import whole_data
from batonflow.durable.session_protocol import (
    NewTurn,
    SessionChange,
    StoredSession,
    StoredTurn,
    TurnOpened,
    TurnRefused,
)
from batonflow.durable.store_protocol import NewRun
from batonflow.durable.stores.bounds import check_session_name
from batonflow.durable.stores.packing import packed, unpacked
from batonflow.durable.stores.postgres_claims import CREATE, values_of_run
from batonflow.durable.stores.postgres_rows import (
    Query,
    Snapshot,
    Steps,
    Writing,
    bounded,
    checksum,
    damaged,
    plain,
    stored_text,
    with_parts,
)

__all__ = ["change_session", "leave_queue", "list_sessions", "open_turn", "read_session", "read_turns"]

_TURN = "turns.number, run_id, status, started, ended, request_id, digest, asked, body, asked_crc, body_crc"
_SESSION = "id, name, workflow, turns, last, batonflow.next_turn(name, last), created_at, updated_at, part_log"

# A CASE calls a function only where it comes to it, and the volatile functions see what those before them did.
_OPEN_TURN = f"""
SELECT outcome, ticket, (made).outcome, (made).epoch, (made).log,
    CASE WHEN outcome = 'admitted' AND (made).outcome = 'created' THEN batonflow.begin_turn(
        session, %(number)s::bigint, %(run_id)s, %(request_id)s, %(turn_digest)s, %(asked)b::bytea,
        %(asked_crc)s::bigint, (made).log, %(ticket)s::bigint) END
FROM (
    SELECT *, CASE WHEN outcome <> 'refused' THEN {CREATE.format(session="session")} END AS made
    FROM batonflow.admit_turn(
        %(name)s, %(session_workflow)s, %(number)s::bigint, %(request_id)s, %(turns)s::bigint, %(ticket)s::bigint,
        %(queues)s, %(patience)s::float8, %(owner)s, %(nonce)s::bigint)
    OFFSET 0
) AS opened
"""


def open_turn(
    writing: Writing, turn: NewTurn, run: NewRun, owner: str, ttl: float, nonce: int
) -> Steps[TurnOpened | TurnRefused]:
    """See ``SessionStore.open_turn``."""
    asked = packed(turn.asked) if turn.asked else b""
    values = values_of_run(writing, run, owner, ttl, nonce) | {
        "name": check_session_name(turn.session),
        "session_workflow": stored_text(turn.workflow),
        "number": turn.number,
        "turn": turn.number,
        "request_id": None if turn.request_id is None else stored_text(turn.request_id),
        "turns": turn.turns,
        "ticket": turn.ticket,
        "queues": turn.queues,
        "patience": turn.patience,
        "turn_digest": stored_text(turn.digest),
        "asked": asked,
        "asked_crc": checksum(turn.number, asked),
    }
    ((_, ticket, made, epoch, log, _),) = yield Query(_OPEN_TURN, values)
    if made == "created":  # otherwise the turn is refused, or its run was made meanwhile
        return TurnOpened(epoch, log)
    stored = yield from read_session(turn.session, turn.request_id)
    if stored is None:  # deleted meanwhile
        stored = StoredSession(turn.session, turn.workflow, 0, 0, 1, 0.0, 0.0)
    return TurnRefused(stored, ticket)


def leave_queue(_writing: Writing, name: str, ticket: int) -> Steps[None]:
    """See ``SessionStore.leave_queue``."""
    yield Query(
        "DELETE FROM batonflow.session_queue WHERE ticket = %(ticket)s AND session = %(name)s",
        {"ticket": ticket, "name": name},
    )


_READ = (
    f"SELECT {_SESSION}, batonflow.live_tickets(name) FROM batonflow.sessions WHERE name = %(name)s",
    f"""
    SELECT {_TURN} FROM batonflow.turns JOIN batonflow.sessions ON sessions.id = turns.session
    WHERE name = %(name)s AND turns.number = last AND status = 'running'
    """,
    f"""
    SELECT {_TURN} FROM batonflow.turns JOIN batonflow.sessions ON sessions.id = turns.session
    WHERE name = %(name)s AND request_id = %(request_id)s AND turns.number <= last
    """,
)


def read_session(name: str, request_id: str | None = None) -> Steps[StoredSession | None]:
    """See ``SessionStore.read_session``."""
    request = None if request_id is None else stored_text(request_id)
    values = {"name": check_session_name(name), "request_id": request}
    rows, running, requested = yield Snapshot([Query(sql, values) for sql in _READ])
    if not rows:
        return None
    log = rows[0][8]
    return _session(rows[0], (yield from _turns(running, log)), (yield from _turns(requested, log)))


def _session(row: Sequence[Any], running: Sequence[StoredTurn], requested: Sequence[StoredTurn]) -> StoredSession:
    _, name, workflow, turns, last, following, created_at, updated_at, log, tickets = row
    return StoredSession(
        name, plain(workflow), turns, last, following, created_at, updated_at, running[0] if running else None,
        requested[0] if requested else None, tuple(tickets), log,
    )  # fmt: skip


def _turns(rows: Iterable[Any], log: int | None) -> Steps[list[StoredTurn]]:
    return (yield from with_parts(lambda parts: [_turn(row, () if log is None else parts()) for row in rows], log or 0))


def _turn(row: Sequence[Any], parts: Sequence[bytes]) -> StoredTurn:
    number, run_id, status, started, ended, request_id, digest, asked, body, asked_crc, body_crc = row
    if asked_crc != checksum(number, asked) or body_crc != checksum(0, body):
        raise damaged(f"Turn {number} of a session (run {run_id!r})")
    return StoredTurn(
        number, run_id, status, started, ended, None if request_id is None else plain(request_id), plain(digest),
        unpacked(asked) if asked else b"", whole_data(unpacked(body), lambda: parts) if body else b"",
    )  # fmt: skip


def read_turns(name: str, after: int, before: int | None, limit: int, newest_first: bool) -> Steps[list[StoredTurn]]:
    """See ``SessionStore.read_turns``."""
    order = "DESC" if newest_first else "ASC"
    rows = yield Query(
        f"""
        SELECT {_TURN}, part_log FROM batonflow.turns JOIN batonflow.sessions ON sessions.id = turns.session
        WHERE name = %(name)s AND turns.number > %(after)s::bigint AND turns.number <= last
            AND turns.number < coalesce(%(before)s::bigint, last + 1) AND NOT undone
        ORDER BY turns.number {order} LIMIT %(limit)s::bigint
        """,
        {
            "name": check_session_name(name),
            "after": bounded(after),
            "before": None if before is None else bounded(before),
            "limit": limit,
        },
    )
    return (yield from _turns([row[:-1] for row in rows], rows[0][-1] if rows else None))


def list_sessions(workflow: str, prefix: str, after: str, limit: int) -> Steps[list[StoredSession]]:
    """See ``SessionStore.list_sessions``."""
    rows = yield Query(
        f"""
        SELECT {_SESSION}, batonflow.live_tickets(name) FROM batonflow.sessions
        WHERE workflow = %(workflow)s AND starts_with(name, %(prefix)s) AND name > %(after)s
        ORDER BY name LIMIT %(limit)s::bigint
        """,
        {"workflow": stored_text(workflow), "prefix": stored_text(prefix), "after": stored_text(after), "limit": limit},
    )
    found = yield Query(
        f"""
        SELECT turns.session, {_TURN} FROM batonflow.turns JOIN batonflow.sessions ON sessions.id = turns.session
        WHERE sessions.id = ANY (%(ids)b::bigint[]) AND turns.number = last AND status = 'running'
        """,
        {"ids": [row[0] for row in rows]},
    )
    sessions: list[StoredSession] = []
    for row in rows:
        running = yield from _turns([values for session, *values in found if session == row[0]], row[8])
        sessions.append(_session(row, running, ()))
    return sessions


_CHANGE = """
SELECT * FROM batonflow.change_session(
    %(name)s, %(workflow)s, %(last)s::bigint, %(turns)s::bigint, %(delete)s, %(undo_after)s::bigint, %(add)s::jsonb,
    %(nonce)s::bigint)
"""


def change_session(writing: Writing, change: SessionChange, nonce: int) -> Steps[bool]:
    """See ``SessionStore.change_session``."""
    rows = yield Query(
        _CHANGE,
        {
            "name": check_session_name(change.session),
            "workflow": stored_text(change.workflow),
            "last": change.last,
            "turns": change.turns,
            "delete": change.delete,
            "undo_after": change.undo_after,
            "add": json.dumps([_as_json(turn) for turn in change.add]),
            "nonce": nonce,
        },
    )
    writing.touched += [run_id for _, run_id in rows if run_id is not None]
    return all(is_done for is_done, _ in rows)


def _as_json(turn: StoredTurn) -> dict[str, Any]:
    asked, body = packed(turn.asked) if turn.asked else b"", packed(turn.body) if turn.body else b""
    return {
        "number": turn.number,
        "run_id": turn.run_id,
        "status": turn.status,
        "started": turn.started,
        "ended": turn.ended,
        "request_id": None if turn.request_id is None else stored_text(turn.request_id),
        "digest": stored_text(turn.digest),
        "asked": f"\\x{asked.hex()}",
        "body": f"\\x{body.hex()}",
        "asked_crc": checksum(turn.number, asked),
        "body_crc": checksum(0, body),
    }

"""Workers of a SQLiteStore."""

import json

from batonflow.durable.stores.bounds import check_owner
from batonflow.durable.stores.sqlite_rows import DatabaseSession
from batonflow.durable.stores.worker_signs import KEPT_SECONDS, QUEUES, queue_info, sign_as_text, worker_info
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign

__all__ = ["drain", "queues", "sign", "sign_off", "workers"]

_QUEUES = QUEUES.format(now="?", dead="SELECT value AS owner FROM json_each(?)", runs="runs")


def sign(session: DatabaseSession, sign: WorkerSign) -> bool:
    """See ``WorkerStore.sign``."""
    session.owners.vouch(check_owner(sign.owner))
    now = session.source.now()
    session.connection.execute("DELETE FROM workers WHERE seen_at < ? AND name <> ?", (now - KEPT_SECONDS, sign.name))
    ((is_draining,),) = session.connection.execute(
        """
        INSERT INTO workers VALUES (?, ?, ?, ?, ?, 0)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, body = excluded.body, seen_at = excluded.seen_at
        RETURNING is_draining
        """,
        (sign.name, sign.owner, sign_as_text(sign), now, now),
    ).fetchall()
    return bool(is_draining)


def sign_off(session: DatabaseSession, name: str) -> None:
    """See ``WorkerStore.sign_off``."""
    session.connection.execute("DELETE FROM workers WHERE name = ?", (name,))


def drain(session: DatabaseSession, name: str) -> bool:
    """See ``WorkerStore.drain``."""
    return session.connection.execute("UPDATE workers SET is_draining = 1 WHERE name = ?", (name,)).rowcount > 0


def workers(session: DatabaseSession) -> list[WorkerInfo]:
    """See ``WorkerStore.workers``."""
    rows = session.connection.execute(
        """
        SELECT body, since, seen_at, is_draining, owner,
            (SELECT count(*) FROM runs WHERE status = 'running' AND runs.owner = workers.owner)
        FROM workers ORDER BY since, name
        """
    ).fetchall()
    return [
        worker_info(json.loads(body), since, seen_at, bool(is_draining), session.owners.alive(owner), runs)
        for body, since, seen_at, is_draining, owner, runs in rows
    ]


def queues(session: DatabaseSession) -> list[QueueInfo]:
    """See ``WorkerStore.queues``."""
    rows = session.connection.execute(_QUEUES, (session.source.now(), json.dumps(session.dead_owners()))).fetchall()
    return [queue_info(*row, oldest=oldest) for *row, oldest in rows]

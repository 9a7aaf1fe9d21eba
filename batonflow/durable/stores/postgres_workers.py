"""Workers of a PostgresStore."""

import json

from batonflow.durable.store_protocol import LEASE_SECONDS
from batonflow.durable.stores.bounds import check_owner
from batonflow.durable.stores.postgres_rows import Query, Steps, Writing, plain
from batonflow.durable.stores.worker_signs import KEPT_SECONDS, QUEUES, queue_info, sign_as_text, worker_info
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign

__all__ = ["ENDED_SECONDS", "drain", "queues", "sign", "sign_off", "workers"]

ENDED_SECONDS = 4 * LEASE_SECONDS
"""The time after which a worker without a sign counts as ended, unless its owner holds its lock."""

_SIGN = f"""
WITH forgotten AS (
    DELETE FROM batonflow.workers WHERE seen_at < batonflow.wall() - {KEPT_SECONDS} AND name <> %(name)s
)
INSERT INTO batonflow.workers VALUES (
    %(name)s, %(owner)s, %(body)s::jsonb, batonflow.wall(), batonflow.wall(), FALSE)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, body = excluded.body, seen_at = excluded.seen_at
RETURNING is_draining
"""
# A restarted server knows an owner again only when its worker is back.
_WORKERS = f"""
SELECT body::text, since, seen_at, is_draining,
    batonflow.is_alive(owner) AND (seen_at > batonflow.wall() - {ENDED_SECONDS}
        OR (NOT pg_is_in_recovery() AND batonflow.is_registered(owner))),
    (SELECT count(*) FROM batonflow.runs WHERE status = 'running' AND runs.owner = workers.owner)
FROM batonflow.workers ORDER BY since, name
"""
_DEAD = """
SELECT owner FROM (SELECT DISTINCT owner FROM batonflow.runs WHERE status = 'running') AS owners
WHERE NOT batonflow.is_alive(owner)
"""
_QUEUES = QUEUES.format(now="batonflow.wall()", dead=_DEAD, runs="batonflow.runs")


def sign(writing: Writing, sign: WorkerSign) -> Steps[bool]:
    """See ``WorkerStore.sign``."""
    writing.vouch(check_owner(sign.owner))
    ((is_draining,),) = yield Query(_SIGN, {"name": sign.name, "owner": sign.owner, "body": sign_as_text(sign)})
    return is_draining


def sign_off(_writing: Writing, name: str) -> Steps[None]:
    """See ``WorkerStore.sign_off``."""
    yield Query("DELETE FROM batonflow.workers WHERE name = %(name)s", {"name": name})


def drain(_writing: Writing, name: str) -> Steps[bool]:
    """See ``WorkerStore.drain``."""
    statement = "UPDATE batonflow.workers SET is_draining = TRUE WHERE name = %(name)s RETURNING 1"
    return bool((yield Query(statement, {"name": name})))


def workers() -> Steps[list[WorkerInfo]]:
    """See ``WorkerStore.workers``."""
    rows = yield Query(_WORKERS, {})
    return [worker_info(json.loads(body), *others) for body, *others in rows]


def queues() -> Steps[list[QueueInfo]]:
    """See ``WorkerStore.queues``."""
    rows = yield Query(_QUEUES, {})
    return [
        queue_info(queue, plain(workflow), None if version is None else plain(version), *counts, oldest=oldest)
        for queue, workflow, version, *counts, oldest in rows
    ]

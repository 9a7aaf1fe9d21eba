"""Signs of workers as text, and their listing."""

import json
from typing import Any

from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign

__all__ = ["KEPT_SECONDS", "QUEUES", "queue_info", "sign_as_text", "worker_info"]

KEPT_SECONDS = 86_400
"""The time after which a worker without a sign is forgotten."""

# The columns of QueueInfo. Runs of ended owners count as ready, as others may take them up.
QUEUES = """
WITH now AS (SELECT {now} AS at), dead AS ({dead}), found AS (
    SELECT queue, workflow, version, held, not_before IS NOT NULL AND due_at > now.at AS is_later,
        CASE WHEN owner IN (SELECT owner FROM dead) THEN 'ready' ELSE status END AS status,
        coalesce(due_at, updated_at) AS due_at
    FROM {runs}, now WHERE status IN ('ready', 'running', 'waiting')
)
SELECT queue, workflow, version,
    count(*) FILTER (WHERE status = 'ready' AND held IS NULL AND NOT is_later),
    count(*) FILTER (WHERE status = 'ready' AND held IS NULL AND is_later),
    count(*) FILTER (WHERE status = 'running'),
    count(*) FILTER (WHERE status = 'waiting'),
    count(*) FILTER (WHERE status = 'ready' AND held IS NOT NULL),
    now.at - min(due_at) FILTER (WHERE status = 'ready' AND held IS NULL AND NOT is_later)
FROM found, now GROUP BY queue, workflow, version, now.at ORDER BY queue, workflow, coalesce(version, '')
"""


def sign_as_text(sign: WorkerSign) -> str:
    """Return the sign of a worker as JSON."""
    return json.dumps(
        {
            "name": sign.name, "owner": sign.owner, "host": sign.host, "pid": sign.pid,
            "workflows": list(sign.workflows), "queues": None if sign.queues is None else list(sign.queues),
            "slots": sign.slots,
        }
    )  # fmt: skip


def worker_info(
    sign: dict[str, Any], since: float, seen_at: float, is_draining: bool, is_alive: bool, runs: int
) -> WorkerInfo:
    """Return the listing of a worker."""
    return WorkerInfo(WorkerSign(**sign), since, seen_at, runs, is_alive, is_draining)


def queue_info(queue: str, workflow: str, version: str | None, *counts: int, oldest: float | None) -> QueueInfo:
    """Return the listing of a queue. A run that is ready since a future time is as young as the others."""
    return QueueInfo(queue, workflow, version, *counts, oldest=None if oldest is None else max(0.0, oldest))

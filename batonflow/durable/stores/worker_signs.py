"""Signs of workers as text, and their listing."""

import json
from typing import Any

from batonflow.durable.worker_protocol import WorkerInfo, WorkerSign

__all__ = ["KEPT_SECONDS", "sign_as_text", "worker_info"]

KEPT_SECONDS = 86_400
"""The time after which a worker without a sign is forgotten."""


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

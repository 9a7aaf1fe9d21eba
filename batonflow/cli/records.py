"""The state of stored runs, as the commands show it."""

from dataclasses import replace
from typing import Any

from batonflow.cli.questions import open_questions
from batonflow.cli.stores import KeptStore
from batonflow.durable.store_protocol import RunInfo
from batonflow.server.workers import with_names

__all__ = ["count_questions", "run_as_json", "status_text", "with_worker"]


async def count_questions(store: KeptStore, info: RunInfo) -> int:
    """Count the open questions of a run."""
    return 0 if info.is_over else len(await open_questions(store, info.run_id))


async def with_worker(store: KeptStore, info: RunInfo) -> RunInfo:
    """Return the record of a run; the reason of a held run names the worker."""
    names = {worker.sign.owner: worker.sign.name for worker in await store.workers()} if info.held else {}
    return replace(info, held=with_names(info.held, names))


async def status_text(store: KeptStore, info: RunInfo) -> str:
    """Return the status of a run, with the number of its open questions."""
    asked = await count_questions(store, info)
    if asked and not info.unread:
        return f"waiting ({asked} asked)"
    if info.held:
        return "held"
    status = "interrupted" if info.status == "running" and not info.owner_alive else info.status
    return f"{status} (answered)" if asked else status


def run_as_json(info: RunInfo) -> dict[str, Any]:
    """Return a run as data for ``--json``."""
    return {
        "run_id": info.run_id,
        "workflow": info.workflow,
        "status": info.status,
        "held": info.held or None,
        "driven": info.owner is not None and info.owner_alive,
        "commits": info.seq,
        "unread": info.unread,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "wake_at": info.wake_at,
        "forked_from": None if info.forked_from is None else list(info.forked_from),
        "session": info.session or None,
        "metadata": dict(info.metadata),
    }

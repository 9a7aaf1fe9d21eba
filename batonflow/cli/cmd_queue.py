"""``queue``: count the runs of a store that are not over, by queue, workflow and version."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from batonflow.cli.errors import DONE
from batonflow.cli.output import complain, say, say_json, table
from batonflow.cli.stores import opened
from batonflow.cli.text import counted
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo
from batonflow.fleet.schedules import STARTS_OF

__all__ = ["queue"]

_NAMES = ("queue", "workflow", "version", "ready", "oldest", "later", "running", "waiting", "held", "workers")


def queue(given: Namespace) -> int:
    """Count the runs that are not over."""
    return asyncio.run(_queue(given))


async def _queue(given: Namespace) -> int:
    async with opened(given) as store:
        queues, workers = await store.queues(), await store.workers()
    if given.json:
        say_json([_as_data(one, workers) for one in queues])
    elif queues:
        table([name.upper() for name in _NAMES], [_as_row(one, workers) for one in queues])
        for one in queues:
            if one.is_left(workers):
                complain(_unserved(one))
    else:
        say("every run is over")
    return DONE


def _as_data(one: QueueInfo, workers: Sequence[WorkerInfo]) -> dict[str, Any]:
    return {**asdict(one), "workers": one.count_workers(workers)}


def _as_row(one: QueueInfo, workers: Sequence[WorkerInfo]) -> list[str]:
    shown = {
        **_as_data(one, workers),
        "version": one.version or "",
        "oldest": "" if one.oldest is None else f"{one.oldest:.0f} s",
    }
    return [str(shown[name]) for name in _NAMES]


def _unserved(one: QueueInfo) -> str:
    version = f" of version {one.version}" if one.version else ""
    extra = ": workers need the extra fleet for schedules" if one.workflow.startswith(STARTS_OF) else ""
    return f"no worker takes up the {counted(one.ready, 'run')} of {one.workflow}{version} in queue {one.queue}{extra}"

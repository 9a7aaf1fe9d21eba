"""``workers``: list the workers of a store."""

import asyncio
import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from batonflow.cli.errors import DONE
from batonflow.cli.output import say, say_json, table
from batonflow.cli.stores import opened
from batonflow.durable.worker_protocol import WorkerInfo

__all__ = ["workers"]

_NAMES = ("worker", "state", "runs", "workflows", "queues", "since", "last sign")


def workers(given: Namespace) -> int:
    """List the workers, the oldest first."""
    return asyncio.run(_workers(given))


async def _workers(given: Namespace) -> int:
    async with opened(given) as store:
        found = await store.workers()
    if given.json:
        say_json([_as_data(worker) for worker in found])
    elif found:
        table([name.upper() for name in _NAMES], [_as_row(worker) for worker in found])
    else:
        say("no worker has signed in")
    return DONE


def _as_data(worker: WorkerInfo) -> dict[str, Any]:
    times = {"since": worker.since, "seen_at": worker.seen_at}
    return {**asdict(worker.sign), "state": worker.state, "runs": worker.runs, **times}


def _as_row(worker: WorkerInfo) -> list[str]:
    sign = worker.sign
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(worker.since))
    queues = "all" if sign.queues is None else ", ".join(sign.queues)
    seen = f"{max(0.0, time.time() - worker.seen_at):.0f} s ago"
    return [sign.name, worker.state, f"{worker.runs} of {sign.slots}", ", ".join(sign.workflows), queues, since, seen]

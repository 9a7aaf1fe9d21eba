"""Workers of the stores of a server, by the runs that they drive, and their queues."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from batonflow.durable.store_protocol import RunStore
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerStore

__all__ = ["Workers", "with_names"]

SECONDS_KEPT = 2.0
"""The seconds for which the names of workers are kept; they sign as often."""


class Workers:
    """The workers of stores.

    Args:
        stores: Returns the stores.
    """

    def __init__(self, stores: Callable[[], Sequence[RunStore]]) -> None:
        self._stores = stores
        self._names: dict[RunStore, tuple[float, Mapping[str, str]]] = {}

    async def names(self, store: RunStore) -> Mapping[str, str]:
        """Return the names of workers by owner."""
        if not isinstance(store, WorkerStore):
            return {}
        now = asyncio.get_running_loop().time()
        read_at, names = self._names.get(store, (-SECONDS_KEPT, {}))
        if now >= read_at + SECONDS_KEPT:
            names = {worker.sign.owner: worker.sign.name for worker in await store.workers()}
            self._names[store] = now, names
        return names

    async def told(self) -> dict[str, Any]:
        """Return all workers, and the unfinished runs of all queues, as data."""
        workers: list[dict[str, Any]] = []
        queues: list[dict[str, Any]] = []
        for store in self._stores():
            if isinstance(store, WorkerStore):
                found = await store.workers()
                workers += map(_worker_as_data, found)
                queues += [_queue_as_data(one, found) for one in await store.queues()]
        return {"workers": workers, "queues": queues}


def with_names(reason: str, names: Mapping[str, str]) -> str:
    """Return the reason of a held run with the name of a worker in place of its owner."""
    rest, _, owner = reason.rpartition(" ")
    return f"{rest} worker {names[owner]}" if owner in names else reason


def _queue_as_data(one: QueueInfo, workers: Sequence[WorkerInfo]) -> dict[str, Any]:
    return {**asdict(one), "workers": one.count_workers(workers), "left": one.is_left(workers)}


def _worker_as_data(worker: WorkerInfo) -> dict[str, Any]:
    sign = worker.sign
    return {
        "name": sign.name,
        "host": sign.host,
        "pid": sign.pid,
        "workflows": list(sign.workflows),
        "queues": None if sign.queues is None else list(sign.queues),
        "runs": worker.runs,
        "slots": sign.slots,
        "state": worker.state,
        "since": worker.since,
        "seen_at": worker.seen_at,
    }

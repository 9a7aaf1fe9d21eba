"""Counts of the runs in queues, for the handlers of events."""

import asyncio
import math
from collections.abc import Iterable

from batonflow.durable.worker_protocol import QueueInfo, WorkerStore
from batonflow.instrumentation.dispatcher import get_dispatcher
from batonflow.instrumentation.events.fleet import QueueCountEvent

__all__ = ["QueueCounts"]

SECONDS_BETWEEN_COUNTS = 15.0

dispatcher = get_dispatcher(__name__)


class QueueCounts:
    """Reports the unfinished runs of queues, if anything handles events."""

    def __init__(self) -> None:
        self._counted_at = -math.inf
        # The queues of the last count, so that an empty queue is reported once.
        self._known: dict[WorkerStore, set[tuple[str, str, str | None]]] = {}

    async def report(self, stores: Iterable[WorkerStore]) -> None:
        """Count the runs of stores, and report them, every 15 seconds."""
        now = asyncio.get_running_loop().time()
        if not dispatcher.enabled or now < self._counted_at + SECONDS_BETWEEN_COUNTS:
            return
        self._counted_at = now
        for store in stores:
            found = {(one.queue, one.workflow, one.version): one for one in await store.queues()}
            gone = self._known.get(store, set()) - found.keys()
            empty = [QueueInfo(*place, ready=0, later=0, running=0, waiting=0, held=0, oldest=None) for place in gone]
            for one in [*found.values(), *empty]:
                dispatcher.event(_as_event(one))
            self._known[store] = set(found)


def _as_event(one: QueueInfo) -> QueueCountEvent:
    counts = {"ready": one.ready, "later": one.later, "running": one.running, "waiting": one.waiting, "held": one.held}
    return QueueCountEvent(
        queue=one.queue, workflow=one.workflow, version=one.version or "", counts=counts, oldest=one.oldest or 0.0
    )

"""Workers of a MemoryStore."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from batonflow.clock import current_source
from batonflow.durable.stores.worker_signs import KEPT_SECONDS
from batonflow.durable.worker_protocol import QueueInfo, WorkerInfo, WorkerSign

__all__ = ["WorkerTable", "queue_infos"]


class WorkerTable:
    """The workers of stores in memory that share runs.

    Args:
        is_alive: Tells whether an owner lives.
        count: Returns the number of runs that an owner drives.
    """

    def __init__(self, is_alive: Callable[[str], bool], count: Callable[[str], int]) -> None:
        self._is_alive = is_alive
        self._count = count
        self._known: dict[str, WorkerInfo] = {}

    def sign(self, sign: WorkerSign) -> bool:
        """See ``WorkerStore.sign``."""
        now = current_source().now()
        self._known = {name: info for name, info in self._known.items() if info.seen_at >= now - KEPT_SECONDS}
        known = self._known.get(sign.name) or WorkerInfo(sign, now, now, 0, is_alive=True, is_draining=False)
        self._known[sign.name] = replace(known, sign=sign, seen_at=now)
        return known.is_draining

    def sign_off(self, name: str) -> None:
        """See ``WorkerStore.sign_off``."""
        self._known.pop(name, None)

    def all(self) -> list[WorkerInfo]:
        """See ``WorkerStore.workers``."""
        return [
            replace(info, runs=self._count(info.sign.owner), is_alive=self._is_alive(info.sign.owner))
            for info in self._known.values()
        ]

    def drain(self, name: str) -> bool:
        """See ``WorkerStore.drain``."""
        if name in self._known:
            self._known[name] = replace(self._known[name], is_draining=True)
        return name in self._known


def queue_infos(runs: Iterable[tuple[str, str, str | None, str, float]], now: float) -> list[QueueInfo]:
    """Return the listings of queues.

    Args:
        runs: For each run its queue, workflow, version and status, and the time since which it is ready.
        now: The present time.
    """
    counts: dict[tuple[str, str, str | None], Counter[str]] = {}
    oldest: dict[tuple[str, str, str | None], float] = {}
    for queue, workflow, version, status, due_at in runs:
        place = queue, workflow, version
        counts.setdefault(place, Counter())[status] += 1
        if status == "ready":
            oldest[place] = max(oldest.get(place, 0.0), now - due_at)
    return [
        QueueInfo(
            *place, found["ready"], found["later"], found["running"], found["waiting"], found["held"], oldest.get(place)
        )
        for place, found in sorted(counts.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or ""))
    ]

"""Workers of a MemoryStore."""

from collections.abc import Callable
from dataclasses import replace

from batonflow.clock import current_source
from batonflow.durable.stores.worker_signs import KEPT_SECONDS
from batonflow.durable.worker_protocol import WorkerInfo, WorkerSign

__all__ = ["WorkerTable"]


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

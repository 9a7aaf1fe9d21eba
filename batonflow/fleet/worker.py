"""Worker: a process, or a part of one, that drives runs of a store beside others."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from typing import Any, cast

from batonflow.durable.claimer import Claimer
from batonflow.durable.keeper import serves
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.opening import open_store
from batonflow.durable.worker_protocol import WorkerSign, WorkerStore
from batonflow.fleet.dispatcher_protocol import Dispatcher
from batonflow.fleet.dispatchers import DispatcherName, open_dispatcher
from batonflow.fleet.queue_counts import QueueCounts
from batonflow.fleet.schedules import ScheduleStarts
from batonflow.instrumentation.logs import logger_named
from batonflow.values.types import is_whole
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.stored_runs import StoredRuns
from batonflow.workflow_core.workflow import Workflow

__all__ = ["Worker", "check_has_own_name"]

logger = logger_named("batonflow.worker")

SECONDS_BETWEEN_COUNTS = 0.05
SECONDS_FOR_STEPS = 5.0
SECONDS_BETWEEN_SIGNS = 2.0
SECONDS_UNTIL_SILENT = 15.0
"""A worker that could not sign for so long is not ready."""
SECONDS_UNTIL_SERVING_AGAIN = 1.0


@dataclass
class _Kept:
    """A workflow of a worker."""

    name: str
    workflow: Any
    store: RunStore


class Worker:
    """A worker, which takes up the runs of its workflows that no live process drives.

    Runs come from ``Workflow.enqueue``, from servers, and from processes that have ended. Any number of workers may
    share a store. A run is driven by one of them at a time.

    Args:
        workflows: The workflows, agents and teams.
        store: The store of the workflows without their own, as for ``Workflow``.
        concurrency: The largest number of runs in the memory of this worker. It does not claim further runs.
        queues: The queues of the runs; None for all.
        drain: Seconds that running runs get after ``stop``. After that they are interrupted, and other workers continue
            them.
        idle_release: Seconds of waiting for an event from outside until a run leaves memory, and its slot is free.
        dispatcher: The engine whose bells make the worker look for runs, beside its own looks. A name stands for one in
            the database of the first workflow's store.

    Raises:
        TypeError: A value is not a workflow, or an argument has a wrong type.
        ValueError: There are no workflows, two have the same name, one does not have a store, an agent does not have a
            name, or a number is too small. Or the dispatcher does not go with the store.
        ImportError: The engine of the dispatcher is not installed.

    Example:
        >>> worker = Worker(flow, store="postgresql://app@db/prod", concurrency=20)
        >>> await worker.run()
    """

    def __init__(
        self,
        *workflows: Workflow,
        store: "str | PathLike[str] | RunStore | None" = None,
        concurrency: int = 20,
        queues: Sequence[str] | None = None,
        drain: float = 60.0,
        idle_release: float | None = 1.0,
        dispatcher: Dispatcher | DispatcherName = "none",
    ) -> None:
        if not workflows:
            raise ValueError("Worker() needs a workflow: pass the workflows whose runs it drives")
        if not is_whole(concurrency, least=1):
            raise ValueError(f"concurrency must be a whole number, 1 or more, not {concurrency!r}")
        if isinstance(queues, str):
            raise TypeError(f"queues must be a list of names, such as [{queues!r}]")
        if not drain >= 0:
            raise ValueError(f"drain must be a number of seconds, 0 or more, not {drain!r}")
        self._drain = drain
        default = None if store is None else open_store(store)
        self._kept = [_kept(workflow, default, idle_release) for workflow in workflows]
        names = [kept.name for kept in self._kept]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two workflows have the name {twice!r}: give one of them another workflow_name")
        # Without cronsim the times of schedules are left to other workers.
        starts = [] if find_spec("cronsim") is None else [_starts_of(kept) for kept in self._kept]
        self._driven = [*self._kept, *starts]
        self._concurrency, self._queues = concurrency, queues
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._signed_at: float | None = None
        self._counts = QueueCounts()
        self._claimer = Claimer(lambda: self._driven, logger=logger, concurrency=concurrency, queues=queues)
        self._closes_dispatcher = isinstance(dispatcher, str)
        self._dispatcher = (
            open_dispatcher(dispatcher, self._kept[0].store) if isinstance(dispatcher, str) else dispatcher
        )
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()

    @property
    def name(self) -> str:
        """The name of this worker in its stores."""
        return self._name

    @property
    def is_ready(self) -> bool:
        """True while the worker takes up runs and reaches its stores."""
        if self._signed_at is None or self._stopping.is_set():
            return False
        return asyncio.get_running_loop().time() < self._signed_at + SECONDS_UNTIL_SILENT

    @property
    def runs(self) -> int:
        """The number of runs in the memory of this worker."""
        return self._claimer.awake

    async def run(self, *, started: Callable[[], None] = lambda: None) -> None:
        """Drive runs until ``stop`` or a cancellation.

        Args:
            started: Called when the worker has reached its stores, before it takes up runs.

        Raises:
            StoreError: A store cannot be used.
        """
        signing: asyncio.Task[None] | None = None
        try:
            await self._sign()
            started()
            signing = asyncio.create_task(self._go_on_signing(), name="batonflow-worker-signs")
            await self._claimer.start()
            if self._dispatcher is not None:
                self._serving = asyncio.create_task(self._serve(self._dispatcher), name="batonflow-dispatcher")
            await self._stopping.wait()
            await self._claimer.stop()
            logger.info("draining: %d runs have %g seconds", self.runs, self._drain)
            await asyncio.gather(self._stop_serving(), self._drained())
        finally:
            await self._claimer.stop()
            await self._interrupt()
            await self._stop_serving()
            if signing is not None:
                signing.cancel()
                await asyncio.wait([signing])
            for store in self._worker_stores():
                with suppress(StoreError):
                    await store.sign_off(self._name)

    def stop(self) -> None:
        """Take up no further run. The second call also interrupts the running runs at once."""
        self._claimer.pause()
        if self._stopping.is_set():
            self._ending.set()
        self._stopping.set()

    async def _serve(self, dispatcher: Dispatcher) -> None:
        """Look for runs at each bell. Without the dispatcher the claimer's own looks remain."""
        told = ""
        while True:
            try:
                await dispatcher.serve(lambda _: self._claimer.wake())
            except Exception as error:  # noqa: BLE001 - an engine may raise anything
                if str(error) != told:
                    told = str(error)
                    logger.warning("the dispatcher fails, so runs are found without bells: %s", error)
            await asyncio.sleep(SECONDS_UNTIL_SERVING_AGAIN)

    async def _stop_serving(self) -> None:
        serving, self._serving = self._serving, None
        if serving is None:
            return
        serving.cancel()
        await asyncio.wait([serving])
        if self._closes_dispatcher and self._dispatcher is not None:
            await self._dispatcher.aclose()

    def _worker_stores(self) -> "dict[WorkerStore, RunStore]":
        return {kept.store: kept.store for kept in self._kept if isinstance(kept.store, WorkerStore)}

    async def _sign(self) -> None:
        """Write a sign of life into each store, and stop if one of them says so."""
        for worker_store, store in self._worker_stores().items():
            names = [name for kept in self._driven if kept.store is store for name in _served_by(kept.workflow)]
            host, pid = socket.gethostname(), os.getpid()
            sign = WorkerSign(self._name, store.owner, host, pid, names, self._queues, self._concurrency)
            if await worker_store.sign(sign) and not self._stopping.is_set():
                logger.info("was asked to drain")
                self.stop()
        self._signed_at = asyncio.get_running_loop().time()

    async def _go_on_signing(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_SIGNS)
            with suppress(StoreError):  # the claimer says so
                await self._sign()
                await self._counts.report(self._worker_stores())

    async def _drained(self) -> None:
        """Wait until no run is in memory, at most for the seconds of ``drain``."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._drain
        while self.runs and loop.time() < until and not self._ending.is_set():  # noqa: ASYNC110 - two things end it
            await asyncio.sleep(SECONDS_BETWEEN_COUNTS)

    async def _interrupt(self) -> None:
        handlers = [handler for kept in self._driven for handler in StoredRuns.live_handlers(kept.workflow)]
        if handlers:
            await asyncio.gather(*(handler.interrupt(timeout=SECONDS_FOR_STEPS) for handler in handlers))
            logger.info("interrupted %d runs, which other workers continue", len(handlers))


def _served_by(workflow: Workflow) -> list[str]:
    """Return the runs that the code of a workflow takes up, as in ``WorkerSign``."""
    served = serves(workflow.__batonflow__, bounded=False)
    if served.versions is None:
        return [served.workflow]
    return [f"{served.workflow}@{version or ''}" for version in served.versions]


def _starts_of(kept: _Kept) -> _Kept:
    """Return the workflow that starts the scheduled runs of another one."""
    starts = ScheduleStarts(kept.workflow)
    return _Kept(starts.workflow_name, starts, kept.store)


def check_has_own_name(workflow: Workflow) -> None:
    """Refuse an agent or team without a name, which would drive the runs of its class.

    Raises:
        ValueError: It does not have a ``workflow_name``, and its class is one of batonflow.
    """
    options, kind = workflow.__batonflow__, type(workflow)
    if not options.name and kind.__module__.startswith("batonflow.agents."):
        raise ValueError(
            f"a {kind.__name__} in a fleet needs a name: {kind.__name__}(workflow_name=...). Without it, "
            f"a worker of one {kind.__name__} would drive the runs of another"
        )


def _kept(workflow: Workflow, default: RunStore | None, idle_release: float | None) -> _Kept:
    """Return the copy of a workflow that a worker drives."""
    given: Any = workflow
    if not isinstance(given, Workflow):
        raise TypeError(f"Worker() takes workflows, agents and teams, not {given!r}")
    check_has_own_name(workflow)
    options = workflow.__batonflow__
    store = options.store or default
    if store is None:
        name = options.workflow_name
        raise ValueError(f'{name} does not have a store: pass store="postgresql://..." or store="runs.db" to Worker()')
    copy = cast("Workflow", StoredRuns.with_store(workflow, store, idle_release=idle_release))
    copy.__batonflow__.timeout_excludes_waiting = True  # a person may take days to answer
    copy.__batonflow__.on_abandon = "continue"  # no caller holds the handlers of these runs
    return _Kept(options.workflow_name, copy, store)

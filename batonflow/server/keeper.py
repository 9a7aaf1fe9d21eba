"""Keeper of a server's runs: resume runs without a living process, and runs with new messages."""

import asyncio
from contextlib import suppress

from batonflow.durable.store_protocol import RunStore
from batonflow.instrumentation.logs import logger_named
from batonflow.server.runs import Runs
from batonflow.server.served import Served
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["Keeper"]

logger = logger_named("batonflow.server")

LOOKS_EVERY = 1.0
"""Seconds between searches for runs without a hint: runs of dead processes, and due timers."""

BETWEEN_LOOKS = 0.05
"""Seconds to collect hints."""

LONGEST_PAUSE = 300.0
"""Seconds until another attempt for a run that could not be resumed."""


class Keeper:
    """Background task that runs as long as the server.

    Args:
        runs: The runs of the server.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._task: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[list[WorkflowHandler]]] = set()
        self._told: dict[str, str] = {}
        # Failed runs: time of the next attempt, and the pause after it.
        self._failed: dict[str, tuple[float, float]] = {}

    async def start(self) -> None:
        """Resume existing runs, then continue in the background.

        Raises:
            StoreError: A store fails.
        """
        for served in list(self._runs.served.values()):
            await self._recover(served)
        self._task = asyncio.create_task(self._keep(), name="batonflow-keeper")

    async def stop(self) -> None:
        """Stop resuming runs."""
        tasks = [*self._opening, *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._looking:  # runs that are claimed already are resumed, to be interrupted with the others
            await asyncio.wait(self._looking)

    async def _keep(self) -> None:
        heard: dict[RunStore, asyncio.Task[int]] = {}
        seen: dict[RunStore, int] = {}
        try:
            while True:
                for store in self._runs.stores:
                    if store not in heard:
                        heard[store] = asyncio.create_task(_changed(store, seen.get(store, -1)))
                await asyncio.wait(heard.values(), timeout=LOOKS_EVERY, return_when=asyncio.FIRST_COMPLETED)
                for store, task in list(heard.items()):
                    if task.done():
                        seen[store] = task.result()
                        del heard[store]
                for served in list(self._runs.served.values()):
                    try:
                        await self._recover(served)
                    except StoreError as error:
                        self._warn_once(f"store of {served.name}", f"runs of {served.name} cannot be listed: {error}")
                await asyncio.sleep(BETWEEN_LOOKS)
        finally:
            for task in heard.values():
                task.cancel()
            if heard:
                await asyncio.wait(heard.values())

    async def _recover(self, served: Served) -> None:
        StoredRuns.forget_sleeping(served.workflow)  # the server itself receives their messages
        now = asyncio.get_running_loop().time()
        left_alone = [run_id for run_id, (again, _) in self._failed.items() if again > now]
        looking = asyncio.create_task(StoredRuns.recover(served.workflow, skip=left_alone))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)
        # A cancellation between claim and resume would leave the run claimed by this process, which does not run it.
        for handler in await asyncio.shield(looking):
            task = asyncio.create_task(self._take_up(served, handler))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _take_up(self, served: Served, handler: WorkflowHandler) -> None:
        try:
            await handler.started()
        except StoreError as error:
            self._retry_later(served, handler.run_id, error)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._retry_later(served, handler.run_id, error)
            with suppress(StoreError):
                await _release(served, handler.run_id)
        else:
            self._failed.pop(handler.run_id, None)
            self._runs.arrived(handler.run_id)

    def _retry_later(self, served: Served, run_id: str, error: Exception) -> None:
        why = self._runs.troubles[run_id] = (
            f"run {run_id} of {served.name} cannot be resumed: {str(error) or repr(error)}"
        )
        self._warn_once(run_id, why)
        _, pause = self._failed.get(run_id, (0.0, LOOKS_EVERY))
        self._failed[run_id] = asyncio.get_running_loop().time() + pause, min(2 * pause, LONGEST_PAUSE)

    def _warn_once(self, about: str, text: str) -> None:
        if self._told.get(about) != text:
            self._told[about] = text
            logger.warning("%s", text)


async def _release(served: Served, run_id: str) -> None:
    store = served.store
    info = await store.info(run_id)
    if info is not None and info.owner == store.owner and StoredRuns.live_handler(served.workflow, run_id) is None:
        await store.release(run_id, store.owner, info.epoch)


async def _changed(store: RunStore, seen: int) -> int:
    with suppress(StoreError):
        return await store.changed(seen)
    await asyncio.sleep(LOOKS_EVERY)
    return seen

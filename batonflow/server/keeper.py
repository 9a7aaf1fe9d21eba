"""Keeps the runs of a server going: takes up what nobody drives, and what something has come for."""

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

logger = logger_named("batonflow.workflow_core.server")

LOOKS_EVERY = 1.0
"""Seconds after which runs are looked for without a hint: those of processes that died, those whose time has come."""

BETWEEN_LOOKS = 0.05
"""Seconds that hints are gathered for."""

LONGEST_PAUSE = 300.0
"""Seconds after which a run is tried again that could not be taken up."""


class Keeper:
    """A background task for as long as the server runs.

    Args:
        runs: The runs of the server.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._task: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[list[WorkflowHandler]]] = set()
        self._told: dict[str, str] = {}
        # Runs that could not be taken up: when to try again, and the pause after that.
        self._failed: dict[str, tuple[float, float]] = {}

    async def start(self) -> None:
        """Take up what is there, then go on in the background.

        Raises:
            StoreError: A store fails.
        """
        for served in list(self._runs.served.values()):
            await self._recover(served)
        self._task = asyncio.create_task(self._keep(), name="batonflow-keeper")

    async def stop(self) -> None:
        """Take up nothing more."""
        tasks = [*self._opening, *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._looking:  # what it has claimed by now it takes up, to be interrupted with the others
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
                        self._say(f"store of {served.name}", f"runs of {served.name} cannot be looked for: {error}")
                await asyncio.sleep(BETWEEN_LOOKS)
        finally:
            for task in heard.values():
                task.cancel()
            if heard:
                await asyncio.wait(heard.values())

    async def _recover(self, served: Served) -> None:
        StoredRuns.forget_sleeping(served.workflow)  # whatever comes for them is heard of here
        now = asyncio.get_running_loop().time()
        left_alone = [run_id for run_id, (again, _) in self._failed.items() if again > now]
        looking = asyncio.create_task(StoredRuns.recover(served.workflow, skip=left_alone))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)
        # Not to be cut off between a claim and its use: the run would belong to this process, which does not run it.
        for handler in await asyncio.shield(looking):
            task = asyncio.create_task(self._take_up(served, handler))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _take_up(self, served: Served, handler: WorkflowHandler) -> None:
        try:
            await handler.started()
        except StoreError as error:
            self._leave(served, handler.run_id, error)
        except Exception as error:  # noqa: BLE001 - whatever the code of the workflow raises
            self._leave(served, handler.run_id, error)
            with suppress(StoreError):
                await _release(served, handler.run_id)
        else:
            self._failed.pop(handler.run_id, None)
            self._runs.arrived(handler.run_id)

    def _leave(self, served: Served, run_id: str, error: Exception) -> None:
        """Try a run again after a while."""
        why = self._runs.troubles[run_id] = (
            f"run {run_id} of {served.name} cannot be taken up: {str(error) or repr(error)}"
        )
        self._say(run_id, why)
        _, pause = self._failed.get(run_id, (0.0, LOOKS_EVERY))
        self._failed[run_id] = asyncio.get_running_loop().time() + pause, min(2 * pause, LONGEST_PAUSE)

    def _say(self, about: str, text: str) -> None:
        """Warn, once about each thing."""
        if self._told.get(about) != text:
            self._told[about] = text
            logger.warning("%s", text)


async def _release(served: Served, run_id: str) -> None:
    """Let go of a run that was claimed and does not go on here."""
    store = served.store
    info = await store.info(run_id)
    if info is not None and info.owner == store.owner and StoredRuns.live_handler(served.workflow, run_id) is None:
        await store.release(run_id, store.owner, info.epoch)


async def _changed(store: RunStore, seen: int) -> int:
    with suppress(StoreError):
        return await store.changed(seen)
    await asyncio.sleep(LOOKS_EVERY)
    return seen

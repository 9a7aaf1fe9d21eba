"""The claimer of a process: it takes up runs without a living process, and runs with new messages."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from batonflow.durable.store_protocol import RunStore
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["Claimer", "KeptWorkflow"]

LOOKS_EVERY = 1.0
"""Seconds between searches for runs without a hint: runs of dead processes, and due timers."""

BETWEEN_LOOKS = 0.05
"""Seconds to collect hints."""

UNTIL_FREE = 0.01
"""Seconds between checks for a free slot."""

LONGEST_PAUSE = 300.0
"""Seconds until another attempt for a run that could not be resumed."""

ALL = 10_000
"""The largest number of runs that a process without a bound takes up at a time."""


class KeptWorkflow(Protocol):
    """A workflow whose runs are taken up, under its name in messages."""

    name: str
    workflow: Any
    store: RunStore


class Claimer:
    """A background task that takes up the runs of workflows, as long as there are free slots.

    Args:
        workflows: Returns the workflows; they have stores.
        logger: The log for runs that cannot be resumed.
        concurrency: The largest number of runs in the memory of this process; None for any number.
        queues: The queues of the runs; None for all.
        taken_up: Called with the id of each run that was resumed.
        refused: Called with the id of each run that could not be resumed, and the reason.
    """

    def __init__(
        self,
        workflows: Callable[[], Iterable[KeptWorkflow]],
        *,
        logger: logging.Logger,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
        taken_up: Callable[[str], None] = lambda _: None,
        refused: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        self._workflows = workflows
        self._logger = logger
        self._concurrency = concurrency
        self._queues = queues
        self._taken_up, self._refused = taken_up, refused
        self._task: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[list[WorkflowHandler]]] = set()
        self._told: dict[str, str] = {}
        # Failed runs: time of the next attempt, and the pause after it.
        self._failed: dict[str, tuple[float, float]] = {}
        # Runs in memory after the last claim, by workflow.
        self._driven: dict[str, int] = {}
        # The workflow to begin with, so that one with many runs leaves slots to the others.
        self._turn = 0
        self._is_paused = False
        # Whether the last look filled the slots, so that there may be more runs.
        self._left_some = False
        self._woken = asyncio.Event()

    async def start(self) -> None:
        """Resume existing runs, then continue in the background.

        Raises:
            StoreError: A store fails.
        """
        for kept in self._in_turn():
            await self._recover(kept)
        self._task = asyncio.create_task(self._keep(), name="batonflow-claimer")

    def wake(self) -> None:
        """Look for runs at once."""
        self._woken.set()

    def pause(self) -> None:
        """Claim no further run from now on."""
        self._is_paused = True

    async def stop(self) -> None:
        """Stop resuming runs."""
        tasks = [*self._opening, *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._looking:  # runs that are claimed already are resumed, to be interrupted with the others
            done, _ = await asyncio.wait(self._looking)
            for look in done:
                look.exception()  # the store cannot be reached, which it says itself

    @property
    def awake(self) -> int:
        """The number of runs in the memory of this process."""
        return sum(_count_awake(kept.workflow) for kept in self._workflows())

    def _free(self) -> int:
        if self._is_paused:
            return 0
        return ALL if self._concurrency is None else max(0, self._concurrency - self.awake)

    def _in_turn(self) -> list[KeptWorkflow]:
        found = list(self._workflows())
        self._turn = (self._turn + 1) % max(1, len(found))
        return found[self._turn :] + found[: self._turn]

    async def _keep(self) -> None:
        heard: dict[RunStore, asyncio.Task[int]] = {}
        seen: dict[RunStore, int] = {}
        try:
            while True:
                for store in {kept.store: None for kept in self._workflows()}:
                    if store not in heard:
                        heard[store] = asyncio.create_task(_changed(store, seen.get(store, -1)))
                await self._wait(heard.values())
                for store, task in list(heard.items()):
                    if task.done():
                        seen[store] = task.result()
                        del heard[store]
                self._woken.clear()
                self._left_some = False
                for kept in self._in_turn():
                    try:
                        await self._recover(kept)
                    except StoreError as error:
                        self._warn_once(f"store of {kept.name}", f"runs of {kept.name} cannot be listed: {error}")
                await asyncio.sleep(UNTIL_FREE if self._left_some else BETWEEN_LOOKS)
        finally:
            for task in heard.values():
                task.cancel()
            if heard:
                await asyncio.wait(heard.values())

    async def _wait(self, heard: Iterable["asyncio.Task[int]"]) -> None:
        """Wait for a free slot, then for a hint or the time to look.

        A look that has filled the slots may have left runs, so the next one does not wait for a hint.
        """
        while not self._free():
            self._left_some = True
            await asyncio.sleep(UNTIL_FREE)
        if self._left_some:
            return
        own = [asyncio.create_task(self._bounded_run_left()), asyncio.create_task(self._was_woken())]
        try:
            await asyncio.wait([*heard, *own], timeout=LOOKS_EVERY, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in own:
                task.cancel()

    async def _was_woken(self) -> None:
        await self._woken.wait()

    async def _bounded_run_left(self) -> None:
        """Wait until a run of a workflow with a bound leaves memory. Another one may be claimed then."""
        bounded = [kept for kept in self._workflows() if _has_bound(kept.workflow)]
        pause = BETWEEN_LOOKS if any(self._driven.get(kept.name) for kept in bounded) else LOOKS_EVERY
        while not any(_count_awake(kept.workflow) < self._driven.get(kept.name, 0) for kept in bounded):  # noqa: ASYNC110
            await asyncio.sleep(pause)

    async def _recover(self, kept: KeptWorkflow) -> None:
        StoredRuns.forget_sleeping(kept.workflow)  # the process receives their messages through the store
        free = self._free()
        if not free:
            return
        now = asyncio.get_running_loop().time()
        left_alone = [run_id for run_id, (again, _) in self._failed.items() if again > now]
        looking = asyncio.create_task(self._claimed(kept.workflow, free, left_alone))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)
        # A cancellation between claim and resume would leave the run claimed by this process, which does not run it.
        driven = _count_awake(kept.workflow)
        found = await asyncio.shield(looking)
        self._left_some = self._left_some or len(found) >= free
        self._driven[kept.name] = driven + len(found)
        for handler in found:
            task = asyncio.create_task(self._take_up(kept, handler))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _claimed(self, workflow: Any, free: int, left_alone: Collection[str]) -> list[WorkflowHandler]:
        keeper = workflow.__batonflow__.keeper
        runs = await keeper.recover(workflow, free, left_alone, self._queues, None, bounded=True)
        return [workflow.__batonflow_handler__(run) for run in runs]

    async def _take_up(self, kept: KeptWorkflow, handler: WorkflowHandler) -> None:
        try:
            await handler.started()
        except StoreError as error:
            self._retry_later(kept, handler.run_id, error)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._retry_later(kept, handler.run_id, error)
            with suppress(StoreError):
                await _release(kept, handler.run_id)
        else:
            self._failed.pop(handler.run_id, None)
            self._taken_up(handler.run_id)

    def _retry_later(self, kept: KeptWorkflow, run_id: str, error: Exception) -> None:
        why = f"run {run_id} of {kept.name} cannot be resumed: {str(error) or repr(error)}"
        self._refused(run_id, why)
        self._warn_once(run_id, why)
        _, pause = self._failed.get(run_id, (0.0, LOOKS_EVERY))
        self._failed[run_id] = asyncio.get_running_loop().time() + pause, min(2 * pause, LONGEST_PAUSE)

    def _warn_once(self, about: str, text: str) -> None:
        if self._told.get(about) != text:
            self._told[about] = text
            self._logger.warning("%s", text)


def _has_bound(workflow: Any) -> bool:
    return workflow.__batonflow__.num_concurrent_runs is not None


def _count_awake(workflow: Any) -> int:
    return workflow.__batonflow__.keeper.count_awake(workflow)


async def _release(kept: KeptWorkflow, run_id: str) -> None:
    store = kept.store
    info = await store.info(run_id)
    if info is not None and info.owner == store.owner and StoredRuns.live_handler(kept.workflow, run_id) is None:
        await store.release(run_id, store.owner, info.epoch)


async def _changed(store: RunStore, seen: int) -> int:
    """Wait until a run of a store may be ready, and return the number for the next wait."""
    with suppress(StoreError):
        while True:
            changes = await store.changed(seen)
            seen = changes.number
            if changes.ready:
                return seen
    await asyncio.sleep(LOOKS_EVERY)
    return seen

"""A process that is stopped for longer than its lease, and wakes up when another one has taken over its runs."""

import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batonflow.durable.store_protocol import StoredCommit
from batonflow.workflow_core import Context, StopEvent, Workflow, WorkflowHandler, step
from batonflow.workflow_core.errors import StoreError
from tests.promises.crash.killing import effects_in, record_faults
from tests.promises.crash.matrix import plain, reference
from tests.promises.crash.outside import FileLedger, Process, lines_of
from tests.promises.crash.programs import PROGRAMS, Chain, Link, People, Program, answered
from tests.promises.crash.stores import KeptStore, store_in
from tests.promises.crash.world import Ledger

__all__ = ["StopTally", "soak_stops", "stop_and_take_over"]

LEASE_SECONDS = 0.6
STOPPED_AFTER = (0.05, 0.4)
"""Seconds after a process says that it is at work; its runs take longer."""
MOST_SECONDS = 30.0

UNDISTURBED = {program.name: program for program in PROGRAMS}
RUNS = ("chain-0", "chain-1", "chain-2", "people-0")


class SlowChain(Chain):
    @step
    async def go(self, ctx: Context, ev: Link) -> Link | StopEvent:
        await asyncio.sleep(0.15)
        return await super().go(ctx, ev)


WORKFLOWS: dict[str, Callable[[KeptStore, Ledger], Workflow]] = {"chain": SlowChain, "people": People}


def program_of(run_id: str) -> Program:
    return UNDISTURBED[run_id.partition("-")[0]]


async def work(folder: Path) -> None:
    """Begin the runs, and note how each ends for this process. Nobody answers what they ask."""
    store = store_in(folder, lease_seconds=LEASE_SECONDS)
    ledger = FileLedger(folder / "ledger", 0)

    async def bring_to_its_end(run_id: str) -> None:
        workflow = WORKFLOWS[run_id.partition("-")[0]](store, ledger)
        try:
            ledger.write("ended", run_id, plain(await workflow.run(run_id=run_id, **program_of(run_id).start)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told of this run
            ledger.write("failed", run_id, type(error).__name__)

    await asyncio.gather(*(bring_to_its_end(run_id) for run_id in RUNS))
    await store.aclose()


@dataclass(slots=True)
class StopTally:
    """What a number of stops gave.

    Attributes:
        stops: Processes that were stopped and continued.
        runs: Their runs, which another process took over and ended.
        refused: Of these, those that were refused to the process that woke up.
        taken: How long after the end of the lease a run was taken over, in seconds.
        failures: What went wrong.
    """

    stops: int = 0
    runs: int = 0
    refused: int = 0
    taken: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: "StopTally") -> None:
        """Count another part of the same."""
        self.stops += other.stops
        self.runs += other.runs
        self.refused += other.refused
        self.taken += other.taken
        self.failures += other.failures


def stop_and_take_over(folder: Path, seed: int) -> StopTally:
    """Stop a process at work, end its runs in this one, and let it go on.

    Args:
        folder: An empty one.
        seed: Of the moment.
    """
    tally, dice = StopTally(), random.Random(seed)
    with Process(__name__, folder) as process:
        process.begin()
        time.sleep(dice.uniform(*STOPPED_AFTER))
        try:
            asyncio.run(_take_over(folder, process, tally))
        except TimeoutError:
            tally.failures.append("it took too long")
    if said := (folder / "errors").read_text():
        tally.failures.append(said[-2000:])
    tally.stops += 1
    tally.failures = [f"seed {seed}: {failure}" for failure in tally.failures]
    return tally


async def _take_over(folder: Path, process: Process, tally: StopTally) -> None:
    store = store_in(folder, busy_seconds=2.0)
    ledger = FileLedger(folder / "ledger", 1)
    async with asyncio.timeout(MOST_SECONDS):
        await _until(lambda: _are_begun(store))
        handlers, recorded = await _claimed(store, ledger, process, tally)
        if set(handlers) != set(RUNS):
            tally.failures.append(f"taken over were only {sorted(handlers)}")
        results = {
            run_id: await (answered if run_id.startswith("people") else _result)(handler.workflow, handler)
            for run_id, handler in handlers.items()
        }
        commits = {run_id: await _commits(store, run_id) for run_id in handlers}
        process.send(signal.SIGCONT)
        status = await asyncio.to_thread(process.ended_by_itself, MOST_SECONDS)
    if status != 0:
        tally.failures.append(f"the process that woke up {'hung' if status is None else f'gave {status}'}")
    lines = lines_of(folder / "ledger")
    for run_id, result in results.items():
        tally.runs += 1
        for_the_first = [line.value for line in lines if line.run_id == run_id and line.kind in ("ended", "failed")]
        tally.refused += for_the_first == ["RunLostError"]
        faults: list[str] = []
        if for_the_first != ["RunLostError"]:
            faults.append(f"was for the first process {for_the_first}")
        if plain(result) != plain(program_of(run_id).expected):
            faults.append(f"gave {result}")
        if await _commits(store, run_id) != commits[run_id]:
            faults.append("the process that woke up wrote something")
        found = await asyncio.to_thread(reference, program_of(run_id), 0)
        faults += record_faults(found, await store.replay(run_id))
        done = Counter((line.life, line.value) for line in lines if line.run_id == run_id and line.kind == "effect")
        faults += [f"done more than once by one process: {one}" for one, times in done.items() if times > 1]
        faults += [f"repeated {effect!r}, which was recorded" for effect in recorded[run_id] if (1, effect) in done]
        tally.failures += [f"{run_id}: {fault}" for fault in faults]
    await store.aclose()


async def _result(_: Workflow, handler: WorkflowHandler) -> Any:
    return await handler


async def _claimed(
    store: KeptStore, ledger: Ledger, process: Process, tally: StopTally
) -> tuple[dict[str, WorkflowHandler], dict[str, Any]]:
    """Stop the process, wait until its leases are over, and take what it drove; also what was recorded until then."""
    while True:
        process.send(signal.SIGSTOP)
        await _until(lambda: _are_free(store))
        # Before the runs go on here, as what they do from then on is recorded too.
        recorded = {run_id: effects_in(await store.replay(run_id)) for run_id in RUNS}
        began = time.monotonic()
        try:
            found = [handler for make in WORKFLOWS.values() for handler in await make(store, ledger).recover()]
        except StoreError:  # it was stopped while it was writing, and holds the database: so does everybody wait
            process.send(signal.SIGCONT)
            await asyncio.sleep(0.01)
            continue
        tally.taken += [time.monotonic() - began] * len(found)
        return {handler.run_id: handler for handler in found}, recorded


async def _are_begun(store: KeptStore) -> bool:
    return all([await store.info(run_id) is not None for run_id in RUNS])


async def _are_free(store: KeptStore) -> bool:
    return all(info.lease_left == 0 for info in await store.list_runs())


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - another process brings it about
        await asyncio.sleep(0.02)


async def _commits(store: KeptStore, run_id: str) -> tuple[Any, list[StoredCommit]]:
    return await store.info(run_id), await store.read(run_id)


def soak_stops(_: str, seeds: Sequence[int]) -> StopTally:
    """Stop a process for each seed; part of `make soak`."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    tally = StopTally()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            tally.add(stop_and_take_over(Path(folder), seed))
    return tally


def main(folder: str) -> None:
    """The process that is stopped."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    sys.stdin.readline()
    print("at work", flush=True)
    asyncio.run(work(Path(folder)))

"""Workers on one database that are killed and stopped, and whose database is crashed, while they drive many runs."""

import asyncio
import logging
import math
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.fleet import Worker
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from tests.postgres import OwnServer, new_schema
from tests.promises.crash.killing import effects_in
from tests.promises.crash.outside import FileLedger, Line, Process, lines_of
from tests.promises.crash.programs import Noted
from tests.promises.crash.stores import store_in

__all__ = ["FLEET", "LEASE_SECONDS", "Fault", "Fleet", "FleetTally", "drive_under_faults", "soak_fleets"]

LEASE_SECONDS = 2.0
MOST_SECONDS = 120.0
PAUSES = (0.3, 1.2)
"""Seconds between two faults."""
SECONDS_DOWN = (0.1, 1.0)
"""Seconds until a crashed database starts again."""
BODY_SECONDS = 0.1
COMMITS_BEFORE, COMMITS_AFTER = 2, 1
"""Of a run, around those of its bodies: its creation and its first step, and its end."""
BODIES_PER_LOST_RUN = 2
"""The body that is in flight, and the one that its worker begins before its first commit is refused."""

Fault: TypeAlias = Literal["kill", "stop", "crash"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The size of a fleet, and what befalls it.

    Attributes:
        runs: The number of runs.
        steps: The number of bodies of each run.
        workers: The number of processes at a time.
        slots: The number of runs in the memory of each.
        faults: The faults, which come in an order of chance.
    """

    runs: int
    steps: int
    workers: int
    slots: int
    faults: tuple[Fault, ...]


FLEET = Fleet(250, 20, 3, 10, ("kill",) * 5 + ("stop",) * 2 + ("crash",) * 2)


class Round(Event):
    n: int


class Rounds(Workflow):
    """Takes some steps, each with an effect outside that the stream tells of."""

    def __init__(self, store: RunStore, ledger: FileLedger | None = None) -> None:
        super().__init__(store=store, timeout=None, workflow_name="rounds")
        self.ledger = ledger

    @step
    async def begin(self, ev: StartEvent) -> Round:
        return Round(n=ev.steps)

    @step
    async def go(self, ctx: Context, ev: Round) -> Round | StopEvent:
        assert self.ledger is not None
        self.ledger.write("body", ctx.run_id, [ev.n, time.time()])
        try:
            await asyncio.sleep(BODY_SECONDS)
        except asyncio.CancelledError:
            self.ledger.write("lost", ctx.run_id, [ev.n, time.time()])
            raise
        ctx.write_event_to_stream(Noted(effect=str(ev.n)))
        return StopEvent(result="done") if ev.n == 1 else Round(n=ev.n - 1)


# --- a process --------------------------------------------------------------------------------------------------------


async def work(folder: Path, life: int, slots: int) -> None:
    """Drive runs until SIGTERM."""
    store = store_in(folder, lease_seconds=LEASE_SECONDS)
    worker = Worker(Rounds(store, FileLedger(folder / "ledger", life)), concurrency=slots)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await store.info("rounds-0")  # a worker that does not reach its database at first ends with an error
    print("at work", flush=True)
    await worker.run()
    await store.aclose()


# --- the fleet --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FleetTally:
    """The results of a number of fleets.

    Attributes:
        fleets: How many.
        faults: The faults, by kind.
        runs: Runs that came to their end.
        bodies: Bodies of their steps.
        repeated: Bodies that were done again.
        driven: Runs that a killed or stopped worker was driving at its fault.
        in_flight: Bodies of these runs that had begun and were not recorded at the fault. A stopped worker that wakes
            up begins one more body of each of its runs until its first commit is refused.
        lost: Runs that a worker lost without a kill or a stop, because it did not get a core for as long as its lease.
        taken: Seconds from a kill or a stop until another worker is at work on a run, by kind.
        failures: What went wrong.
    """

    fleets: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    runs: int = 0
    bodies: int = 0
    repeated: int = 0
    driven: int = 0
    in_flight: int = 0
    lost: int = 0
    taken: dict[str, list[float]] = field(default_factory=lambda: {"kill": [], "stop": []})
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: "FleetTally") -> None:
        """Count another part of the same."""
        self.fleets += other.fleets
        self.faults += other.faults
        self.runs += other.runs
        self.bodies += other.bodies
        self.repeated += other.repeated
        self.driven += other.driven
        self.in_flight += other.in_flight
        self.lost += other.lost
        for kind, seconds in other.taken.items():
            self.taken[kind] += seconds
        self.failures += other.failures


@dataclass(frozen=True, slots=True)
class _Harm:
    """The fault of a worker.

    Attributes:
        kind: The fault.
        life: The worker.
        at: The time.
        driven: The runs that it was driving.
        lines: The number of lines in the ledger afterwards.
        recorded: The number of recorded bodies of runs with a live owner, read before ``lines``.
    """

    kind: Fault
    life: int
    at: float
    driven: set[str]
    lines: int
    recorded: dict[str, int]


class _Supervisor:
    """Starts workers, and does harm to them and to their database."""

    def __init__(self, folder: Path, fleet: Fleet, server: OwnServer, processes: ExitStack, tally: FleetTally) -> None:
        self._folder, self._fleet, self._server = folder, fleet, server
        self._processes, self._tally = processes, tally
        self._lives = 0
        self._workers: dict[int, Process] = {}
        self._stopped: dict[int, tuple[Process, float]] = {}
        self._standby = self._started()
        self.harms: list[_Harm] = []

    def _started(self) -> tuple[int, Process]:
        life = self._lives
        self._lives += 1
        return life, self._processes.enter_context(Process(__name__, self._folder, life, self._fleet.slots))

    def add_worker(self) -> None:
        """Let a worker begin, and start the next one."""
        life, process = self._standby
        process.begin()
        self._workers[life] = process
        self._standby = self._started()

    def harm(self, kind: Fault, dice: random.Random) -> None:
        """Bring a fault about."""
        self._tally.faults[kind] += 1
        if kind == "crash":
            driven = asyncio.run(_recorded(self._folder))
            self._server.crash()
            time.sleep(dice.uniform(*SECONDS_DOWN))
            self._server.start()
            self._wait_until_written(driven)
            return
        life = dice.choice(sorted(self._workers))
        process = self._workers.pop(life)
        before = asyncio.run(_recorded(self._folder))
        if process.is_over:
            self._tally.failures.append(f"worker {life} ended by itself")
        process.send(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        at = time.time()
        if kind == "stop":
            self._stopped[life] = process, time.monotonic() + LEASE_SECONDS + 1
        self.add_worker()
        begun = _bodies(self._folder, until=at)
        driven = {run_id for run_id, lines in begun.items() if lines[-1].life == life and run_id in before}
        for run_id in driven:
            in_flight = len({line.value[0] for line in begun[run_id]}) - before[run_id]
            self._tally.in_flight += in_flight + (kind == "stop")
        recorded = asyncio.run(_recorded(self._folder))
        self.harms.append(_Harm(kind, life, at, driven, len(lines_of(self._folder / "ledger")), recorded))

    def _wait_until_written(self, driven: dict[str, int]) -> None:
        """Wait until runs are written again, so that a worker that ends next has no bodies of an outage in memory."""
        end = time.monotonic() + MOST_SECONDS
        while time.monotonic() < end:
            now = asyncio.run(_recorded(self._folder))
            if all(now.get(run_id, number + 1) > number for run_id, number in driven.items()):
                return
            time.sleep(0.05)
        self._tally.failures.append("runs were not written after a crash of the database")

    def wake(self, *, all_of_them: bool = False) -> None:
        """Continue processes that were stopped for longer than their lease; they work on as further workers."""
        for life, (process, until) in list(self._stopped.items()):
            if all_of_them or time.monotonic() >= until:
                process.send(signal.SIGCONT)
                self._workers[life] = self._stopped.pop(life)[0]

    def end(self) -> None:
        """Stop all workers as a deployment does."""
        for process in self._workers.values():
            process.send(signal.SIGTERM)
        for life, process in self._workers.items():
            if (status := process.ended_by_itself()) != 0:
                self._tally.failures.append(f"worker {life} {'hung' if status is None else f'gave {status}'}")


def _bodies(folder: Path, until: float = math.inf) -> dict[str, list[Line]]:
    """Return the bodies that had begun at a time, by run."""
    found: dict[str, list[Line]] = {}
    for line in lines_of(folder / "ledger"):
        if line.kind == "body" and line.value[1] <= until:
            found.setdefault(line.run_id, []).append(line)
    return found


def drive_under_faults(folder: Path, fleet: Fleet, seed: int) -> FleetTally:
    """Let a fleet drive runs under faults, and judge the runs.

    Args:
        folder: An empty one.
        fleet: The fleet.
        seed: Of the faults and their times.
    """
    dice, tally = random.Random(seed), FleetTally(fleets=1)
    server = OwnServer()
    (folder / "postgres").write_text(f"{new_schema()} {server.address}")
    try:
        with ExitStack() as processes:
            asyncio.run(_enqueue(folder, fleet))
            supervisor = _Supervisor(folder, fleet, server, processes, tally)
            for _ in range(fleet.workers):
                supervisor.add_worker()
            for fault in dice.sample(fleet.faults, len(fleet.faults)):
                time.sleep(dice.uniform(*PAUSES))
                supervisor.harm(fault, dice)
                supervisor.wake()
            end = time.monotonic() + MOST_SECONDS
            while len(asyncio.run(_over(folder))) < fleet.runs and time.monotonic() < end:
                time.sleep(0.2)
                supervisor.wake()
            supervisor.wake(all_of_them=True)
            supervisor.end()
        asyncio.run(_judge_all(folder, fleet, tally, supervisor.harms))
    finally:
        server.close()
    if said := (folder / "errors").read_text():
        tally.failures.append(said[-2000:])
    tally.failures = [f"seed {seed}: {failure}" for failure in tally.failures]
    return tally


async def _enqueue(folder: Path, fleet: Fleet) -> None:
    store = store_in(folder)
    flow = Rounds(store)
    for number in range(fleet.runs):
        await flow.enqueue(run_id=f"rounds-{number}", steps=fleet.steps)
    await store.aclose()


async def _over(folder: Path) -> set[str]:
    store = store_in(folder)
    found = await store.list_runs(status=["completed", "failed", "cancelled"], limit=10_000)
    await store.aclose()
    return {info.run_id for info in found}


async def _recorded(folder: Path) -> dict[str, int]:
    """Return the number of recorded bodies of each run with a live owner."""
    store = store_in(folder)
    found = await store.list_runs(status="running", limit=10_000)
    await store.aclose()
    return {info.run_id: max(0, info.seq - COMMITS_BEFORE) for info in found}


async def _judge_all(folder: Path, fleet: Fleet, tally: FleetTally, harms: list[_Harm]) -> None:
    store = store_in(folder)
    bodies = _bodies(folder)
    expected = [str(number) for number in range(fleet.steps, 0, -1)]
    for run_id in (f"rounds-{number}" for number in range(fleet.runs)):
        info = await store.info(run_id)
        if info is None or info.status != "completed":
            tally.failures.append(f"{run_id}: {'is not there' if info is None else f'is {info.status} {info.held}'}")
            continue
        tally.runs += 1
        if (recorded := effects_in(await store.replay(run_id))) != expected:
            tally.failures.append(f"{run_id}: recorded is {recorded}")
        if info.seq != COMMITS_BEFORE + fleet.steps + COMMITS_AFTER:
            tally.failures.append(f"{run_id}: there are {info.seq} commits")
        done = Counter(line.value[0] for line in bodies.get(run_id, ()))
        tally.bodies += done.total()
        tally.repeated += done.total() - len(done)
        if len(done) != fleet.steps:
            tally.failures.append(f"{run_id}: {len(done)} bodies were done")
    await store.aclose()
    woken = [line for harm in harms if harm.kind == "stop" for line in _begun_after_waking(bodies, harm)]
    everything = lines_of(folder / "ledger")
    stopped = {(harm.life, run_id) for harm in harms if harm.kind == "stop" for run_id in harm.driven}
    tally.lost += len({(line.life, line.run_id) for line in everything if line.kind == "lost"} - stopped)
    for harm in harms:
        tally.driven += len(harm.driven)
        tally.taken[harm.kind] += _taken(bodies, harm)
        later = [line for line in everything[harm.lines :] if line.kind == "body" and line not in woken]
        tally.failures += _recorded_bodies_done_again(later, harm, fleet)
    if tally.lost > fleet.slots:  # more than one worker without a core: the workers rob each other
        tally.failures.append(f"{tally.lost} runs were taken from workers that were not killed or stopped")
    if tally.repeated > tally.in_flight + BODIES_PER_LOST_RUN * tally.lost:
        tally.failures.append(
            f"{tally.repeated} bodies were repeated, with {tally.in_flight} in flight at faults, {tally.lost} runs lost"
        )


def _taken(bodies: dict[str, list[Line]], harm: _Harm) -> Iterator[float]:
    """Yield the seconds from a fault until each run is at work elsewhere."""
    for run_id in harm.driven:
        later = [line.value[1] for line in bodies[run_id] if line.value[1] > harm.at and line.life != harm.life]
        yield from (moment - harm.at for moment in later[:1])


def _begun_after_waking(bodies: dict[str, list[Line]], harm: _Harm) -> Iterator[Line]:
    """Yield the body of each run that a worker begins when it wakes up, before its first commit is refused."""
    for run_id in harm.driven:
        yield from [line for line in bodies[run_id] if line.life == harm.life and line.value[1] > harm.at][:1]


def _recorded_bodies_done_again(later: Sequence[Line], harm: _Harm, fleet: Fleet) -> Iterator[str]:
    for line in later:
        if line.value[0] > fleet.steps - harm.recorded.get(line.run_id, 0):
            yield f"{line.run_id}: worker {line.life} repeated body {line.value[0]}, which was recorded"


def soak_fleets(_: str, seeds: Sequence[int]) -> FleetTally:
    """Let a fleet work under faults for each seed; part of `make soak`."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    tally = FleetTally()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tally.add(drive_under_faults(Path(folder), FLEET, seed))
            except pytest.skip.Exception as reason:  # without a server the soak shows nothing, so it fails
                tally.failures.append(f"seed {seed}: {reason}")
    return tally


def main(folder: str, life: str, slots: str) -> None:
    """Run a worker, which begins when it is told to."""
    for name in ("batonflow", "psycopg"):  # of outages and lost runs
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.stdin.readline()
    asyncio.run(work(Path(folder), int(life), int(slots)))

"""Thousands of seeded interleavings, scripts of agents, crashes and kills of real processes; behind ``make soak``.

Every interleaving must keep the invariants of ``tests/promises/interleavings`` and repeat, from its seed, the very same
ticks. Every script of ``tests/agents/scripts`` must keep the rules of calls and results. Every agent that is
interrupted must give the answer of an undisturbed one. Every run of ``tests/promises/crash`` must come to the same end
wherever its processes end, be they simulated or real. Fleets of workers on a database must lose nothing and record
nothing twice. The tables go to ``docs/evidence/soak-results.md``.
"""

import argparse
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.agents.scripts.playing import Broken, play
from tests.agents.scripts.script import Script, draw
from tests.agents.scripts.sockets import play_over_sockets
from tests.agents.scripts.stage import Stage
from tests.promises.crash.fleets import FLEET, LEASE_SECONDS, FleetTally, soak_fleets
from tests.promises.crash.fuzzing import FuzzTally, soak_fuzz
from tests.promises.crash.guarded import GUARDED
from tests.promises.crash.killing import AT_A_TIME, KillTally, soak_kills
from tests.promises.crash.locking import LockTally, soak_locks
from tests.promises.crash.soaking import ALL as CRASHED
from tests.promises.crash.soaking import CrashTally, soak_crashes
from tests.promises.crash.stopping import StopTally, soak_stops
from tests.promises.interleavings.exploring import explore
from tests.promises.interleavings.workflows import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "evidence" / "soak-results.md"
BATCH = 100
CRASH_BATCH = 2
FUZZ_BATCH = 10
KILL_BATCH = 25
STOP_BATCH = 5


@dataclass(slots=True)
class Tally:
    """What a number of runs of one program gave."""

    runs: int = 0
    ticks: int = 0
    restores: int = 0
    orders: set[bytes] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.ticks += other.ticks
        self.restores += other.restores
        self.orders |= other.orders
        self.failures += other.failures


@dataclass(slots=True)
class ScriptTally:
    """What a number of scripts of agents gave."""

    scripts: int = 0
    runs: int = 0
    cancelled: int = 0
    requests: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: "ScriptTally") -> None:
        self.scripts += other.scripts
        self.runs += other.runs
        self.cancelled += other.cancelled
        self.requests += other.requests
        self.failures += other.failures


SCRIPTS: Mapping[str, Callable[[Script], Stage]] = {
    "requests made by the adapters": play,
    "over sockets": play_over_sockets,
}


def soak_scripts(name: str, seeds: Sequence[int]) -> ScriptTally:
    """Play the script of each seed in one of the ways, and keep what went wrong."""
    tally = ScriptTally()
    for seed in seeds:
        tally.scripts += 1
        try:
            stage = SCRIPTS[name](draw(seed))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            told = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error))
            tally.failures.append(told)
            continue
        tally.runs += len(stage.runs)
        tally.cancelled += sum(run.cancelled for run in stage.runs)
        tally.requests += sum(len(run.asked) for run in stage.runs)
    return tally


def soak(name: str, seeds: Sequence[int]) -> Tally:
    """Run a program under each seed, twice, and keep what went wrong."""
    tally = Tally()
    for seed in seeds:
        tally.runs += 1
        try:
            found = explore(PROGRAMS[name], seed)
            again = explore(PROGRAMS[name], seed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            tally.failures.append(f"{name}, seed {seed}\n{''.join(traceback.format_exception(error))}")
            continue
        if found.ticks != again.ticks:
            tally.failures.append(f"{name}, seed {seed}: the second run made other ticks than the first")
        tally.ticks += len(found.ticks)
        tally.restores += found.result
        tally.orders.add(sha256("\n".join(found.ticks).encode()).digest())
    return tally


KINDS: dict[str, tuple[type[Any], Callable[[str, Sequence[int]], Any], int]] = {
    "interleavings": (Tally, soak, BATCH),
    "scripts": (ScriptTally, soak_scripts, BATCH),
    "crashes": (CrashTally, soak_crashes, CRASH_BATCH),
    "fuzz": (FuzzTally, soak_fuzz, FUZZ_BATCH),
    "kills": (KillTally, soak_kills, KILL_BATCH),
    "stops": (StopTally, soak_stops, STOP_BATCH),
    "locks": (LockTally, soak_locks, 1),
    "fleets": (FleetTally, soak_fleets, 1),
}
"""How each is counted and done, and how many seeds at a time."""


FUZZ = "fuzz: agents that are interrupted"
FLEETS = "fleets: on PostgreSQL"
PROCESSES = ("kills: at work", "stops: longer than the lease", "locks: 30 s")


def _kind(line: str) -> str:
    """Of which table a line is."""
    return line.partition(": ")[0]


def _name(line: str) -> str:
    return line.partition(": ")[2]


def _run_all(seeds: Mapping[str, int]) -> dict[str, Any]:
    """The tallies of all lines, each under so many seeds."""
    tallies: dict[str, Any] = {line: KINDS[_kind(line)][0]() for line in seeds}
    with ProcessPoolExecutor(2) as pool:
        batches: dict[Any, str] = {}
        for line, count in seeds.items():
            _, play_all, size = KINDS[_kind(line)]
            for first in range(0, count, size):
                batches[pool.submit(play_all, _name(line), range(first, min(first + size, count)))] = line
        for done, batch in enumerate(as_completed(batches), 1):
            tallies[batches[batch]].add(batch.result())
            failed = sum(len(tally.failures) for tally in tallies.values())
            print(f"\r{done} of {len(batches)} batches, {failed} failures ", end="", flush=True)
    print()
    return tallies


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _taken(seconds: Sequence[float]) -> str:
    """The half and the 95 % of times, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    half, most = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
    return f"{half * 1000:.0f} ms | {most * 1000:.0f} ms"


def _processes(tallies: dict[str, Any]) -> str:
    """The section about real processes."""
    kills, stops, locks = (tallies[line] for line in PROCESSES)
    waited = ", ".join(f"{seconds:.1f} s" for seconds in locks.waited)
    return f"""## Kills of real processes

A process works on {AT_A_TIME} runs at a time in one SQLite file (the programs above and a team with approvals). It is
killed by SIGKILL 5 to 400 ms after it reports work. The next process takes up its runs, and begins more. Every run
must end with its result and with the records of an undisturbed run. Recorded work is not done again, and work in
flight is done again at most once for each kill. A tool with an unknown outcome is not called again without asking. In
other processes a lease of 0.6 s runs out while they are stopped by SIGSTOP. Another process takes their runs over and
ends them. After SIGCONT every commit of the first must be refused, and its handlers raise `RunLostError`. Two times
are measured. The first is from the start of a recovery until a run streams again. The second is from the end of a
lease until the run is claimed.

| what | times | runs | things done outside | of them in flight, done again | taken over: half | 95 % | failures |
|---|---|---|---|---|---|---|---|
| killed at work | {kills.kills} | {kills.runs} | {kills.effects} | {kills.repeated} | {_taken(kills.taken)} \
| {len(kills.failures)} |
| stopped for too long | {stops.stops} | {stops.runs}, {stops.refused} refused | | | {_taken(stops.taken)} \
| {len(stops.failures)} |

When another program held the database for 30 s, the run in it waited and ended after {waited}; \
{len(locks.failures)} failures.
"""


def _fleets(fleets: FleetTally) -> str:
    """The section about fleets on a database."""
    crashes, kills, stops = (fleets.faults[kind] for kind in ("crash", "kill", "stop"))
    rows = "\n".join(
        f"| {name} | {fleets.faults[kind]} | {len(fleets.taken[kind])} | {_taken(fleets.taken[kind])} |"
        for kind, name in (("kill", "killed"), ("stop", "stopped"))
    )
    return f"""## Fleets on PostgreSQL

A fleet has {FLEET.workers} workers with {FLEET.slots} slots each, and {FLEET.runs} runs of {FLEET.steps} bodies.
Workers are killed by SIGKILL, or stopped by SIGSTOP for longer than their lease. The server of the database is ended
as by `pg_ctl -m immediate stop`, and started again. The next fault comes when the runs are written again. Every run
must end, with each of its bodies recorded once. A recorded body must not be done again, and no more bodies may be
repeated than had begun at a fault without a record. A stopped worker that wakes up begins one more body of each of its
runs, until its first commit is refused. A worker without a core for the {LEASE_SECONDS:g} s of its lease loses its runs
in the same way. More than {FLEET.slots} such runs in a fleet are a failure.

In the first seconds of a new server the runs of an owner that has not come back stay with it. So a stop just before a
crash is noticed later than the end of the lease.

| runs | bodies | kills | stops | crashes of the database | runs driven then | runs lost without a fault | repeated \
| failures |
|---|---|---|---|---|---|---|---|---|
| {fleets.runs} | {fleets.bodies} | {kills} | {stops} | {crashes} | {fleets.driven} | {fleets.lost} \
| {fleets.repeated} | {len(fleets.failures)} |

| worker | times | runs taken over | from the fault until a run is at work elsewhere: half | 95 % |
|---|---|---|---|---|
{rows}
"""


def _fuzz(fuzz: FuzzTally) -> str:
    """The section about agents that are interrupted."""
    return f"""## Agents that are interrupted

A seed draws an agent or a team, and turns with calls of synchronous and asynchronous tools. Some tools ask for
approval or edit the state. The run is interrupted at random moments. It is cancelled and taken up from its snapshot,
or interrupted and taken up from its store by a new agent. Approvals are answered through `approvals()` or `inputs()`.
Each run must end with the answer of an undisturbed one.

| runs | interruptions | tool calls | approvals | hung handlers | wrong results |
|---|---|---|---|---|---|
| {fuzz.runs} | {fuzz.interruptions} | {fuzz.calls} | {fuzz.answers} | {fuzz.hung} | {fuzz.wrong} |
"""


def _page(tallies: dict[str, Any], seeds: int, seconds: float, commit: str) -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("pydantic", "tenacity"))
    rows = "\n".join(
        f"| {_name(line)} | {tally.runs} | {len(tally.orders)} | {tally.restores} | {tally.ticks} "
        f"| {len(tally.failures)} |"
        for line, tally in tallies.items()
        if _kind(line) == "interleavings"
    )
    scripts = "\n".join(
        f"| {_name(line)} | {tally.scripts} | {tally.runs} | {tally.cancelled} | {tally.requests} "
        f"| {len(tally.failures)} |"
        for line, tally in tallies.items()
        if _kind(line) == "scripts"
    )
    crashes = {_name(line): tally for line, tally in tallies.items() if _kind(line) == "crashes"}
    crash_rows = "\n".join(
        f"| {name} | {tally.seeds} | {tally.points} | {tally.crashes} | {tally.doubles} | {len(tally.failures)} |"
        for name, tally in crashes.items()
    )
    crashed = sum(tally.crashes for tally in crashes.values())
    doubles = sum(tally.doubles for tally in crashes.values())
    failed = sum(len(tally.failures) for tally in crashes.values())
    return f"""# Seeded interleavings, scripts, crashes and kills

Written by `make soak`.

## Interleavings

Each workflow of `tests/promises/interleavings/workflows.py` runs under {seeds} seeds, each twice. A seed decides the
order of concurrent steps and their pauses. For two of five seeds it also decides the moments at which the run is
saved, broken off and restored. In every order each delivery is handled exactly once, counted in the state and on the
stream. The result is the same, and there are never more steps at work than workers. No task, timer, queue or wait is
left. The second run of a seed makes the same ticks as the first.

| workflow | seeds | different orders | restores | ticks | failures |
|---|---|---|---|---|---|
{rows}

## Scripts of agents

A seed of `tests/agents/scripts` draws one agent or a team of mixed kinds, and two or three runs on one context. The
runs have good, unknown, failing and slow tools, and arguments that do not fit. Approvals are given, refused, changed
and expire. There are handoffs, direct results, repeated ids of calls, empty answers and failures of the vendor. Some
runs are cancelled and taken up again. Each request to a model is judged by the rules of the vendors' APIs: one result
for each call, in order, directly behind its message. Each call has one result on the stream, and a refused call did
not run. No run hangs, and no task is left.

| how | scripts | runs | of them cancelled | requests | failures |
|---|---|---|---|---|---|
{scripts}

## Crashes

Each program of `tests/promises/crash` runs under seeds that decide the order of its steps. Its process ends at each
turn of the event loop, and before and after each group of commits is written. In some cases the process that takes
the run up ends too. The run must come to its end in the next process with the same result and the same records. No
record is lost, and committed work is not done or recorded again. An answer is used once, and work in flight is
repeated at most once for each crash.

| program | seeds | moments of a run, at most | crashes | runs crashed twice | failures |
|---|---|---|---|---|---|
{crash_rows}

In all {crashed:,} crashes, {doubles:,} of them double, {failed} failures.

{_fuzz(tallies[FUZZ])}
{_processes(tallies)}
{_fleets(tallies[FLEETS])}
Commit {commit}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds:.0f} s in two processes;
Python {platform.python_version()}, {libraries}, {platform.system()} {platform.machine()}.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds for each workflow (default 2000)")
    parser.add_argument("--scripts", type=int, default=5000, help="how many scripts of agents (default 5000)")
    parser.add_argument("--over-sockets", type=int, default=200, help="how many of them over sockets too (default 200)")
    parser.add_argument(
        "--crash-seeds", type=int, default=60, help="how many seeds for each crashed program (default 60)"
    )
    parser.add_argument(
        "--guarded-seeds", type=int, default=500, help="how many for the agent with middlewares (default 500)"
    )
    parser.add_argument("--fuzz", type=int, default=500, help="how many interrupted runs of agents (default 500)")
    parser.add_argument("--kills", type=int, default=300, help="how many processes to kill (default 300)")
    parser.add_argument("--stops", type=int, default=50, help="how many processes to stop (default 50)")
    parser.add_argument("--fleets", type=int, default=8, help="how many fleets on PostgreSQL (default 8)")
    parser.add_argument(
        "--only", help="one line of a table, as in 'crashes: team'; the results page is not written then"
    )
    parser.add_argument("--allow-dirty", action="store_true", help="run although the tree has uncommitted changes")
    options = parser.parse_args(arguments)
    dirty = bool(_git("status", "--porcelain"))
    if dirty and not options.allow_dirty:
        print("The tree has uncommitted changes: commit them, or give --allow-dirty", file=sys.stderr)
        return 2
    started = time.monotonic()
    counts = {f"interleavings: {name}": options.seeds for name in PROGRAMS}
    for name, count in zip(SCRIPTS, (options.scripts, options.over_sockets), strict=True):
        counts[f"scripts: {name}"] = count
    for name, program in CRASHED.items():
        counts[f"crashes: {name}"] = options.crash_seeds // 4 if program.real_time else options.crash_seeds
    counts[f"crashes: {GUARDED.name}"] = options.guarded_seeds
    counts[FUZZ] = options.fuzz
    counts.update(zip(PROCESSES, (options.kills, options.stops, 1), strict=True))
    counts[FLEETS] = options.fleets
    if options.only and options.only not in counts:
        parser.error(f"--only is one of: {', '.join(counts)}")
    tallies = _run_all({options.only: counts[options.only]} if options.only else counts)
    seconds = time.monotonic() - started
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    for failure in failures[:10]:
        print(failure, file=sys.stderr)
    commit = _git("rev-parse", "--short=12", "HEAD") + (" with uncommitted changes" if dirty else "")
    if options.only:
        print(_fleets(tallies[FLEETS]) if options.only == FLEETS else tallies[options.only])
    else:
        page = _page(tallies, options.seeds, seconds, commit)
        print(page)
        RESULTS.write_text(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

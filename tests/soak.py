"""Two thousand seeded interleavings of each of six workflows; the script behind ``make soak``.

Every run must keep the invariants of ``tests/interleavings`` and repeat, from its seed, the very same ticks. The table
goes to ``docs/soak-results.md``.
"""

import argparse
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from tests.interleavings.exploring import explore
from tests.interleavings.workflows import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "soak-results.md"
BATCH = 100


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


def _run_all(names: list[str], seeds: int) -> dict[str, Tally]:
    tallies = {name: Tally() for name in names}
    with ProcessPoolExecutor(2) as pool:
        batches = {
            pool.submit(soak, name, range(first, min(first + BATCH, seeds))): name
            for name in names
            for first in range(0, seeds, BATCH)
        }
        for done in as_completed(batches):
            tally = tallies[batches[done]]
            tally.add(done.result())
            runs = sum(t.runs for t in tallies.values())
            failed = sum(len(t.failures) for t in tallies.values())
            print(f"\r{runs} of {seeds * len(names)} runs, {failed} failures ", end="", flush=True)
    print()
    return tallies


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _page(tallies: dict[str, Tally], seeds: int, seconds: float, commit: str) -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("pydantic", "tenacity"))
    rows = "\n".join(
        f"| {name} | {tally.runs} | {len(tally.orders)} | {tally.restores} | {tally.ticks} | {len(tally.failures)} |"
        for name, tally in tallies.items()
    )
    return f"""# Seeded interleavings

Written by `make soak`: each workflow of `tests/interleavings/workflows.py` runs under {seeds} seeds, each twice. A seed
decides the order of concurrent steps, their pauses, and for two of five seeds the moments at which the run is saved,
broken off and restored. In every order each delivery is handled exactly once (counted in the state and on the stream),
the result is the same, no more steps work at a time than there are workers, and no task, timer, queue or wait is left;
the second run of a seed makes the same ticks as the first.

| workflow | seeds | different orders | restores | ticks | failures |
|---|---|---|---|---|---|
{rows}

Commit {commit}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds:.0f} s in two processes;
Python {platform.python_version()}, {libraries}, {platform.system()} {platform.machine()}.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds for each workflow (default 2000)")
    parser.add_argument("--only", choices=PROGRAMS, help="one workflow; the results page is not written then")
    parser.add_argument("--allow-dirty", action="store_true", help="run although the tree has uncommitted changes")
    options = parser.parse_args(arguments)
    dirty = bool(_git("status", "--porcelain"))
    if dirty and not options.allow_dirty:
        print("The tree has uncommitted changes: commit them, or give --allow-dirty", file=sys.stderr)
        return 2
    started = time.monotonic()
    tallies = _run_all([options.only] if options.only else list(PROGRAMS), options.seeds)
    seconds = time.monotonic() - started
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    for failure in failures[:10]:
        print(failure, file=sys.stderr)
    commit = _git("rev-parse", "--short=12", "HEAD") + (" with uncommitted changes" if dirty else "")
    page = _page(tallies, options.seeds, seconds, commit)
    print(page)
    if not options.only:
        RESULTS.write_text(page)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

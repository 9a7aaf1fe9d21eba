"""Many more crashes than a test run has time for; part of `make soak`."""

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.promises.crash.guarded import GUARDED
from tests.promises.crash.matrix import crashed, moments, pairs, reference
from tests.promises.crash.programs import PROGRAMS
from tests.promises.crash.team import TEAM

__all__ = ["ALL", "CrashTally", "soak_crashes"]

ALL = {program.name: program for program in [*PROGRAMS, TEAM, GUARDED]}
PAIRS_PER_SEED = 10
EVERY = {TEAM.name: 2, GUARDED.name: 4}
"""Of programs that take long or get many seeds, one in so many moments is tried for each seed."""


@dataclass(slots=True)
class CrashTally:
    """What a number of crashes of one program gave.

    Attributes:
        seeds: How many orders of its steps were tried.
        points: The most moments of one order.
        crashes: Processes that ended before their run.
        doubles: Runs that were crashed twice.
        failures: What went wrong.
    """

    seeds: int = 0
    points: int = 0
    crashes: int = 0
    doubles: int = 0
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: "CrashTally") -> None:
        """Count another part of the same."""
        self.seeds += other.seeds
        self.points = max(self.points, other.points)
        self.crashes += other.crashes
        self.doubles += other.doubles
        self.failures += other.failures


def soak_crashes(name: str, seeds: Sequence[int]) -> CrashTally:
    """Crash a program at every moment of the order that each seed gives, and at pairs of moments."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    program, tally = ALL[name], CrashTally()
    for seed in seeds:
        tally.seeds += 1
        found = reference(program, seed)
        every = list(moments(found))
        tally.points = max(tally.points, len(every))
        apart = EVERY.get(name, 1)
        tried = [[moment] for moment in every[seed % apart :: apart]]
        tried += pairs(found, seed, PAIRS_PER_SEED // apart)
        for at in tried:
            try:
                outcome = crashed(program, found, at, seed)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
                tally.failures.append(f"{name}, seed {seed}, {at}\n{''.join(traceback.format_exception(error))}")
                continue
            tally.crashes += outcome.kills
            tally.doubles += outcome.kills == 2
            if outcome.faults:
                tally.failures.append(f"{name}, seed {seed}, {at}: {'; '.join(outcome.faults)}")
    return tally

"""A small fleet of real processes under faults of workers and of the database; ``make soak`` drives 2,000 runs."""

from pathlib import Path

import pytest

from tests.promises.crash.fleets import Fleet, drive_under_faults

SMALL = Fleet(runs=20, steps=12, workers=2, slots=5, faults=("kill", "crash"))

pytestmark = [pytest.mark.external("postgresql"), pytest.mark.timeout(240)]


def test_nothing_is_lost_or_done_twice_when_a_worker_and_the_database_end(tmp_path: Path) -> None:
    tally = drive_under_faults(tmp_path, SMALL, seed=1)
    assert tally.failures == []
    assert (tally.runs, tally.faults) == (20, {"kill": 1, "crash": 1})
    assert tally.repeated <= tally.in_flight
    assert tally.driven <= SMALL.slots
    assert tally.taken["kill"]

"""Real processes on one store: killed again and again, stopped for too long, or two at once on one run.

``make soak`` kills and stops many more.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.crash.killing import AT_A_TIME, kill_again_and_again
from tests.promises.crash.matrix import reference
from tests.promises.crash.outside import Process, lines_of
from tests.promises.crash.stopping import UNDISTURBED, StopTally, stop_and_take_over
from tests.promises.crash.stores import KINDS, kept_in

KILLS = 6


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that are lost have nothing to say."""
    caplog.set_level(logging.CRITICAL, logger="batonflow")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Iterator[Path]:
    """A folder whose processes keep their runs in a store of each kind."""
    with kept_in(tmp_path, kind):
        yield tmp_path


@pytest.mark.timeout(240)
def test_what_processes_were_doing_when_they_were_killed_is_finished_by_others(folder: Path) -> None:
    tally = kill_again_and_again(folder, KILLS, seed=0)
    assert tally.failures == []
    assert tally.kills == KILLS
    assert tally.runs >= AT_A_TIME
    assert tally.taken


@pytest.mark.timeout(240)
def test_a_process_that_was_stopped_for_too_long_is_refused_everything(tmp_path: Path, kind: str) -> None:
    tally = StopTally()
    for seed in range(2):
        (tmp_path / str(seed)).mkdir()
        with kept_in(tmp_path / str(seed), kind):
            tally.add(stop_and_take_over(tmp_path / str(seed), seed))
    assert tally.failures == []
    assert tally.runs == tally.refused == 8


@pytest.mark.timeout(240)
def test_of_two_processes_that_run_the_same_only_one_does(folder: Path) -> None:
    undisturbed = reference(UNDISTURBED["chain"], 0)
    began = time.time()
    refused = 0
    with (
        Process("tests.promises.crash.racing", folder, 0) as one,
        Process("tests.promises.crash.racing", folder, 1) as other,
    ):
        owners = [one.hear(), other.hear()]
        for number in range(10):
            pair = (one, other) if number % 2 else (other, one)
            for process in pair:
                process.tell(f"same-{number}")
            outcomes = [json.loads(process.hear()) for process in (one, other)]
            lines = [line for line in lines_of(folder / "ledger") if line.run_id == f"same-{number}"]
            drivers = {line.life for line in lines}
            assert len(drivers) == 1
            assert Counter(line.value for line in lines) == undisturbed.effects
            (driver,) = drivers
            assert outcomes[driver] == {"result": UNDISTURBED["chain"].expected}
            second = outcomes[1 - driver]
            if second != outcomes[driver]:
                assert second["owner"] == owners[driver]
                assert began - 1 <= second["since"] <= time.time() + 1
                refused += 1
    assert refused > 0
    assert (folder / "errors").read_text() == ""

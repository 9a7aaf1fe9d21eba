"""Real processes on one file: killed again and again, stopped for too long, or two at once on one run."""

import logging
from pathlib import Path

import pytest

from tests.crash.killing import AT_A_TIME, kill_again_and_again
from tests.crash.stopping import StopTally, stop_and_take_over


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that are lost have nothing to say."""
    caplog.set_level(logging.CRITICAL, logger="batonflow")


def test_what_processes_were_doing_when_they_were_killed_is_finished_by_others(tmp_path: Path) -> None:
    tally = kill_again_and_again(tmp_path, 12, seed=0)
    assert tally.failures == []
    assert tally.kills == 12
    assert tally.runs >= AT_A_TIME
    assert tally.taken


def test_a_process_that_was_stopped_for_too_long_is_refused_everything(tmp_path: Path) -> None:
    tally = StopTally()
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        tally.add(stop_and_take_over(tmp_path / str(seed), seed))
    assert tally.failures == []
    assert tally.runs == tally.refused == 12

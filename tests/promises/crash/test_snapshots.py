"""The same crashes when the whole state is written with every commit, so that all runs go on from snapshots."""

import itertools
import logging
from collections.abc import Iterator

import pytest

from batonflow.durable import lease as drive
from tests.promises.crash.matrix import crashed, forked, moments, reference
from tests.promises.crash.programs import PROGRAMS, Program
from tests.promises.crash.team import TEAM


@pytest.fixture(autouse=True)
def snapshots(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, logger="batonflow")
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", 1)
    return


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_crash_at_any_moment(program: Program) -> None:
    found = reference(program, 0)
    for moment in moments(found):
        assert crashed(program, found, [moment], 0).faults == [], f"{program.name}, {moment}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_branch_off_after_any_commit(program: Program) -> None:
    assert list(forked(program, 0)) == []


def test_a_team_with_a_sandbox_and_approvals() -> None:
    found = reference(TEAM, 0)
    for moment in itertools.islice(moments(found), 0, None, 9):
        assert crashed(TEAM, found, [moment], 0).faults == [], moment

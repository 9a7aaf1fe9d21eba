"""The crashes find what they are there for: each deliberate bug, planted alone, makes a program go wrong somewhere."""

import logging

import pytest

from tests.promises.crash.bugs import BUGS, Bug
from tests.promises.crash.matrix import crashed, forked, moments, pairs, reference
from tests.promises.crash.programs import PROGRAMS, Program
from tests.promises.crash.team import TEAM

ALL = {program.name: program for program in [*PROGRAMS, TEAM]}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="batonflow")
    program = ALL[bug.program]
    found = reference(program, 0)
    bug.plant(monkeypatch)
    tried = [*([moment] for moment in moments(found)), *pairs(found, 0, 20)]
    noticed = any(_goes_wrong(program, found, at) for at in tried) or _branches_go_wrong(program)
    assert noticed, f"nobody noticed: {bug.name}"


def _branches_go_wrong(program: Program) -> bool:
    try:
        return any(True for _ in forked(program, 0))
    except Exception:  # noqa: BLE001 - however it shows
        return True


def _goes_wrong(program: object, found: object, at: list[object]) -> bool:
    try:
        return bool(crashed(program, found, at, 0).faults)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - however it shows
        return True

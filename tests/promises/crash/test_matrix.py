"""Wherever a process ends, the run goes on in the next one as if nothing had happened; `make soak` tries many more."""

import itertools
import logging

import pytest

from tests.promises.crash.guarded import GUARDED
from tests.promises.crash.matrix import crashed, forked, histories, moments, pairs, reference
from tests.promises.crash.programs import PROGRAMS, Program
from tests.promises.crash.team import TEAM
from tests.promises.crash.world import MortalStore, WholeStore

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak(only=True)) for seed in (1, 2))]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Dead processes have nothing to say."""
    caplog.set_level(logging.CRITICAL, logger="batonflow")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", [*PROGRAMS, GUARDED], ids=lambda program: program.name)
def test_a_crash_at_any_moment(program: Program, seed: int) -> None:
    found = reference(program, seed)
    for moment in moments(found):
        assert crashed(program, found, [moment], seed).faults == [], f"{program.name}, seed {seed}, {moment}"


@pytest.mark.parametrize("program", [*PROGRAMS, GUARDED], ids=lambda program: program.name)
def test_a_crash_while_it_recovers_from_one(program: Program) -> None:
    found = reference(program, 0)
    for number, pair in enumerate(pairs(found, 0, 25)):
        assert crashed(program, found, pair, number).faults == [], f"{program.name}, {pair}"


@pytest.mark.parametrize("program", [*PROGRAMS, TEAM, GUARDED], ids=lambda program: program.name)
def test_a_branch_off_after_any_commit(program: Program) -> None:
    """Stricter than a crash: commits that are written together can be told apart."""
    assert list(forked(program, 0)) == []


@pytest.mark.soak
@pytest.mark.parametrize("program", [*PROGRAMS, GUARDED], ids=lambda program: program.name)
def test_records_with_parts_say_the_same_as_whole_ones(program: Program, soaks: bool) -> None:
    found = reference(program, 0)
    for number, moment in enumerate(itertools.islice(moments(found), 0, None, 5 if soaks else 29)):
        lean, whole = histories(program, moment, number)
        assert lean == whole, f"{program.name}, {moment}"


@pytest.mark.soak
@pytest.mark.parametrize("kinds", [(MortalStore, WholeStore), (WholeStore, MortalStore)], ids=["whole", "parts"])
@pytest.mark.parametrize("program", [*PROGRAMS, TEAM, GUARDED], ids=lambda program: program.name)
def test_another_kind_of_store_takes_up_the_run(
    program: Program, kinds: tuple[type[MortalStore], ...], soaks: bool
) -> None:
    found = reference(program, 0)
    for number, moment in enumerate(itertools.islice(moments(found), 0, None, 3 if soaks else 23)):
        assert crashed(program, found, [moment], number, kinds).faults == [], f"{program.name}, {moment}"


@pytest.mark.soak
def test_a_team_with_a_sandbox_and_approvals(soaks: bool) -> None:
    found = reference(TEAM, 0)
    for moment in itertools.islice(moments(found), 0, None, 5 if soaks else 11):
        assert crashed(TEAM, found, [moment], 0).faults == [], moment

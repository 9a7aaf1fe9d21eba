"""Every example runs offline and prints what stands in `expected/`; nothing stays behind in the folder it ran in.

Some keep their runs in a file there, as they say; that is all that they leave.
"""

import os
import re
from pathlib import Path

import pytest

from tests.promises.programs.running import ROOT, Forking, run_program, without_records

EXPECTED = Path(__file__).with_name("expected")
EXAMPLES = [*sorted(ROOT.glob("examples/[0-9]*.py")), ROOT / "examples" / "demo.py"]
KEPT = {"19_team_with_approval": ("runs.db",), "25_served": ("runs.db", "harbour.log"), "demo": (".demo",)}
"""What the names of files begin with that an example leaves behind on purpose."""
KILLED = ROOT / "examples" / "survives_kill.py"
FLEET = ROOT / "examples" / "fleet.py"
PACKAGES = {"26_evaluate": "pydantic_evals"}
"""Packages of the tests that the package itself does not need."""
NEED_MORE = {"local_model", "demo_team", "demo_terminal", "inventory", "models", "tides"}
"""The first needs a model on this machine (`make test-local`), the others are what examples share."""


def test_every_example_is_run() -> None:
    names = {path.stem for path in ROOT.glob("examples/*.py")}
    assert names == {path.stem for path in EXAMPLES} | NEED_MORE | {KILLED.stem, FLEET.stem}
    assert {path.stem for path in [*EXAMPLES, KILLED, FLEET]} == {path.stem for path in EXPECTED.glob("*.txt")}


def settled(output: str) -> str:
    """Return the output of an example without what differs each time: paths, and the ids of runs and processes."""
    output = re.sub(r"^  \S+/batonflow serve \S+/", "  batonflow serve ", output, flags=re.MULTILINE)
    return re.sub(r"(#run=|process )\w*\d\w*", r"\1...", output)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_example(example: Path, tmp_path: Path, beside: Path, programs: Forking) -> None:
    if example.stem in PACKAGES:
        pytest.importorskip(PACKAGES[example.stem], reason="requirements/test.txt has it: `make test` installs it")
    code, output, errors = await programs.run_program(example, tmp_path, beside)
    assert (code, without_records(errors)) == (0, "")
    assert settled(output) == (EXPECTED / f"{example.stem}.txt").read_text()
    left = [entry.name for entry in os.scandir(tmp_path)]
    assert all(name.startswith(KEPT[example.stem]) for name in left) if example.stem in KEPT else left == []


async def test_a_program_that_is_killed_ends_as_if_it_were_not(tmp_path: Path) -> None:
    code, output, errors = await run_program(KILLED, tmp_path, "3")
    assert code == 0
    assert output == (EXPECTED / f"{KILLED.stem}.txt").read_text()
    assert re.fullmatch(r"killed [0-3] times; the world saw: published 'Tides'\n", errors)
    assert list(os.scandir(tmp_path)) == []


async def test_a_fleet_kills_its_workers(tmp_path: Path) -> None:
    code, output, errors = await run_program(FLEET, tmp_path)
    assert code == 0
    assert output == (EXPECTED / f"{FLEET.stem}.txt").read_text()
    assert re.search(r"runs are kept in a SQLite file\n(killed worker .*\n)+\d killed in ", errors)
    assert list(os.scandir(tmp_path)) == []

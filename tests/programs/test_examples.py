"""Every example runs offline and prints what stands in `expected/`; nothing stays behind in the folder it ran in."""

import os
from pathlib import Path

import pytest

from tests.programs.running import ROOT, run_program

EXPECTED = Path(__file__).with_name("expected")
EXAMPLES = [*sorted(ROOT.glob("examples/[0-9]*.py")), ROOT / "examples" / "demo.py"]
NEED_MORE = {"local_model", "inventory", "models", "tides"}
"""The first needs a model on this machine (`make test-local`), the others are what examples share."""


def test_every_example_is_run() -> None:
    names = {path.stem for path in ROOT.glob("examples/*.py")}
    assert names == {path.stem for path in EXAMPLES} | NEED_MORE
    assert {path.stem for path in EXAMPLES} == {path.stem for path in EXPECTED.glob("*.txt")}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_example(example: Path, tmp_path: Path) -> None:
    code, output, errors = await run_program(example, tmp_path)
    assert (code, errors) == (0, "")
    assert output == (EXPECTED / f"{example.stem}.txt").read_text()
    assert [entry.name for entry in os.scandir(tmp_path)] == []

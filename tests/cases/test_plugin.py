"""The plugin for pytest, in processes of their own."""

import asyncio
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cases.runs import agent_of, saved
from tests.cli.projects import ROOT, environment

PLUGIN = "batonflow.cases.pytest_plugin"

INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"

TESTS = """
import pytest
from tests.cases.runs import agent_of


@pytest.mark.cases("cases")
def test_it_answers(case):
    assert "metres" in str(case.replay_sync(agent_of()))


@pytest.mark.cases("cases")
async def test_it_is_brief(case):
    await case.replay(agent_of(prompt="Be brief."))


def test_without_cases():
    pass
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    """The output of pytest in a folder."""
    (folder / "pytest.ini").write_text(INI)
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-p", PLUGIN, "-c", "pytest.ini"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder, env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(saved(agent_of(), tmp_path / "cases", user_msg="How deep?"))
    (tmp_path / "cases" / "run-1.json").rename(tmp_path / "cases" / "emden.json")
    (tmp_path / "test_agent.py").write_text(TESTS)
    return tmp_path


def test_a_test_runs_for_each_case_and_shows_the_first_difference(folder: Path) -> None:
    printed = run_pytest(folder, "--strict-markers", "-vv")
    assert "test_it_answers[emden] PASSED" in printed
    assert "test_it_is_brief[emden] FAILED" in printed
    assert "CaseDifferenceError: case emden: call 1 of 2 (agent Agent) differs in message 1 (system)\n" in printed
    assert re.search(r"^E +-You know harbours\.\nE +\+Be brief\.$", printed, re.MULTILINE)
    assert "replaying.py:" not in printed
    assert "2 passed" in printed


def test_live_asks_the_model(folder: Path) -> None:
    printed = run_pytest(folder, "--live")
    assert "3 passed" in printed


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ('@pytest.mark.cases("nowhere")\ndef test_x(case): pass', "there are no cases in"),
        ('@pytest.mark.cases("cases")\ndef test_x(): pass', "it takes an argument `case`"),
        ("@pytest.mark.cases\ndef test_x(case): pass", "the mark `cases` takes folders"),
    ],
)
def test_mistakes_are_told(folder: Path, test: str, told: str) -> None:
    (folder / "test_agent.py").write_text(f"import pytest\n\n\n{test}\n")
    assert told in run_pytest(folder)


def test_nothing_is_loaded_without_a_mark(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import sys\n\n\ndef test_x():\n    assert {name for name in sys.modules if name.split('.')[0] == 'batonflow'} "
        "<= {'batonflow', 'batonflow._moved', 'batonflow.cases', 'batonflow.cases.pytest_plugin'}\n"
        "    assert 'pydantic' not in sys.modules\n"
    )
    assert "1 passed" in run_pytest(tmp_path)


def test_pytest_finds_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"batonflow": PLUGIN}

"""A project to run the command line on."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batonflow.cli import main
from tests.cli.projects import FLOWS, TEAM

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with flows.py and team.py in it."""
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs the command line in this process, as if it stood in the project's folder."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BATONFLOW_STORE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    yield run
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]

"""Which object a command line names."""

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_a_module_and_a_file_are_the_same(here: Cli) -> None:
    assert here("run", "flows:greet")[1] == here("run", "flows.py:greet")[1] == "hello nobody\n"


def test_functions_and_classes_are_called(here: Cli) -> None:
    assert here("run", "flows.py:make")[1] == "hello nobody\n"
    assert here("run", "flows.py:Greet")[1] == "hello nobody\n"


def test_the_only_one_need_not_be_named(here: Cli) -> None:
    Path("single.py").write_text("from flows import make\nflow = make()\nsame = flow\n")
    assert here("run", "single.py")[1] == "hello nobody\n"
    Path("declared.py").write_text(
        "from batonflow import *\nclass One(Workflow):\n"
        "    @step\n    async def one(self, ev: StartEvent) -> StopEvent:\n"
        "        return StopEvent(result=1)\n"
    )
    assert here("run", "declared.py")[1] == "1\n"


def test_a_file_in_a_package_has_its_name_there(here: Cli) -> None:
    Path("pkg").mkdir()
    Path("pkg/__init__.py").touch()
    Path("pkg/inner.py").write_text("from .other import make\nflow = make()\n")
    Path("pkg/other.py").write_text("from flows import make\n")
    assert here("run", "pkg/inner.py:flow")[1] == "hello nobody\n"
    assert here("run", "pkg.inner:flow")[1] == "hello nobody\n"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("flows.py", 2, "flows.py has several: name one; there is greet, fail, ask, around, slow"),
        ("flows.py:gret", 2, "flows.py has no 'gret'; there is greet, fail, ask, around, slow"),
        ("flows.py:number", 2, "flows.py:number is a int, not a workflow, agent, team or server; there is greet, fail"),
        ("flows.py:later", 2, "flows.py:later is an async function: name one that returns the workflow at once"),
        ("flows.py:broken", 1, "broken() of flows.py:broken raised OSError: no disk; --debug shows the traceback"),
        ("flow.py:greet", 2, "there is no file flow.py"),
        ("flow:greet", 2, "there is no module 'flow' here or installed"),
        (":greet", 2, "':greet' names no module: write module:name or file.py:name"),
        ("empty.py", 2, "empty.py has no workflow, agent or server: name a function that makes one"),
        ("needs.py", 1, "needs.py needs the module 'nonexistent_thing', which is not installed"),
        ("raises.py", 1, "raises.py cannot be loaded: ZeroDivisionError: division by zero (raises.py, line 2)"),
        ("syntax.py", 1, "syntax.py cannot be loaded: SyntaxError:"),
        ("json.py", 2, "json.py has the name of the module 'json': rename the file"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(here: Cli, name: str, code: int, said: str) -> None:
    Path("empty.py").touch()
    Path("json.py").touch()
    Path("needs.py").write_text("import nonexistent_thing\n")
    Path("raises.py").write_text("\nx = 1 / 0\n")
    Path("syntax.py").write_text("def\n")
    got, output, errors = here("run", name)
    assert (got, output) == (code, "")
    assert errors.startswith(f"batonflow run: {said}")
    assert errors.count("\n") == 1

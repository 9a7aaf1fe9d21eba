"""Old import paths lead to the modules of today, in every form in which programs write them."""

import subprocess
import sys
from pathlib import Path

import pytest

from batonflow._moved import HOMES, module_at, present_name

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in a process of its own, so that no import of another test helps."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


IN_CHILDREN = """
import importlib, os, sys, types
import batonflow.cli, batonflow.agents, batonflow.durable, batonflow.llms, batonflow.server
from batonflow._moved import HOMES
failed = []
for old, home in sorted(HOMES.items()):
    pid = os.fork()
    if pid:
        if os.waitpid(pid, 0)[1]:
            failed.append(old)
        continue
    try:
        parent, _, last = f"batonflow.{old}".rpartition(".")
        names = {}
        exec(f"from {parent} import {last} as found", names)
        present = importlib.import_module(f"batonflow.{home}")
        good = names["found"] is present and importlib.import_module(f"batonflow.{old}") is present
        # An old path must not stand in the place of a module of today.
        for name, module in list(sys.modules.items()):
            above, _, below = name.rpartition(".")
            if name.startswith("batonflow.") and name == getattr(module, "__name__", ""):
                attribute = getattr(sys.modules[above], below, module)
                good = good and (attribute is module or not isinstance(attribute, types.ModuleType))
    except BaseException:
        good = False
    os._exit(not good)
print(*failed)
"""


def test_each_old_path_gives_the_module_of_today_and_hides_no_other() -> None:
    done = run("-c", IN_CHILDREN)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_an_old_path_runs_as_a_program() -> None:
    done = run("-m", "batonflow.workflow_core.server", "missing.py")
    assert "get_code" not in done.stderr
    assert done.stderr == run("-m", "batonflow.server", "missing.py").stderr


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("workflow_core", "decorators"),
        ("workflow_core.context", "serializers"),
        ("llms", "registry"),
        ("agents", "as_tool"),
        ("agents.memory", "window"),
        ("tools", "errors"),
    ],
)
def test_a_moved_module_is_still_an_attribute_of_its_package(package: str, name: str) -> None:
    done = run("-c", f"import batonflow.{package} as package; print(package.{name}.__name__)")
    assert done.stdout.strip() == present_name(f"batonflow.{package}.{name}"), done.stderr


def test_a_path_that_never_was_is_refused_in_pythons_words() -> None:
    with pytest.raises(AttributeError, match=r"module 'batonflow\.llms' has no attribute 'nonsense'"):
        module_at("batonflow.llms", "nonsense")
    assert present_name("batonflow.llms.nonsense") is None
    assert all(not home.startswith("batonflow.") for home in HOMES.values())

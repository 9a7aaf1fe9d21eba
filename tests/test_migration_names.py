"""docs/migrating-from-llamaindex.md: every name it promises can be imported, every member it promises is there."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.compat.import_table import TABLE, translate
from tests.contract import contract

PAGE = (Path(__file__).parent.parent / "docs" / "migrating-from-llamaindex.md").read_text()
ROWS = [re.findall(r"`([^`]+)`", line) for line in PAGE.splitlines() if line.startswith("| `")]
NAMES = [(here, name, written) for written, name, here in (row for row in ROWS if len(row) == 3) if "." not in name]
MEMBERS = re.findall(r"^\| `(batonflow\.[\w.]+\.[A-Z]\w*)` \| (`.*`) \|$", PAGE, re.MULTILINE)


def find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@contract("0.1")
@pytest.mark.parametrize(("here", "name", "written"), NAMES)
def test_a_name_can_be_imported_from_where_the_page_says(here: str, name: str, written: str) -> None:
    assert hasattr(importlib.import_module(here), name)
    assert translate(f"from {written} import {name}") == f"from {here} import {name}"


@contract("0.1")
@pytest.mark.parametrize(
    ("path", "member"),
    [(path, member) for path, members in MEMBERS for member in re.findall(r"`(\w+)`", members)],
)
def test_a_member_is_there(path: str, member: str) -> None:
    owner = find(path)
    in_instances = [name for base in owner.__mro__ for name in (*getattr(base, "__slots__", ()), *base.__dict__)]
    annotated = [name for base in owner.__mro__ for name in getattr(base, "__annotations__", {})]
    assert hasattr(owner, member) or member in in_instances or member in annotated


def test_the_page_was_read() -> None:
    assert len(NAMES) > 120
    assert len(MEMBERS) == 6


def test_the_import_map_of_the_page_is_the_table_that_programs_are_turned_over_with() -> None:
    lines = PAGE[: PAGE.index("## Names")].splitlines()
    said: dict[str, str] = {}
    for line in (line for line in lines if line.startswith("| `")):
        left, right = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | "))
        names = [left[1].rpartition(".")[0] + name if name.startswith(".") else name for name in left]
        said |= {name: right[0] for name in names if not name.endswith(".X")}
    assert said == TABLE

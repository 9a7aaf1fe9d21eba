"""docs/learn/from-llamaindex.md: every name it promises can be imported, every member it promises is there."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from batonflow import AgentWorkflow, FunctionAgent, FunctionTool
from tests.contract import contract
from tests.promises.compat.import_table import SOME_NAMES, TABLE, translate

PAGE = (Path(__file__).parent.parent / "docs" / "learn" / "from-llamaindex.md").read_text()


def rows(text: str) -> list[list[list[str]]]:
    """The rows of all tables in a text: for each cell what stands in it as code."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line] for line in lines]


def names(text: str) -> list[tuple[str, str, str]]:
    """Home, name, and the module that programs written for LlamaIndex import it from."""
    found = [row for row in rows(text) if len(row) == 3]
    return [(here, name, written) for [written], many, [here] in found for name in many]


BY_TABLE, BY_NAME = map(names, PAGE[PAGE.index("## Names") : PAGE.index("### Members")].split("### Some names"))
MEMBERS = [
    (owner, member)
    for [owner], members in rows(PAGE[PAGE.index("### Members") : PAGE.index("## Differences")])
    for member in members
]
OF_RETRIEVAL = "batonflow.retrieval"
NOT_OFFERED = re.findall(r"`(\w+)`", PAGE[PAGE.index("**Not offered**") : PAGE.index("**Nor are these**")])

# What is set when an object is made can be looked for on objects only.
MADE = {
    "batonflow.agents.AgentWorkflow": AgentWorkflow([FunctionAgent()]),
    "batonflow.tools.FunctionTool": FunctionTool.from_defaults(len),
}


def find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@contract("0.1")
@pytest.mark.parametrize(("here", "name", "written"), BY_TABLE + BY_NAME)
def test_a_name_can_be_imported_from_where_the_page_says(here: str, name: str, written: str) -> None:
    assert hasattr(importlib.import_module(here), name)
    assert translate(f"from {written} import {name}") == f"from {here} import {name}"


def test_the_page_has_each_module_of_which_some_names_are_here() -> None:
    said = {(written, here, name) for here, name, written in BY_NAME}
    by_name = [(written, here, known) for written, rows in SOME_NAMES.items() for here, known in rows]
    others = {(written, here, name) for written, here, known in by_name if here != OF_RETRIEVAL for name in known}
    assert said == others
    of_retrieval = {written for written, here, _ in by_name if here == OF_RETRIEVAL}
    assert of_retrieval == set(
        re.findall(r"`(llama_index[\w.]*)`", PAGE[PAGE.index("All names of [retrieval]") :].split("A line")[0])
    )


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_a_name_that_is_not_offered_says_what_to_do_instead(name: str) -> None:
    homes = [
        importlib.import_module(f"batonflow.{home}") for home in ("tools", "agents.memory", "llms", "llms.prompts")
    ]
    said = []
    for home in homes:
        try:
            getattr(home, name)
        except ImportError as err:
            said.append(str(err))
        except AttributeError:
            continue
    assert len(said) == 1
    assert said[0].startswith(f"{name} is not offered: ")


@contract("0.1")
@pytest.mark.parametrize(("path", "member"), MEMBERS)
def test_a_member_is_there(path: str, member: str) -> None:
    owner = find(path)
    in_instances = [name for base in owner.__mro__ for name in (*getattr(base, "__slots__", ()), *base.__dict__)]
    annotated = [name for base in owner.__mro__ for name in getattr(base, "__annotations__", {})]
    assert hasattr(MADE.get(path, owner), member) or member in in_instances or member in annotated


def test_the_page_was_read() -> None:
    assert len(BY_TABLE) > 270
    assert len(BY_NAME) > 10
    assert len(NOT_OFFERED) == 10
    assert len({owner for owner, _ in MEMBERS}) == 19


def test_the_import_map_of_the_page_is_the_table_that_programs_are_turned_over_with() -> None:
    lines = PAGE[: PAGE.index("## Names")].splitlines()
    said: dict[str, str] = {}
    for line in (line for line in lines if line.startswith("| `")):
        left, right = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | "))
        names = [left[0].rpartition(".")[0] + name if name.startswith(".") else name for name in left]
        said |= dict.fromkeys(names, right[0])
    assert said == TABLE

"""The pages of reference name every option, event and error that the packages have."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import options
from batonflow.workflow_core import Event

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
PACKAGES = (
    "batonflow.agents", "batonflow.llms", "batonflow.tools", "batonflow.tools.code", "batonflow.tools.mcp",
    "batonflow.workflow_core", "batonflow.workflow_core.errors", "batonflow.workflow_core.events",
)  # fmt: skip


def names_in(page: str) -> set[str]:
    """The names in the tables of a page and in its code spans."""
    return set(re.findall(r"`(\w+)`", (REFERENCE / page).read_text()))


def public(kind: type[Any]) -> set[str]:
    """The public classes of a kind."""
    found = [(name, getattr(import_module(package), name)) for package in PACKAGES for name in _all(package)]
    return {name for name, value in found if isinstance(value, type) and issubclass(value, kind)}


def _all(package: str) -> list[str]:
    return list(import_module(package).__all__)


@pytest.mark.parametrize(
    "kind",
    [
        options.WorkflowOptions, options.AgentOptions, options.FunctionAgentOptions, options.ReActAgentOptions,
        options.CodeActAgentOptions, options.TeamOptions,
    ],
)  # fmt: skip
def test_every_option_is_described(kind: Any) -> None:
    assert set(kind.__annotations__) - names_in("options.md") == set()


def test_every_event_is_described() -> None:
    assert public(Event) - names_in("events.md") == set()


def test_every_error_is_described() -> None:
    assert public(Exception) - names_in("errors.md") == set()

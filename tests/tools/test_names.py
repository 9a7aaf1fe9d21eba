"""What batonflow.tools exports, what it loads, and what it says of what it does not have."""

import json
import subprocess
import sys

import pytest

from batonflow import tools
from tests.promises.programs.running import ROOT

LAZY = ("query_engine", "retrieval", "spec", "structured")


def test_every_name_is_there() -> None:
    assert sorted(tools.__all__) == sorted(set(tools.__all__))
    assert set(tools.__all__) <= set(dir(tools))
    for name in tools.__all__:
        assert getattr(tools, name).__name__ == name


def test_an_unknown_one_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Hammer'"):
        _ = tools.Hammer


def test_one_that_is_not_offered_says_why() -> None:
    with pytest.raises(
        ImportError, match=r"QueryPlanTool is not offered: .* Give it a QueryEngineTool for each source"
    ):
        from batonflow.tools import QueryPlanTool  # noqa: F401


@pytest.mark.parametrize("name", ["LoadAndSearchToolSpec", "OnDemandLoaderTool"])
def test_one_that_needs_an_index_says_where_it_is(name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is in batonflow.retrieval"):
        getattr(tools, name)


def test_what_most_programs_do_without_is_not_loaded() -> None:
    program = "import json, sys, batonflow.tools; print(json.dumps([m for m in sys.modules if 'batonflow.tools' in m]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, cwd=ROOT)
    loaded = json.loads(ended.stdout)
    assert "batonflow.tools.function" in loaded
    assert [name for name in LAZY if f"batonflow.tools.{name}" in loaded] == []

"""The import table: only import lines change, and the longest name wins."""

from pathlib import Path

import pytest

from tests.compat.import_table import TABLE, translate

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.parametrize(
    ("written", "here"),
    [
        ("from workflows import Workflow, step", "from batonflow.workflow_core import Workflow, step"),
        ("from workflows.events import Event", "from batonflow.workflow_core.events import Event"),
        ("from workflows.server import WorkflowServer", "from batonflow.workflow_core.server import WorkflowServer"),
        ("import workflows as w", "import batonflow.workflow_core as w"),
        ("    from llama_index.core.workflow import step", "    from batonflow.workflow_core import step"),
        ("from llama_index.core.agent.workflow import AgentOutput", "from batonflow.agents import AgentOutput"),
        ("from llama_index.core.agent import ReActAgent", "from batonflow.agents import ReActAgent"),
        (
            "from llama_index.core.llms.mock import MockFunctionCallingLLM",
            "from batonflow.llms.mock import MockFunctionCallingLLM",
        ),
        (
            "import llama_index.core.instrumentation as instrument",
            "import batonflow.workflow_core.instrumentation as instrument",
        ),
        (
            "from llama_index.utils.workflow import draw_all_possible_flows",
            "from batonflow.workflow_core.draw import draw_all_possible_flows",
        ),
        ("import workflows", "import batonflow.workflow_core"),
    ],
)
def test_an_import_line_is_turned_over(written: str, here: str) -> None:
    assert translate(f"x = 1\n{written}\ny = 2\n") == f"x = 1\n{here}\ny = 2\n"


@pytest.mark.parametrize(
    "line",
    [
        'print("from workflows import step")',
        "# workflows are fun",
        "from workflowsextra import thing",
        "from my.workflows import thing",
        "import myworkflows",
        'logger = logging.getLogger("workflows.verbose")',
        "workflows = [1, 2]",
        "from llama_index.core.workflows_of_mine import x",
    ],
)
def test_every_other_line_stays(line: str) -> None:
    assert translate(line) == line


def test_no_program_keeps_an_upstream_import() -> None:
    for path in PROGRAMS.glob("*.py"):
        left = [line for line in translate(path.read_text()).splitlines() if line.startswith(("from ", "import "))]
        assert not [line for line in left if "llama_index" in line or line.split()[1].split(".")[0] == "workflows"], (
            path
        )


def test_the_table_maps_into_this_package_only() -> None:
    assert all(target.startswith("batonflow.") for target in TABLE.values())

"""The import table: only import lines change, and the longest name wins."""

import importlib
from pathlib import Path

import pytest

from tests.promises.compat.import_table import SOME_NAMES, TABLE, translate

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
            "from batonflow.llms import MockFunctionCallingLLM",
        ),
        ("from llama_index.core.llms.callbacks import x", "from batonflow.llms.callbacks import x"),
        ("from llama_index.core.agent.workflow.base_agent import x", "from batonflow.agents import x"),
        (
            "from llama_index.core.agent.workflow.workflow_events import x",
            "from batonflow.agents.workflow_events import x",
        ),
        ("import llama_index.core.memory.memory_blocks.static as s", "import batonflow.agents.memory as s"),
        ("from llama_index.core.bridge.pydantic import BaseModel", "from pydantic import BaseModel"),
        (
            "from llama_index.core import PromptTemplate, Settings",
            "from batonflow.llms import PromptTemplate, Settings",
        ),
        ("from llama_index.core import Settings as S", "from batonflow.llms import Settings as S"),
        (
            "from llama_index.core.schema import (\n    Document,  # a page\n    TextNode,\n)",
            "from batonflow.retrieval import (\n    Document,  # a page\n    TextNode,\n)",
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
        (
            "from llama_index.core import Settings, VectorStoreIndex",
            "from batonflow.retrieval import Settings, VectorStoreIndex",
        ),
        (
            "from llama_index.core.node_parser.text.sentence import SentenceSplitter",
            "from batonflow.retrieval import SentenceSplitter",
        ),
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
        "from llama_index.core import KnowledgeGraphIndex",
        "from llama_index.core import Settings, download_loader",
        "from llama_index.core.schema import (\n    TextNode,\n    Something,\n)",
        "import llama_index.core",
        "from llama_index.llms.openai_like import OpenAILike",
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


def test_the_table_maps_into_this_package_and_pydantic() -> None:
    assert all(target.startswith("batonflow.") or target == "pydantic" for target in TABLE.values())


@pytest.mark.parametrize(
    "module", sorted({*TABLE.values(), *(here for rows in SOME_NAMES.values() for here, _ in rows)})
)
def test_every_row_leads_to_a_module_that_is_there(module: str) -> None:
    importlib.import_module(module)


@pytest.mark.parametrize(
    ("here", "name"), sorted({(here, name) for rows in SOME_NAMES.values() for here, names in rows for name in names})
)
def test_every_name_of_a_row_of_names_is_where_the_row_leads(here: str, name: str) -> None:
    assert hasattr(importlib.import_module(here), name)

"""`batonflow check` and `draw`: what can be said of a workflow without running it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_a_team_that_is_sound(here: Cli) -> None:
    code, output, errors = here("check", "team.py:team")
    assert (code, errors) == (0, "")
    assert output == (
        "ok       graph of AgentWorkflow: 6 steps, from AgentWorkflowStartEvent to StopEvent\n"
        "ok       agent researcher: 1 tool (search)\n"
        "ok       agent writer: 1 tool (publish)\n"
        "ok       handoffs from researcher: researcher to writer; writer to researcher\n"
    )


def test_no_key_is_needed(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.delenv("OPENAI_API_KEY")
    Path("real.py").write_text(
        "from batonflow import FunctionAgent\n"
        "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
        "agent = FunctionAgent(llm='openai:gpt-5.6', tools=[add])\n"
    )
    code, output, _ = here("check", "real.py")
    assert code == 0
    assert "ok       agent Agent: 1 tool (add)" in output


BROKEN = """
from typing import Any, Callable
from pydantic import BaseModel, ConfigDict
from batonflow import AgentWorkflow, FunctionAgent, FunctionTool, ScriptedLLM

class Odd(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    call: Callable[[int], int]

def undescribed(a: int) -> int:
    return a

llm = ScriptedLLM([])
first = FunctionAgent(name="first", description="Begins.", llm=llm, can_handoff_to=["nobody"], tools=[undescribed])
second = FunctionAgent(name="second", description="Is never asked.", llm=llm, output_cls=Odd)
team = AgentWorkflow(agents=[first, second], root_agent="first")
"""


@pytest.mark.filterwarnings("ignore:Agent first may hand over to nobody")
def test_what_is_wrong_with_a_team(here: Cli) -> None:
    Path("broken.py").write_text(BROKEN)
    code, output, _ = here("check", "broken.py:team", "--json")
    told = json.loads(output)
    assert (code, told["ok"]) == (1, False)
    problems = "\n".join(told["problems"])
    assert "agent first can hand off to nobody, which is not in the team" in problems
    assert "agent second is never handed over to from first" in problems
    assert "agent second: output_cls Odd has no JSON Schema" in problems


def test_a_graph_with_a_gap(here: Cli) -> None:
    Path("gap.py").write_text(
        "from batonflow import *\n"
        "class Lost(Event): pass\n"
        "class Gap(Workflow):\n"
        "    @step\n    async def a(self, ev: StartEvent) -> StopEvent | Lost: ...\n"
        "gap = Gap()\n"
    )
    code, output, _ = here("check", "gap.py")
    assert code == 1
    assert "problem  graph of Gap: " in output
    assert "Lost" in output


def test_attached_workflows_are_checked_too(here: Cli) -> None:
    Path("outer.py").write_text("from flows import AskAround, Greet\nouter = Greet(workflows={'inner': AskAround()})\n")
    output = here("check", "outer.py:outer")[1]
    assert "ok       graph of inner: 2 steps, from StartEvent to StopEvent, asks people\n" in output


def test_a_drawing_as_text_and_as_files(here: Cli) -> None:
    code, output, _ = here("draw", "flows.py:greet")
    assert code == 0
    assert output.startswith("flowchart TD")
    assert here("draw", "flows.py:greet", "-o", "flow.svg")[::2] == (0, "written: flow.svg\n")
    assert Path("flow.svg").read_text().startswith("<svg")
    here("draw", "flows.py:greet", "-o", "flow.html")
    assert "<html" in Path("flow.html").read_text()
    here("draw", "flows.py:greet", "-o", "flow.mermaid")
    assert Path("flow.mermaid").read_text() == output
    assert here("draw", "flows.py:greet", "-o", "flow.png")[::2] == (
        2,
        "batonflow draw: -o flow.png: choose a name that ends with .html, .svg or .mermaid\n",
    )


OWN_TOOL = """
from batonflow import FunctionAgent, ScriptedLLM

alone = FunctionAgent(name="alone", description="Asks itself.", llm=ScriptedLLM([]))
alone.tools = [*alone.tools, alone]
through = FunctionAgent(name="through", description="Asks itself, later.", llm=ScriptedLLM([]))
through.tools.append(through.as_tool())
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("alone", "agent alone: the agent alone is not a tool: put alone.as_tool() into tools"),
        ("through", "agent through: Agent through would be its own tool, through through: leave that tool out"),
    ],
)
def test_an_agent_that_is_its_own_tool(here: Cli, name: str, told: str) -> None:
    Path("own.py").write_text(OWN_TOOL)
    code, output, errors = here("check", f"own.py:{name}")
    assert (code, errors) == (1, "")
    assert f"problem  {told}" in output


def test_an_agent_that_was_given_itself_is_named_in_the_error_of_its_run(here: Cli) -> None:
    Path("own.py").write_text(OWN_TOOL)
    code, _, errors = here("run", "own.py:alone", "Hello.")
    assert code == 1
    assert "TypeError: the agent alone is not a tool: put alone.as_tool() into tools" in errors


@pytest.mark.parametrize("name", ["flow.svg", "flow.mermaid"])
def test_a_drawing_in_a_missing_folder_is_refused(here: Cli, name: str) -> None:
    code, output, errors = here("draw", "flows.py:greet", "-o", f"missing/{name}")
    assert (code, output) == (2, "")
    assert errors == f"batonflow draw: there is no folder missing for missing/{name}: make it first, or name another\n"
    assert not Path("missing").exists()

"""Drawings of agents: their tools, whom the task reaches first, and who may hand it to whom."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, FunctionAgent
from batonflow.draw import (
    draw_agent_with_tools,
    draw_agent_with_tools_mermaid,
    draw_agent_workflow,
    draw_agent_workflow_mermaid,
)
from batonflow.draw.agents import scene_of_agent, scene_of_team
from batonflow.draw.scene import Scene


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def search(text: str) -> str:
    """Look something up."""
    return text


class Shelf:
    async def aretrieve(self, text: str) -> list[Any]:
        return []


def agent(name: str, **options: Any) -> FunctionAgent:
    return FunctionAgent(name=name, description=f"Is {name}.", **options)


def team() -> AgentWorkflow:
    return AgentWorkflow(
        [
            agent("writer", tools=[add, search], can_handoff_to=["critic"]),
            agent("critic", tools=[search]),
            agent("printer", can_handoff_to=[]),
        ],
        root_agent="writer",
        name="Paper",
    )


def boxes(scene: Scene) -> list[tuple[str, str]]:
    return [(item.kind, item.label) for item in scene.items]


def arrows(scene: Scene, kind: str) -> list[tuple[str, str]]:
    label = {item.id: item.label for item in scene.items}
    return [(label[line.source], label[line.target]) for line in scene.lines if line.kind == kind]


def test_an_agent_is_drawn_with_its_tools() -> None:
    scene = scene_of_agent(agent("writer", tools=[add, search]))
    assert (scene.title, scene.note) == ("writer", "Is writer.")
    assert boxes(scene) == [("agent", "writer"), ("tool", "add"), ("tool", "search")]
    assert arrows(scene, "call") == [("writer", "add"), ("writer", "search")]
    assert "Add two numbers." in scene.items[1].note


def test_tools_that_are_found_for_a_question_are_one_box() -> None:
    scene = scene_of_agent(agent("writer", tools=[add], tool_retriever=Shelf()))
    assert boxes(scene) == [("agent", "writer"), ("tool", "add"), ("tool", "found by Shelf")]


def test_a_plain_function_among_the_tools_is_called_as_it_is() -> None:
    plain = SimpleNamespace(name="a", tools=[add, SimpleNamespace(metadata=None)])
    assert boxes(scene_of_agent(plain)) == [("agent", "a"), ("tool", "add"), ("tool", "SimpleNamespace")]


def test_a_team_is_drawn_from_the_question_to_the_answer() -> None:
    scene = scene_of_team(team())
    assert scene.title == "Paper"
    assert [box for box in boxes(scene) if box[0] != "tool"] == [
        ("external", "User"),
        ("agent", "writer"),
        ("agent", "critic"),
        ("agent", "printer"),
        ("external", "Output"),
    ]
    assert arrows(scene, "flow") == [
        ("User", "writer"),
        ("writer", "Output"),
        ("critic", "Output"),
        ("printer", "Output"),
    ]


def test_handoffs_are_those_that_a_run_allows() -> None:
    """To those that are chosen; to all others where nobody is chosen; to none where the choice is empty."""
    assert arrows(scene_of_team(team()), "link") == [("writer", "critic"), ("critic", "writer"), ("critic", "printer")]


@pytest.mark.filterwarnings("ignore:Agent writer may hand over to nobody")
def test_a_handoff_to_somebody_who_is_not_in_the_team_is_not_drawn() -> None:
    scene = scene_of_team(AgentWorkflow([agent("writer", can_handoff_to=["nobody"])], root_agent="writer"))
    assert arrows(scene, "link") == []


def test_a_tool_of_two_agents_is_a_box_for_each() -> None:
    called = arrows(scene_of_team(team()), "call")
    assert called == [("writer", "add"), ("writer", "search"), ("critic", "search")]
    assert len({item.id for item in scene_of_team(team()).items}) == 8


def test_names_that_the_drawing_uses_itself_are_told_apart() -> None:
    scene = scene_of_team(AgentWorkflow([agent("user"), agent("output")], root_agent="user"))
    assert len({item.id for item in scene.items}) == 4


def test_a_team_in_a_team_is_an_agent_that_says_who_is_in_it() -> None:
    scene = scene_of_team(AgentWorkflow([team(), agent("reader")], root_agent="Paper"))
    inner = next(item for item in scene.items if item.label == "Paper")
    assert inner.kind == "agent"
    assert inner.note.endswith("A team: writer, critic, printer")


def test_the_file_is_written_and_its_path_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert draw_agent_workflow(team()) == "agent_workflow.html"
    assert draw_agent_with_tools(team().agents["writer"]) == "agent_with_tools.html"
    assert "<svg" in Path("agent_workflow.html").read_text()
    assert draw_agent_workflow(team(), filename=tmp_path / "team.svg") == str(tmp_path / "team.svg")
    texts = {"".join(node.itertext()) for node in ET.parse(tmp_path / "team.svg").iter()}
    assert {"Paper", "writer", "critic", "printer", "add", "User", "Output"} <= texts


def test_a_notebook_shows_the_path_as_the_drawing(tmp_path: Path) -> None:
    path = draw_agent_workflow(team(), filename=tmp_path / "team.html", notebook=True)
    assert path == str(tmp_path / "team.html")
    shown: Any = path
    assert "<svg" in shown._repr_html_()
    assert not hasattr(draw_agent_workflow(team(), filename=tmp_path / "team.html"), "_repr_html_")


def test_mermaid_text_is_returned_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = draw_agent_workflow_mermaid(team())
    assert Path("agent_workflow.mermaid").read_text() == text
    assert re.search(r'n_agent_writer\("writer"\):::agentStyle', text)
    assert "n_agent_writer --> n_agent_critic" in text
    text = draw_agent_with_tools_mermaid(team().agents["writer"], filename=None)
    assert '[["add"]]:::toolStyle' in text
    assert not Path("agent_with_tools.mermaid").exists()


def test_what_is_no_agent_and_no_team_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes an agent, got AgentWorkflow: draw_agent_workflow draws a team"):
        draw_agent_with_tools(team())
    with pytest.raises(TypeError, match=r"takes a team of agents, got FunctionAgent: draw_agent_with_tools draws a"):
        draw_agent_workflow_mermaid(agent("a"))
    with pytest.raises(TypeError, match=r"takes a team of agents, got int$"):
        draw_agent_workflow(7)
    with pytest.raises(TypeError, match=r"takes an agent, got int$"):
        draw_agent_with_tools_mermaid(7)

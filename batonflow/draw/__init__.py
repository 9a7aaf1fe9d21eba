"""Drawings of workflows: what runs can do, and what a run did; of agents: their tools and their handoffs.

As one self-contained HTML or SVG file, or Mermaid text. Nothing is fetched and no script runs in the files; colours
follow the reader's light or dark setting.
"""

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batonflow.draw.agents import scene_of_agent, scene_of_team
from batonflow.draw.mermaid import mermaid
from batonflow.draw.representation.build import get_workflow_representation
from batonflow.draw.scene import Scene, scene_of
from batonflow.draw.svg import html_page, svg
from batonflow.workflow_core.counts import ExecutionCounts
from batonflow.workflow_core.workflow import Workflow

if TYPE_CHECKING:
    from batonflow.workflow_core.handler import WorkflowHandler

__all__ = [
    "Drawing",
    "DrawnFile",
    "draw_agent_with_tools",
    "draw_agent_with_tools_mermaid",
    "draw_agent_workflow",
    "draw_agent_workflow_mermaid",
    "draw_all_possible_flows",
    "draw_all_possible_flows_mermaid",
    "draw_most_recent_execution",
    "draw_most_recent_execution_mermaid",
    "execution_svg",
    "workflow_svg",
]


class Drawing:
    """A drawing as SVG text, which a notebook shows as a picture."""

    def __init__(self, svg_text: str) -> None:
        self.svg = svg_text

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto">{self.svg}</div>'

    def _repr_svg_(self) -> str:
        return self.svg


class DrawnFile(str):
    """The path of a file that was drawn; a notebook shows it as the picture."""

    __slots__ = ("svg",)

    svg: str

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto">{self.svg}</div>'


def draw_all_possible_flows(
    workflow: Workflow | type[Workflow],
    filename: str | PathLike[str] = "workflow_all_flows.html",
    notebook: bool = False,
    max_label_length: int | None = None,
    include_child_workflows: bool = True,
) -> Drawing | None:
    """Draw every way that events can take through a workflow into a file.

    Args:
        workflow: A workflow, with those attached to it, or a class.
        filename: Where to write; with the ending ``.svg`` the picture alone, else an HTML page around it.
        notebook: Also return the drawing, so that a notebook shows it.
        max_label_length: Cut names to this many characters; the last is then ``*``.
        include_child_workflows: Draw attached workflows as boxes inside the drawing.

    Raises:
        OSError: The file cannot be written.

    Example:
        >>> draw_all_possible_flows(MyWorkflow, filename="flow.html")
    """
    scene = _flows(workflow, max_label_length, include_child_workflows)
    return _written(scene, svg(scene), filename, notebook=notebook)


def draw_all_possible_flows_mermaid(
    workflow: Workflow | type[Workflow],
    filename: str | PathLike[str] | None = "workflow_all_flows.mermaid",
    max_label_length: int | None = None,
    include_child_workflows: bool = True,
) -> str:
    """Return every way that events can take through a workflow as Mermaid text.

    Args:
        workflow: As for ``draw_all_possible_flows``.
        filename: Where to write the text as well; empty or None for nowhere.
        max_label_length: As for ``draw_all_possible_flows``.
        include_child_workflows: As for ``draw_all_possible_flows``.

    Raises:
        OSError: The file cannot be written.

    Example:
        >>> print(draw_all_possible_flows_mermaid(MyWorkflow, filename=None))
    """
    return _written_text(mermaid(_flows(workflow, max_label_length, include_child_workflows)), filename)


def draw_most_recent_execution(
    handler: "WorkflowHandler | Workflow",
    filename: str | PathLike[str] = "workflow_recent_execution.html",
    notebook: bool = False,
    max_label_length: int | None = None,
) -> Drawing | None:
    """Draw what a run did into a file: the numbers say how often; what did not happen is pale.

    Args:
        handler: A run, finished or not, or a workflow, whose run started last is drawn.
        filename: As for ``draw_all_possible_flows``.
        notebook: As for ``draw_all_possible_flows``.
        max_label_length: As for ``draw_all_possible_flows``.

    Raises:
        ValueError: The workflow has not run yet.
        OSError: The file cannot be written.

    Example:
        >>> handler = workflow.run()
        >>> await handler
        >>> draw_most_recent_execution(handler, filename="run.html")
    """
    scene, subtitle = _execution(handler, max_label_length)
    return _written(scene, svg(scene, subtitle), filename, notebook=notebook)


def draw_most_recent_execution_mermaid(
    handler: "WorkflowHandler | Workflow",
    filename: str | PathLike[str] | None = "workflow_recent_execution.mermaid",
    max_label_length: int | None = None,
) -> str:
    """Return what a run did as Mermaid text, with the numbers on the arrows; dotted ones were not taken.

    Args:
        handler: As for ``draw_most_recent_execution``.
        filename: Where to write the text as well; empty or None for nowhere.
        max_label_length: As for ``draw_all_possible_flows``.

    Raises:
        ValueError: The workflow has not run yet.
        OSError: The file cannot be written.

    Example:
        >>> print(draw_most_recent_execution_mermaid(handler, filename=None))
    """
    return _written_text(mermaid(_execution(handler, max_label_length)[0]), filename)


def draw_agent_workflow(
    agent_workflow: Any, filename: str | PathLike[str] = "agent_workflow.html", notebook: bool = False
) -> str:
    """Draw a team of agents into a file: their tools, and who may hand over to whom.

    Args:
        agent_workflow: The team.
        filename: As for ``draw_all_possible_flows``.
        notebook: Let what is returned be shown as the drawing by a notebook.

    Returns:
        The path of the file.

    Raises:
        TypeError: What was given is no team.
        OSError: The file cannot be written.

    Example:
        >>> draw_agent_workflow(AgentWorkflow([writer, critic], root_agent="writer"))
        'agent_workflow.html'
    """
    return _drawn_file(scene_of_team(agent_workflow), filename, notebook=notebook)


def draw_agent_with_tools(
    agent: Any, filename: str | PathLike[str] = "agent_with_tools.html", notebook: bool = False
) -> str:
    """Draw an agent and its tools into a file.

    Args:
        agent: The agent.
        filename: As for ``draw_all_possible_flows``.
        notebook: As for ``draw_agent_workflow``.

    Returns:
        The path of the file.

    Raises:
        TypeError: What was given is no agent.
        OSError: The file cannot be written.

    Example:
        >>> draw_agent_with_tools(FunctionAgent(tools=[add]), filename="adder.svg")
        'adder.svg'
    """
    return _drawn_file(scene_of_agent(agent), filename, notebook=notebook)


def draw_agent_workflow_mermaid(
    agent_workflow: Any, filename: str | PathLike[str] | None = "agent_workflow.mermaid"
) -> str:
    """Return the drawing of ``draw_agent_workflow`` as Mermaid text.

    Args:
        agent_workflow: The team.
        filename: Where to write the text as well; empty or None for nowhere.

    Raises:
        TypeError: What was given is no team.
        OSError: The file cannot be written.

    Example:
        >>> print(draw_agent_workflow_mermaid(team, filename=None))
    """
    return _written_text(mermaid(scene_of_team(agent_workflow)), filename)


def draw_agent_with_tools_mermaid(agent: Any, filename: str | PathLike[str] | None = "agent_with_tools.mermaid") -> str:
    """Return the drawing of ``draw_agent_with_tools`` as Mermaid text.

    Args:
        agent: The agent.
        filename: Where to write the text as well; empty or None for nowhere.

    Raises:
        TypeError: What was given is no agent.
        OSError: The file cannot be written.

    Example:
        >>> print(draw_agent_with_tools_mermaid(agent, filename=None))
    """
    return _written_text(mermaid(scene_of_agent(agent)), filename)


def workflow_svg(workflow: Workflow | type[Workflow]) -> str:
    """Return the drawing of every way through a workflow as SVG text."""
    return svg(_flows(workflow, None, with_children=True))


def execution_svg(handler: "WorkflowHandler | Workflow") -> str:
    """Return the drawing of what a run did as SVG text.

    Raises:
        ValueError: A workflow was given that has not run yet.
    """
    return svg(*_execution(handler, None))


def _flows(workflow: Workflow | type[Workflow], max_label_length: int | None, with_children: bool) -> Scene:
    graph = get_workflow_representation(workflow)
    if not with_children:
        graph.children, graph.links = {}, []
    return scene_of(graph, max_label_length=max_label_length)


def _execution(source: "WorkflowHandler | Workflow", max_label_length: int | None) -> tuple[Scene, str]:
    if isinstance(source, Workflow):
        workflow, state = source, source.__batonflow__.last_state
        if state is None:
            raise ValueError(f"{type(source).__name__} has not run yet: draw its execution after workflow.run(...)")
        counts, run_id = ExecutionCounts(), state.run_id
        counts.add(state)
    else:
        workflow, counts, run_id = source.workflow, source.execution_counts, source.run_id
    scene = scene_of(get_workflow_representation(workflow), counts, max_label_length=max_label_length)
    return scene, f"What run {run_id} did: numbers say how often, pale parts did not take place"


def _drawn_file(scene: Scene, filename: str | PathLike[str], *, notebook: bool) -> str:
    drawing = svg(scene)
    _written(scene, drawing, filename, notebook=False)
    if not notebook:
        return fspath(filename)
    file = DrawnFile(fspath(filename))
    file.svg = drawing
    return file


def _written(scene: Scene, drawing: str, filename: str | PathLike[str], *, notebook: bool) -> Drawing | None:
    path = Path(filename)
    path.write_text(drawing if path.suffix.lower() == ".svg" else html_page(scene.title, drawing), encoding="utf-8")
    return Drawing(drawing) if notebook else None


def _written_text(text: str, filename: str | PathLike[str] | None) -> str:
    if filename:
        Path(filename).write_text(text, encoding="utf-8")
    return text

"""Drawings of workflows: their possible flows and their runs; of agents: tools and handoffs.

Drawings are self-contained HTML or SVG files, or Mermaid text. The files have no scripts and load nothing; colours
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
from batonflow.values.counts import ExecutionCounts
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
    """The path of a drawn file; a notebook shows it as the picture."""

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
    """Draw all paths of events through a workflow into a file.

    Args:
        workflow: A workflow, with those attached to it, or a class.
        filename: The file to write: only the picture for the ending ``.svg``, else an HTML page.
        notebook: Also return the drawing, so that a notebook shows it.
        max_label_length: Cut names to this many characters; the last is then ``*``.
        include_child_workflows: Draw attached workflows as boxes inside the drawing.

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
    """Return all paths of events through a workflow as Mermaid text.

    Args:
        workflow: As for ``draw_all_possible_flows``.
        filename: A file to write the text to as well; empty or None for no file.
        max_label_length: As for ``draw_all_possible_flows``.
        include_child_workflows: As for ``draw_all_possible_flows``.

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
    """Draw a run into a file, with the number of times each step ran; unused parts are pale.

    Args:
        handler: A run, finished or not, or a workflow, for its latest run.
        filename: As for ``draw_all_possible_flows``.
        notebook: As for ``draw_all_possible_flows``.
        max_label_length: As for ``draw_all_possible_flows``.

    Raises:
        ValueError: The workflow has not run yet.

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
    """Return a run as Mermaid text, with numbers on the arrows; unused arrows are dotted.

    Args:
        handler: As for ``draw_most_recent_execution``.
        filename: A file to write the text to as well; empty or None for no file.
        max_label_length: As for ``draw_all_possible_flows``.

    Raises:
        ValueError: The workflow has not run yet.

    Example:
        >>> print(draw_most_recent_execution_mermaid(handler, filename=None))
    """
    return _written_text(mermaid(_execution(handler, max_label_length)[0]), filename)


def draw_agent_workflow(
    agent_workflow: Any, filename: str | PathLike[str] = "agent_workflow.html", notebook: bool = False
) -> str:
    """Draw a team of agents into a file: tools and handoffs.

    Args:
        agent_workflow: The team.
        filename: As for ``draw_all_possible_flows``.
        notebook: Return an object that a notebook shows as the drawing.

    Returns:
        The path of the file.

    Raises:
        TypeError: ``agent_workflow`` is not a team.

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
        TypeError: ``agent`` is not an agent.

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
        filename: A file to write the text to as well; empty or None for no file.

    Raises:
        TypeError: ``agent_workflow`` is not a team.

    Example:
        >>> print(draw_agent_workflow_mermaid(team, filename=None))
    """
    return _written_text(mermaid(scene_of_team(agent_workflow)), filename)


def draw_agent_with_tools_mermaid(agent: Any, filename: str | PathLike[str] | None = "agent_with_tools.mermaid") -> str:
    """Return the drawing of ``draw_agent_with_tools`` as Mermaid text.

    Args:
        agent: The agent.
        filename: A file to write the text to as well; empty or None for no file.

    Raises:
        TypeError: ``agent`` is not an agent.

    Example:
        >>> print(draw_agent_with_tools_mermaid(agent, filename=None))
    """
    return _written_text(mermaid(scene_of_agent(agent)), filename)


def workflow_svg(workflow: Workflow | type[Workflow]) -> str:
    """Return the drawing of all paths through a workflow as SVG text."""
    return svg(_flows(workflow, None, with_children=True))


def execution_svg(handler: "WorkflowHandler | Workflow") -> str:
    """Return the drawing of a run as SVG text.

    Raises:
        ValueError: The workflow has not run yet.
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
    return scene, f"What run {run_id} did: numbers are counts, pale parts were not used"


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

"""Scenes of agents: their tools and their handoffs.

Agents belong to a higher layer, so they are recognized by their attributes and not by their classes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from batonflow.draw.scene import Item, Line, Scene

__all__ = ["scene_of_agent", "scene_of_team"]

_USER, _OUTPUT = "user", "output"


def scene_of_agent(agent: Any) -> Scene:
    """Return the scene of one agent and its tools.

    Raises:
        TypeError: The object is not an agent.
    """
    if not (hasattr(agent, "name") and hasattr(agent, "tools")):
        remedy = ": draw_agent_workflow draws a team" if hasattr(agent, "agents") else ""
        raise TypeError(f"draw_agent_with_tools takes an agent, got {type(agent).__name__}{remedy}")
    scene = Scene(agent.name, getattr(agent, "description", None) or "")
    _add_agent(scene, agent, agent.name)
    return scene


def scene_of_team(team: Any) -> Scene:
    """Return the scene of a team: agents, tools, the first agent, and possible handoffs.

    Every agent may give the answer. An agent without ``can_handoff_to`` may hand off to all others.

    Raises:
        TypeError: The object is not a team.
    """
    if not (hasattr(team, "agents") and hasattr(team, "root_agent")):
        remedy = ": draw_agent_with_tools draws a single agent" if hasattr(team, "tools") else ""
        raise TypeError(f"draw_agent_workflow takes a team of agents, got {type(team).__name__}{remedy}")
    agents: Mapping[str, Any] = team.agents
    scene = Scene(getattr(team, "name", None) or type(team).__name__, getattr(team, "description", None) or "")
    scene.items.append(Item(_USER, "external", "User"))
    for name, agent in agents.items():
        _add_agent(scene, agent, name)
    scene.items.append(Item(_OUTPUT, "external", "Output"))
    scene.lines.append(Line(_USER, _id(team.root_agent)))
    for name, agent in agents.items():
        chosen: Iterable[str] | None = agent.can_handoff_to
        for other in dict.fromkeys(agents if chosen is None else chosen):
            if other in agents and other != name:
                scene.lines.append(Line(_id(name), _id(other), "link"))
        scene.lines.append(Line(_id(name), _OUTPUT))
    return scene


def _id(name: str) -> str:
    return f"agent {name}"


def _add_agent(scene: Scene, agent: Any, name: str) -> None:
    note = getattr(agent, "description", None) or ""
    inner = getattr(agent, "team", None)
    if inner is not None:
        note = f"{note}\nA team: {', '.join(inner.agents)}".strip()
    scene.items.append(Item(_id(name), "agent", name, note))
    found = getattr(agent, "tool_retriever", None)
    tools = [_tool(tool) for tool in agent.tools or ()]
    if found is not None:
        tools.append((f"found by {type(found).__name__}", "Tools that are retrieved for each question"))
    for number, (label, tool_note) in enumerate(tools):
        scene.items.append(Item(f"tool {number} of {name}", "tool", label, tool_note))
        scene.lines.append(Line(_id(name), f"tool {number} of {name}", "call"))


def _tool(tool: Any) -> tuple[str, str]:
    """Return name and description of a tool; a plain function has its own name."""
    metadata = getattr(tool, "metadata", None)
    if getattr(tool, "__batonflow_toolset__", False):
        return repr(tool), "A toolset, asked for its tools before each request"
    if metadata is not None:
        return metadata.name or type(tool).__name__, metadata.description or ""
    return getattr(tool, "__name__", type(tool).__name__), getattr(tool, "__doc__", None) or ""

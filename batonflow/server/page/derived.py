"""The graph of a run without its code: from its steps, events and causes."""

from collections.abc import Mapping, Sequence
from typing import Any

from batonflow.draw.representation.types import (
    WorkflowEventNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowGraphNode,
    WorkflowStepNode,
)

__all__ = ["graph_of"]

_BASES = {"started": "StartEvent", "ended": "StopEvent", "answered": "HumanResponseEvent"}
_MADE = ("returned", "sent", "asked")


def graph_of(name: str, entries: Sequence[Mapping[str, Any]]) -> WorkflowGraph:
    """Return the part of a workflow's graph that a run went through.

    Args:
        name: The name of the workflow.
        entries: Entries of ``trace_of``.

    Example:
        >>> graph_of("Halves", trace_of(await store.read("r")))
    """
    root = _Part(name.rpartition(".")[2])
    events: dict[tuple[int, int], str] = {}
    for entry in entries:
        part = root.at(entry["path"])
        for event in entry.get("events", ()):
            if event["number"] is not None:
                events[entry["id"], event["number"]] = event["type"]
            part.see(entry, event)
    for entry in entries:
        if "step" in entry and entry["kind"] == "segment":
            part = root.at(entry["path"])
            part.steps.setdefault(entry["step"])
            for cause in entry.get("causes", ()):
                if (event_type := events.get((cause[0], cause[1]))) is not None:
                    part.edges.setdefault((event_type, entry["step"]))
    return root.graph()


class _Part:
    """One workflow of the tree. The dicts serve as ordered sets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: dict[str, None] = {}
        self.events: dict[str, set[str]] = {}
        self.edges: dict[tuple[str, str], None] = {}
        self.children: dict[str, _Part] = {}

    def at(self, path: str) -> "_Part":
        part = self
        for name in path.split("/") if path else ():
            # A number after the name distinguishes repeated runs of a child.
            base, _, number = name.rpartition("#")
            child = base if base and number.isdigit() else name
            part = part.children.setdefault(child, _Part(child))
        return part

    def see(self, entry: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        base = "InputRequiredEvent" if event["how"] == "asked" else _BASES.get(entry["kind"])
        if base is not None or event["how"] in _MADE or entry["kind"] == "input":
            self.events.setdefault(event["type"], set()).update({base} if base else ())
        if "step" in entry and event["how"] in _MADE:
            self.steps.setdefault(entry["step"])
            self.edges.setdefault((entry["step"], event["type"]))
        elif entry["kind"] == "answered" and "step" in entry:
            self.edges.setdefault((event["type"], entry["step"]))

    def graph(self) -> WorkflowGraph:
        produced = {name: [step for step, event in self.edges if event == name] for name in self.events}
        nodes: list[WorkflowGraphNode] = [
            *(WorkflowStepNode(id=name, label=name) for name in self.steps),
            *(
                WorkflowEventNode(
                    id=name, label=name, event_type=name, event_types=[name, *sorted(bases)], produced_by=produced[name]
                )
                for name, bases in self.events.items()
                if name not in self.steps
            ),
        ]
        known = {node.id for node in nodes}
        edges = [
            WorkflowGraphEdge(source=source, target=target)
            for source, target in self.edges
            if source in known and target in known
        ]
        children = {name: part.graph() for name, part in self.children.items()}
        return WorkflowGraph(name=self.name, nodes=nodes, edges=edges, children=children)

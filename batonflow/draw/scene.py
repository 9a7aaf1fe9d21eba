"""Content of a drawing before layout: boxes of several kinds, arrows, and nested scenes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from batonflow.draw.representation.types import WorkflowEventNode, WorkflowGraph, WorkflowGraphNode
from batonflow.values.counts import ExecutionCounts
from batonflow.workflow_core.events import (
    CollectionReleaseEvent,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)

__all__ = ["KINDS", "Item", "Line", "Scene", "scene_of"]

KINDS: dict[str, str] = {
    "start": "Start event",
    "step": "Step",
    "event": "Event",
    "stop": "Stop event",
    "human": "Question or answer",
    "failure": "Failure",
    "agent": "Agent",
    "tool": "Tool",
    "external": "Outside",
    "resource": "Resource",
    "resource_config": "Configuration",
    "other": "Other",
}
"""Kind of a box -> its name in the legend."""

_EVENT_KINDS = (
    ("start", StartEvent),
    ("stop", StopEvent),
    ("human", InputRequiredEvent),
    ("human", HumanResponseEvent),
    ("failure", StepFailedEvent),
)

Counts = dict[str, dict[str, int]]
"""Step name -> event name -> count."""


@dataclass(slots=True)
class Item:
    """A box.

    Attributes:
        id: Unique in its scene.
        kind: A key of ``KINDS``.
        label: The text in it.
        note: A longer text, shown as a tooltip.
        count: Number of uses in the run; None without a run.
    """

    id: str
    kind: str
    label: str
    note: str = ""
    count: int | None = None


@dataclass(slots=True)
class Line:
    """An arrow; ``source_child`` and ``target_child`` name the nested scene of an end, if any."""

    source: str
    target: str
    kind: str = "flow"
    label: str = ""
    count: int | None = None
    source_child: str | None = None
    target_child: str | None = None


@dataclass(slots=True)
class Scene:
    """One workflow.

    Attributes:
        title: The name of its class.
        note: Its docstring.
        items: Boxes.
        lines: Arrows between them, and to and from boxes of ``children``.
        children: The attached workflows, by name.
        runs: Number of drawn runs; None without a run.
    """

    title: str
    note: str = ""
    items: list[Item] = field(default_factory=list[Item])
    lines: list[Line] = field(default_factory=list[Line])
    children: "dict[str, Scene]" = field(default_factory=dict[str, "Scene"])
    runs: int | None = None

    def everything(self) -> "Iterator[Scene]":
        """Yield this scene and the nested ones."""
        yield self
        for child in self.children.values():
            yield from child.everything()


def scene_of(
    graph: WorkflowGraph, counts: ExecutionCounts | None = None, *, max_label_length: int | None = None
) -> Scene:
    """Turn a graph into a scene.

    Args:
        graph: The event graph of a workflow.
        counts: The counts of a run; None draws the possible flows.
        max_label_length: Cut labels to this many characters.
    """
    scene = Scene(graph.name, graph.description or "", runs=counts.runs if counts is not None else None)
    for node in graph.nodes:
        label = node.label if max_label_length is None else node.truncated_label(max_label_length)
        note = getattr(node, "description", None) or (node.label if label != node.label else "")
        scene.items.append(Item(node.id, _kind_of(node), label, note))
    kinds = {item.id: item.kind for item in scene.items}
    for edge in graph.edges:
        kind = "needs" if kinds.get(edge.target) in ("resource", "resource_config") else "flow"
        scene.lines.append(Line(edge.source, edge.target, kind, edge.label or ""))
    for link in graph.links:
        source_child, source = _split(link.source, graph.children)
        target_child, target = _split(link.target, graph.children)
        kind = "call" if link.label else "link"
        scene.lines.append(Line(source, target, kind, link.label or "", None, source_child, target_child))
    for name, child in graph.children.items():
        of_child = None if counts is None else counts.children.get(name, ExecutionCounts())
        scene.children[name] = scene_of(child, of_child, max_label_length=max_label_length)
    if counts is not None:
        _Numbers(scene, counts).fill_in()
    return scene


def _kind_of(node: WorkflowGraphNode) -> str:
    if isinstance(node, WorkflowEventNode):
        return next((kind for kind, cls in _EVENT_KINDS if node.is_subclass_of(cls.__name__)), "event")
    return node.node_type if node.node_type in KINDS else "other"


def _split(end: str, children: Iterable[str]) -> tuple[str | None, str]:
    fitting = [name for name in children if end.startswith(f"{name}/")]
    if not fitting:
        return None, end
    name = max(fitting, key=len)
    return name, end[len(name) + 1 :]


def _by_name(counts: dict[str, dict[type[Event], int]]) -> Counts:
    found: Counts = {}
    for step, of_step in counts.items():
        for cls, count in of_step.items():
            names = found.setdefault(step, {})
            names[cls.__name__] = names.get(cls.__name__, 0) + count
    return found


class _Numbers:
    """Writer of a run's counts into a scene; it also adds undeclared events."""

    def __init__(self, scene: Scene, counts: ExecutionCounts) -> None:
        self.scene = scene
        self.counts = counts
        self.received = _by_name(counts.received)
        self.produced = _by_name(counts.produced)
        self.kinds = {item.id: item.kind for item in scene.items}

    def fill_in(self) -> None:
        self._add_undeclared()
        for line in self.scene.lines:
            line.count = self._count_of(line)
        busy: dict[str, int] = {}
        for line in self.scene.lines:
            if line.source_child is None:
                busy[line.source] = max(busy.get(line.source, 0), line.count or 0)
            if line.target_child is None:
                busy[line.target] = max(busy.get(line.target, 0), line.count or 0)
        for item in self.scene.items:
            item.count = self.counts.executions.get(item.id, 0) if item.kind == "step" else busy.get(item.id, 0)

    def _add_undeclared(self) -> None:
        known = {(line.source, line.target) for line in self.scene.lines}
        for counts, outgoing in ((self.counts.produced, True), (self.counts.received, False)):
            for step, of_step in counts.items():
                for cls in of_step:
                    name = cls.__name__
                    if cls is CollectionReleaseEvent or step not in self.kinds:
                        continue
                    if name not in self.kinds:
                        self.kinds[name] = next((kind for kind, base in _EVENT_KINDS if issubclass(cls, base)), "event")
                        self.scene.items.append(Item(name, self.kinds[name], name))
                    ends = (step, name) if outgoing else (name, step)
                    if ends not in known:
                        known.add(ends)
                        self.scene.lines.append(Line(*ends))

    def _count_of(self, line: Line) -> int:
        source, target = line.source, line.target
        if line.target_child is not None:
            child = self.counts.children.get(line.target_child, ExecutionCounts())
            return max((of_step.get(target, 0) for of_step in _by_name(child.received).values()), default=0)
        if line.source_child is not None:
            child = self.counts.children.get(line.source_child, ExecutionCounts())
            return sum(of_step.get(source, 0) for of_step in _by_name(child.produced).values())
        if line.kind == "needs":
            return self.counts.executions.get(source, 0)
        if self.kinds.get(source) == "step":
            return self.produced.get(source, {}).get(target, 0)
        if self.kinds.get(target) == "step":
            of_step = self.received.get(target, {})
            # A list is delivered as one event; the drawing shows the number of events in such lists.
            return self._made(source) if CollectionReleaseEvent.__name__ in of_step else of_step.get(source, 0)
        if self.kinds.get(target) == "external":
            return self._made(source)
        return max((of_step.get(target, 0) for of_step in self.received.values()), default=0)

    def _made(self, event: str) -> int:
        return sum(of_step.get(event, 0) for of_step in self.produced.values())

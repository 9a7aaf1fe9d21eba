"""The event graph of a workflow as data: nodes, edges, and the graphs of attached workflows."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

__all__ = [
    "WorkflowEventNode",
    "WorkflowExternalNode",
    "WorkflowGenericNode",
    "WorkflowGraph",
    "WorkflowGraphEdge",
    "WorkflowGraphNode",
    "WorkflowNodeBase",
    "WorkflowResourceConfigNode",
    "WorkflowResourceNode",
    "WorkflowStepNode",
]


class _GraphPart(BaseModel):
    # Validators are built at first use: most processes that run a workflow never read its graph.
    model_config = ConfigDict(defer_build=True)


class WorkflowNodeBase(_GraphPart):
    """Base of all nodes.

    Attributes:
        id: Unique in its graph; edges refer to it.
        label: The text to show.
    """

    id: str
    label: str

    def truncated_label(self, max_length: int) -> str:
        """Return the label, cut to ``max_length`` characters with a trailing ``*``."""
        if len(self.label) <= max_length:
            return self.label
        return f"{self.label[: max_length - 1]}*"


class WorkflowStepNode(WorkflowNodeBase):
    """A step; ``description`` is its docstring."""

    node_type: Literal["step"] = "step"
    description: str | None = None


class WorkflowEventNode(WorkflowNodeBase):
    """An event class.

    Attributes:
        event_type: The name of the class.
        event_types: The names of the class and of its bases below ``Event``.
        event_schema: The JSON schema of its fields; None if they have no schema.
        produced_by: Names of the steps that declare to return it, in lists or alone.
    """

    node_type: Literal["event"] = "event"
    event_type: str
    event_types: list[str]
    event_schema: dict[str, Any] | None = None
    produced_by: list[str] = Field(default_factory=list)

    def is_subclass_of(self, *type_names: str) -> bool:
        """Return True if the class, or one of its bases, has one of these names."""
        return any(name in self.event_types for name in type_names)


class WorkflowExternalNode(WorkflowNodeBase):
    """The outside that answers questions: a person or another system."""

    node_type: Literal["external"] = "external"


class WorkflowResourceNode(WorkflowNodeBase):
    """A resource that a factory creates for steps.

    Attributes:
        type_name: The annotated type.
        getter_name: The qualified name of the factory.
        source_file: The file of the factory, if known.
        source_line: The line in that file.
        description: The factory's docstring.
    """

    node_type: Literal["resource"] = "resource"
    type_name: str | None = None
    getter_name: str | None = None
    source_file: str | None = None
    source_line: int | None = None
    description: str | None = None


class WorkflowResourceConfigNode(WorkflowNodeBase):
    """Settings read from a JSON file.

    Attributes:
        type_name: The pydantic class they are read into.
        config_file: The file.
        path_selector: The part of it.
        config_schema: The JSON schema of the class.
        config_value: The present value of the file; None if it cannot be read.
        description: As given to ``ResourceConfig``.
    """

    node_type: Literal["resource_config"] = "resource_config"
    type_name: str | None = None
    config_file: str | None = None
    path_selector: str | None = None
    config_schema: dict[str, Any] | None = None
    config_value: dict[str, Any] | None = None
    description: str | None = None


class WorkflowGenericNode(WorkflowNodeBase):
    """A node of another kind, for graphs that are built by hand.

    Attributes:
        node_type: The kind, ``"agent"`` or ``"tool"`` for example.
        event_type: A type name, for kinds that have one.
        event_types: The names of the type and of its bases.
    """

    node_type: str
    event_type: str | None = None
    event_types: list[str] | None = None

    def is_subclass_of(self, *type_names: str) -> bool:
        """Return True if one of the type names is in ``event_types``."""
        return any(name in (self.event_types or ()) for name in type_names)


WorkflowGraphNode = (
    WorkflowStepNode
    | WorkflowEventNode
    | WorkflowExternalNode
    | WorkflowResourceNode
    | WorkflowResourceConfigNode
    | WorkflowGenericNode
)
"""Any node; ``node_type`` distinguishes them."""

_KINDS = ("step", "event", "external", "resource", "resource_config")


def _kind(value: Any) -> str:
    kind = value.get("node_type") if isinstance(value, dict) else getattr(value, "node_type", None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return kind if kind in _KINDS else "generic"  # pyright: ignore[reportUnknownVariableType]


_Node = Annotated[
    Annotated[WorkflowStepNode, Tag("step")]
    | Annotated[WorkflowEventNode, Tag("event")]
    | Annotated[WorkflowExternalNode, Tag("external")]
    | Annotated[WorkflowResourceNode, Tag("resource")]
    | Annotated[WorkflowResourceConfigNode, Tag("resource_config")]
    | Annotated[WorkflowGenericNode, Tag("generic")],
    Discriminator(_kind),
]


class WorkflowGraphEdge(_GraphPart):
    """An arrow from one node to another; on arrows to resources ``label`` is the name of the parameter."""

    source: str
    target: str
    label: str | None = None


class WorkflowGraph(_GraphPart):
    """The event graph of a workflow.

    Attributes:
        name: The name of the class.
        nodes: Steps, events, resources and the outside.
        edges: Arrows between ids of ``nodes``.
        description: The docstring of the class.
        children: The graphs of attached workflows, by the name under which they are attached.
        links: Arrows between this graph and the graphs of ``children``, whose nodes are called ``child/id`` here.
    """

    name: str
    nodes: list[_Node]
    edges: list[WorkflowGraphEdge]
    description: str | None = None
    children: dict[str, "WorkflowGraph"] = Field(default_factory=dict)
    links: list[WorkflowGraphEdge] = Field(default_factory=list[WorkflowGraphEdge])

    def filter_by_node_type(self, *node_types: str) -> "WorkflowGraph":
        """Return a graph without the nodes of some types, with arrows across the removed ones.

        The new arrows carry the label of the first removed node between their ends. Attached workflows are filtered
        too; arrows to them stay if both ends stay.

        Args:
            node_types: Values of ``node_type``.

        Example:
            >>> get_workflow_representation(flow).filter_by_node_type("event")  # only steps, joined by events' names
        """
        gone = {node.id: node for node in self.nodes if node.node_type in node_types}
        after: dict[str, list[WorkflowGraphEdge]] = {}
        for edge in self.edges:
            after.setdefault(edge.source, []).append(edge)
        nodes = [node for node in self.nodes if node.id not in gone]
        edges: dict[tuple[str, str], WorkflowGraphEdge] = {}
        for node in nodes:
            for target, label in _across(node.id, gone, after):
                edges.setdefault((node.id, target), WorkflowGraphEdge(source=node.id, target=target, label=label))
        kept = {node.id for node in nodes}
        children = {name: child.filter_by_node_type(*node_types) for name, child in self.children.items()}
        kept |= {f"{name}/{node.id}" for name, child in children.items() for node in child.nodes}
        links = [link for link in self.links if link.source in kept and link.target in kept]
        return WorkflowGraph(
            name=self.name,
            nodes=nodes,
            edges=list(edges.values()),
            description=self.description,
            children=children,
            links=links,
        )


def _across(
    start: str, gone: dict[str, WorkflowGraphNode], after: dict[str, list[WorkflowGraphEdge]]
) -> list[tuple[str, str | None]]:
    """Yield the remaining nodes after ``start``, with the label of the edge or of the first removed node."""
    found: list[tuple[str, str | None]] = []
    seen: set[str] = set()
    waiting: list[tuple[str, str | None]] = [(start, None)]
    while waiting:
        source, label = waiting.pop()
        deeper: list[tuple[str, str | None]] = []
        for edge in after.get(source, ()):
            removed = gone.get(edge.target)
            if removed is None:
                found.append((edge.target, edge.label if label is None else label))
            elif removed.id not in seen:
                seen.add(removed.id)
                deeper.append((removed.id, removed.label if label is None else label))
        waiting.extend(reversed(deeper))
    return found

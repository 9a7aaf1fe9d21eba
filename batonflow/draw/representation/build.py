"""Build the event graph from the signatures of the steps."""

import hashlib
import inspect
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from batonflow.draw.representation.types import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowGraphNode,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
)
from batonflow.resources import Resource, ResourceConfig, ResourceDefinition
from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from batonflow.workflow_core.validation.tree import AttachedWorkflow, member_of
from batonflow.workflow_core.workflow import Workflow

__all__ = ["get_workflow_representation"]

_OUTSIDE = "external_step"


def get_workflow_representation(workflow: Workflow | type[Workflow]) -> WorkflowGraph:
    """Return the event graph of a workflow, including the attached workflows.

    Args:
        workflow: A workflow or a class; a class only knows attached workflows that its steps request.

    Example:
        >>> graph = get_workflow_representation(MyWorkflow)
        >>> [node.id for node in graph.nodes if node.node_type == "step"]
    """
    return _graph_of(member_of(workflow))


def _graph_of(member: AttachedWorkflow) -> WorkflowGraph:
    builder = _Builder(member)
    children = {child.name: _graph_of(child) for child in member.children}
    return WorkflowGraph(
        name=member.workflow_class.__name__,
        nodes=list(builder.nodes.values()),
        edges=list(builder.edges.values()),
        description=_own_docstring(member.workflow_class),
        children=children,
        links=list(_links(member)),
    )


def _own_docstring(workflow_class: type) -> str | None:
    """Return the docstring of a class or of the user's base classes, except that of ``Workflow`` itself."""
    for base in workflow_class.__mro__:
        if "__batonflow_workflow__" in vars(base):
            return None
        if vars(base).get("__doc__"):
            return inspect.cleandoc(vars(base)["__doc__"])
    return None


def _step_docstring(function: Any) -> str | None:
    """Return the docstring of a step, unless it is inherited from a method of ``Workflow``."""
    text = inspect.getdoc(function)
    inherited = function.__doc__ is None and text == inspect.getdoc(getattr(Workflow, function.__name__, None))
    return None if inherited else text


class _Builder:
    """Collector of the nodes and edges of one workflow; nodes come first, because edges refer to them."""

    def __init__(self, member: AttachedWorkflow) -> None:
        self.member = member
        self.nodes: dict[str, WorkflowGraphNode] = {}
        self.edges: dict[tuple[str, str, str | None], WorkflowGraphEdge] = {}
        self._events: dict[type[Event], None] = {}
        self._resource_ids: dict[Any, str] = {}
        for spec in member.steps.values():
            self._add(WorkflowStepNode(id=spec.name, label=spec.name, description=_step_docstring(spec.func)))
            for cls in (*spec.config.accepted_events, *spec.config.return_types):
                if issubclass(cls, Event):
                    self._add_event(cls)
            for definition in spec.resources:
                self._add_resource(definition)
        for spec in member.steps.values():
            self._add_step_edges(spec.name)

    def _add(self, node: WorkflowGraphNode) -> None:
        self.nodes.setdefault(node.id, node)

    def _edge(self, source: str, target: str, label: str | None = None) -> None:
        self.edges.setdefault((source, target, label), WorkflowGraphEdge(source=source, target=target, label=label))

    def _add_event(self, cls: type[Event]) -> None:
        if cls in self._events:
            return
        self._events[cls] = None
        made = self.member.produced().items()
        producers = [name for other, names in made if other.__name__ == cls.__name__ for name in names]
        self._add(
            WorkflowEventNode(
                id=cls.__name__,
                label=cls.__name__,
                event_type=cls.__name__,
                event_types=_chain(cls),
                event_schema=_schema(cls),
                produced_by=list(dict.fromkeys(producers)),
            )
        )
        if issubclass(cls, InputRequiredEvent) and cls in self.member.produced():
            self._add(WorkflowExternalNode(id=_OUTSIDE, label=_OUTSIDE))

    def _add_step_edges(self, name: str) -> None:
        spec = self.member.steps[name]
        for cls in spec.config.return_types:
            if issubclass(cls, Event):
                self._edge(name, cls.__name__)
                if issubclass(cls, InputRequiredEvent):
                    self._edge(cls.__name__, _OUTSIDE)
        for cls in self._events:
            exact = cls in spec.config.accepted_events
            if not exact and (issubclass(cls, StopEvent) or not spec.matches(cls, spec.config.accepted_events)):
                continue
            self._edge(cls.__name__, name)
            if issubclass(cls, HumanResponseEvent) and _OUTSIDE in self.nodes:
                self._edge(_OUTSIDE, cls.__name__)
        for definition in spec.resources:
            self._edge(name, self._add_resource(definition), definition.name)

    def _add_resource(self, definition: ResourceDefinition) -> str:
        """Add the node of a resource, and the resources of its factory; return its id."""
        descriptor = definition.descriptor
        if isinstance(descriptor, ResourceConfig):
            file = _config_file(descriptor)
            key: Any = (ResourceConfig, file, descriptor.path_selector)
            node: WorkflowGraphNode = _config_node(descriptor, file, definition.type_annotation)
        else:
            key = descriptor.identity(definition.type_annotation)
            node = _resource_node(definition)
        if key in self._resource_ids:
            return self._resource_ids[key]
        count = 1
        while node.id in self.nodes:  # another factory of the same name in the same file
            count += 1
            node.id = f"resource_{_digest(f'{descriptor.name}:{count}')}"
        self._resource_ids[key] = node.id
        self._add(node)
        for dependency in descriptor.get_dependencies():
            self._edge(node.id, self._add_resource(dependency), dependency.name)
        return node.id


def _chain(cls: type[Event]) -> list[str]:
    bases = [base for base in cls.__mro__ if issubclass(base, Event)]
    return [base.__name__ for base in bases if base is not Event or cls is Event]


def _schema(cls: Any) -> dict[str, Any] | None:
    if not (isinstance(cls, type) and issubclass(cls, BaseModel)):
        return None
    try:
        return cls.model_json_schema()
    except PydanticInvalidForJsonSchema:  # a field type without a JSON form
        return None


def _type_name(annotation: Any) -> str | None:
    if annotation is None:
        return None
    return getattr(annotation, "__name__", None) or str(annotation)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _resource_node(definition: ResourceDefinition) -> WorkflowResourceNode:
    descriptor = definition.descriptor
    factory: Any = descriptor.factory if isinstance(descriptor, Resource) else None  # pyright: ignore[reportUnknownMemberType]
    file, line = _source(factory)
    type_name = _type_name(definition.type_annotation)
    return WorkflowResourceNode(
        id=f"resource_{_digest(f'{descriptor.name}:{file}')}",
        label=type_name or descriptor.name,
        type_name=type_name,
        getter_name=descriptor.name,
        source_file=file,
        source_line=line,
        description=inspect.getdoc(factory) if factory is not None else None,
    )


def _source(factory: Any) -> tuple[str | None, int | None]:
    try:
        return inspect.getsourcefile(factory), inspect.getsourcelines(factory)[1]
    except (TypeError, OSError):  # made by C code, by functools.partial, or typed into a prompt
        return None, None


def _config_file(config: ResourceConfig) -> str:
    try:
        return config.config_file
    except FileNotFoundError:
        return config.name if config.path_selector is None else config.name.removesuffix(f".{config.path_selector}")


def _config_node(config: ResourceConfig, file: str, annotation: Any) -> WorkflowResourceConfigNode:
    type_name = _type_name(annotation)
    try:
        value = config.read()
    except (OSError, ValueError):
        value = None
    place = f"{file}:{config.path_selector or ''}"
    return WorkflowResourceConfigNode(
        id=f"resource_config_{_digest(place)}",
        label=config.label or type_name or file,
        type_name=type_name,
        config_file=file,
        path_selector=config.path_selector,
        config_schema=_schema(annotation),
        config_value=value,
        description=config.description,
    )


def _links(member: AttachedWorkflow) -> Iterable[WorkflowGraphEdge]:
    """Yield events between a workflow and its attached workflows, and steps that run one themselves."""
    for child in member.children:
        for cls in member.produced():
            if child in member.receivers(cls):
                yield WorkflowGraphEdge(source=cls.__name__, target=f"{child.name}/{cls.__name__}")
        for cls in child.produced():
            if member in child.receivers(cls):
                yield WorkflowGraphEdge(source=f"{child.name}/{cls.__name__}", target=cls.__name__)
        start = _start_node(child)
        for spec in member.steps.values():
            for slot in spec.children:
                if start is not None and _means(slot.name, slot.workflow_class, child, member):
                    yield WorkflowGraphEdge(source=spec.name, target=f"{child.name}/{start}", label=slot.name)
            for definition in spec.resources:
                if start is not None and definition.name == child.name and child.workflow is None:
                    yield WorkflowGraphEdge(source=spec.name, target=f"{child.name}/{start}", label=definition.name)


def _start_node(child: AttachedWorkflow) -> str | None:
    accepted = [cls for spec in child.steps.values() for cls in spec.config.accepted_events]
    return next((cls.__name__ for cls in accepted if issubclass(cls, StartEvent)), None)


def _means(name: str, wanted: type, child: AttachedWorkflow, member: AttachedWorkflow) -> bool:
    """Return True if a step parameter receives this attached workflow. It goes by name, or by a unique class."""
    if not issubclass(child.workflow_class, wanted):
        return False
    if child.name == name:
        return True
    fitting = [other for other in member.children if issubclass(other.workflow_class, wanted)]
    return len(fitting) == 1 and all(other.name != name for other in fitting)

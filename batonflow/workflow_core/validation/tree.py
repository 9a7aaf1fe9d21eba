"""A workflow with its attached workflows, for checks and drawings, and the events between them.

An event that no step of its own workflow takes goes to the attached workflows and to the workflow around, and no
further. So only its neighbours in the tree matter to a workflow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.workflow_core.engine.state import WorkItem, current_item
from batonflow.workflow_core.events import Event, StartEvent, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import ClassSteps, StepSpec, StepTable, steps_of

__all__ = ["AttachedWorkflow", "calling_step", "member_of"]


@dataclass(eq=False)
class AttachedWorkflow:
    """A workflow in a tree.

    Attributes:
        name: The name under which it is attached; empty for the root.
        workflow_class: Its class.
        workflow: The instance; None if only the class is known, because a step asks for it or a resource will make it.
        table: Its steps.
        entry: The events that start a run of the workflow when it is attached.
        parent: The workflow to which it is attached.
        children: The workflows that are attached to it.
    """

    name: str
    workflow_class: type[Any]
    workflow: AnyWorkflow | None
    table: StepTable
    entry: tuple[type[Event], ...]
    parent: "AttachedWorkflow | None" = None
    children: "list[AttachedWorkflow]" = field(default_factory=list["AttachedWorkflow"])

    @property
    def label(self) -> str:
        """Return the name of the class, with the name under which the workflow is attached."""
        own = self.workflow_class.__name__
        return f"{own} (attached as {self.name!r})" if self.name else own

    @property
    def steps(self) -> dict[str, StepSpec]:
        """Return the steps by name."""
        return self.table.steps

    def everyone(self) -> "Iterator[AttachedWorkflow]":
        """Yield this workflow and all workflows below it."""
        yield self
        for child in self.children:
            yield from child.everyone()

    def produced(self) -> dict[type[Event], list[str]]:
        """Return event classes with the steps that declare to return them."""
        found: dict[type[Event], list[str]] = {}
        for spec in self.steps.values():
            for cls in spec.config.return_types:
                if issubclass(cls, Event):
                    found.setdefault(cls, []).append(spec.name)
        return found

    def takes(self, event_type: type[Event]) -> bool:
        """Tell whether a step accepts events of a type."""
        if issubclass(event_type, StopEvent):
            # A returned StopEvent ends the run and is not routed, even to a step that accepts all events.
            return event_type in self.table.accepted
        return self.table.routes[event_type].accepted

    def receivers(self, event_type: type[Event]) -> "list[AttachedWorkflow]":
        """Return the neighbours that receive an event that no step here takes."""
        if issubclass(event_type, StopEvent) or self.takes(event_type):
            return []
        found = [child for child in self.children if event_type in child.entry or child.takes(event_type)]
        if self.parent is not None and self.parent.takes(event_type):
            found.append(self.parent)
        return found

    def neighbours(self) -> "list[AttachedWorkflow]":
        """Return the workflows attached here, and the one around."""
        return [*self.children, *([self.parent] if self.parent is not None else [])]

    def arrivals(self) -> set[type[Event]]:
        """Return the event types that neighbours produce and send here; for a service, also those of other runs."""
        service = self.workflow is not None and self.workflow.__batonflow__.on_stall == "wait"
        found = set(steps_of(self.workflow_class).given_from_outside) if service else set[type[Event]]()
        return found | {cls for other in self.neighbours() for cls in other.produced() if self in other.receivers(cls)}


def member_of(workflow: AnyWorkflow | type[Any]) -> AttachedWorkflow:
    """Return the root of the tree of a workflow, or its place there.

    If a step of another workflow is running this workflow now, that other workflow is its parent.
    """
    if isinstance(workflow, type):
        return _read("", workflow, None, None, ())
    around = calling_step(workflow)
    if around is None:
        return _read("", type(workflow), workflow, None, ())
    family, name, _ = around
    parent_workflow: Any = family.run.workflow
    parent = _read("", cast("type[Any]", type(parent_workflow)), parent_workflow, None, ())
    known = next((child for child in parent.children if child.workflow is workflow), None)
    if known is not None:
        return known
    parent.children = [child for child in parent.children if child.name != name]
    member = _read(name, type(workflow), workflow, parent, (parent_workflow,))
    parent.children.append(member)
    return member


def calling_step(workflow: AnyWorkflow) -> tuple[Any, str, WorkItem] | None:
    """Return the step that is running here, when the workflow is attached to its run.

    Returns:
        The place of that run in the tree, the name under which the workflow is attached, and the delivery of the step.
    """
    item = current_item.get()
    if item is None or item.run is None or item.run.family is None:
        return None
    name = item.run.family.name_of(workflow)
    return None if name is None else (item.run.family, name, item)


def _read(
    name: str,
    workflow_class: type[Any],
    workflow: AnyWorkflow | None,
    parent: AttachedWorkflow | None,
    ancestors: tuple[object, ...],
) -> AttachedWorkflow:
    steps = steps_of(workflow_class) if workflow is None else workflow.__batonflow__.steps
    table = steps.table
    member = AttachedWorkflow(name, workflow_class, workflow, table, _entry_of(steps, table), parent)
    ancestors = (*ancestors, workflow if workflow is not None else workflow_class)
    for child_name, child in (workflow.__batonflow__.children if workflow is not None else {}).items():
        if child not in ancestors:
            member.children.append(_read(child_name, cast("type[Any]", type(child)), child, member, ancestors))
    promised = _made_by_resources(table) if workflow is not None else {**_asked_for(table), **_made_by_resources(table)}
    for child_name, child_class in promised.items():
        if child_class not in ancestors and all(child.name != child_name for child in member.children):
            member.children.append(_read(child_name, child_class, None, member, ancestors))
    return member


def _entry_of(steps: ClassSteps, table: StepTable) -> tuple[type[Event], ...]:
    starts = tuple(cls for cls in table.accepted if issubclass(cls, StartEvent) and cls is not StartEvent)
    return steps.entry or starts


def _asked_for(table: StepTable) -> dict[str, type[Any]]:
    """Return parameter names with classes of attached workflows that steps ask for; a class knows no more."""
    slots = [slot for spec in table.steps.values() for slot in spec.children]
    return {slot.name: cast(type[Any], slot.workflow_class) for slot in slots}


def _made_by_resources(table: StepTable) -> dict[str, type[Any]]:
    """Return parameter names with classes of the workflows that steps get as resources."""
    found: dict[str, type[Any]] = {}
    for spec in table.steps.values():
        for definition in spec.resources:
            wanted: Any = definition.type_annotation
            if isinstance(wanted, type) and getattr(wanted, "__batonflow_workflow__", False):
                found.setdefault(definition.name, cast(type[Any], wanted))
    return found

"""Checks before a run: a step accepts each event, each step can be reached, and resources exist.

The checks have a fixed order, so that the first message explains the later ones. They check
the whole tree of attached workflows, because events pass between its workflows.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from batonflow.resources import ResourceDefinition, ResourceManager
from batonflow.values.names import qualified_name
from batonflow.workflow_core.errors import WorkflowConfigurationError, WorkflowValidationError
from batonflow.workflow_core.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import Level
from batonflow.workflow_core.typed import declared_result
from batonflow.workflow_core.validation.tree import AttachedWorkflow, member_of

__all__ = ["check_once", "graph_problems", "validate_workflow"]

Node = str | type[Event]
"""A step by its name, or an event class."""


def graph_problems(member: AttachedWorkflow, skipped: frozenset[str]) -> list[str]:
    """Return the errors in the graph of one workflow. Each is a text with a hint on its second line."""
    graph = _Graph(member)
    problems: list[str] = []
    if "reachability" not in skipped:
        problems += _unreachable(member, graph)
        problems += _never_started(member)
    if "terminal_event" not in skipped:
        problems += _without_consumer(member, graph)
    if "dead_end" not in skipped:
        problems += _dead_ends(member, graph)
    return problems


class _Graph:
    """The graph of steps and event classes, in both directions."""

    def __init__(self, member: AttachedWorkflow) -> None:
        arriving = sorted(member.arrivals(), key=lambda cls: cls.__name__)
        self.events = list(dict.fromkeys([*member.table.accepted, *member.produced(), *arriving]))
        self.after: dict[Node, list[Node]] = {}
        self.before: dict[Node, list[Node]] = {}
        for spec in member.steps.values():
            for cls in spec.config.return_types:
                if issubclass(cls, Event):
                    self._arrow(spec.name, cls)
            for cls in self.events:
                # A StopEvent is not routed, even if a step accepts all subclasses of Event.
                exact = cls in spec.config.accepted_events
                if exact or (spec.matches(cls, spec.config.accepted_events) and not issubclass(cls, StopEvent)):
                    self._arrow(cls, spec.name)

    def _arrow(self, source: Node, target: Node) -> None:
        self.after.setdefault(source, []).append(target)
        self.before.setdefault(target, []).append(source)

    def reach(self, seeds: Iterable[Node], *, backwards: bool = False) -> set[Node]:
        arrows = self.before if backwards else self.after
        found: set[Node] = set()
        stack = list(seeds)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(arrows.get(node, ()))
        return found


def _unreachable(member: AttachedWorkflow, graph: _Graph) -> Iterator[str]:
    arrivals = member.arrivals()
    from_outside = {
        cls
        for cls in graph.events
        if issubclass(cls, StartEvent | HumanResponseEvent) or cls in member.entry or cls in arrivals
    }
    reached = graph.reach([*from_outside, *member.table.handlers])
    lost = sorted(
        name
        for name, spec in member.steps.items()
        if name not in reached and "reachability" not in spec.config.skip_graph_checks
    )
    if lost:
        yield (
            f"[reachability] Unreachable steps: {', '.join(lost)} (workflow {member.label})\n"
            "    Steps must be reachable from StartEvent, a HumanResponseEvent or an event of a neighbouring workflow: "
            'let a step that runs return what they accept, or say @step(skip_graph_checks=["reachability"])'
        )


def _never_started(member: AttachedWorkflow) -> Iterator[str]:
    """Find attached workflows that only an event can start which no step here returns."""
    lost: list[str] = []
    for child in member.children:
        if any(issubclass(cls, StartEvent) for cls in child.table.accepted) or not child.entry:
            continue
        if not any(cls in member.produced() and child in member.receivers(cls) for cls in child.entry):
            lost.append(f"{child.label} starts on {' or '.join(cls.__name__ for cls in child.entry)}")
    if lost:
        yield (
            f"[reachability] Attached workflows that are never started: {'; '.join(lost)} (workflow {member.label})\n"
            f"    Let a step of {member.workflow_class.__name__} declare to return that event, and let none there "
            "accept it"
        )


def _without_consumer(member: AttachedWorkflow, graph: _Graph) -> Iterator[str]:
    lost = sorted(
        cls.__name__
        for cls in graph.events
        if not graph.after.get(cls)
        and not issubclass(cls, StopEvent | InputRequiredEvent)
        and not member.receivers(cls)
    )
    if lost:
        yield (
            f"[terminal_event] Events produced but never consumed: {', '.join(lost)} (workflow {member.label})\n"
            "    Only StopEvent and InputRequiredEvent may be last: write a step that accepts them, or do not return "
            "them"
        )


def _dead_ends(member: AttachedWorkflow, graph: _Graph) -> Iterator[str]:
    last = [cls for cls in graph.events if issubclass(cls, StopEvent | InputRequiredEvent) or member.receivers(cls)]
    leading = graph.reach(last, backwards=True)
    lost = sorted(
        name
        for name, spec in member.steps.items()
        if graph.after.get(name) and name not in leading and "dead_end" not in spec.config.skip_graph_checks
    )
    if lost:
        yield (
            f"[dead_end] Dead-end steps: {', '.join(lost)} (workflow {member.label})\n"
            "    Steps must have a path to StopEvent or InputRequiredEvent: let one of the steps behind return a "
            'StopEvent, or say @step(skip_graph_checks=["dead_end"])'
        )


_FROM_OUTSIDE = (InputRequiredEvent, HumanResponseEvent, StopEvent, StepFailedEvent)
_TO_OUTSIDE = (InputRequiredEvent, HumanResponseEvent, StopEvent)


def check_once(workflow: AnyWorkflow) -> None:
    """Check the steps of a workflow once, unless validation is disabled.

    Raises:
        WorkflowValidationError: The workflow is not valid.
    """
    options = workflow.__batonflow__
    table = options.steps.table
    if options.validated is not table:
        if not options.disable_validation:
            validate_workflow(workflow)
        options.validated = table


def validate_workflow(
    workflow: AnyWorkflow, *, validate_resource_configs: bool = True, validate_resources: bool = False
) -> bool:
    """Check a workflow and its attached workflows.

    Args:
        workflow: The workflow.
        validate_resource_configs: Read the files of ``ResourceConfig`` parameters.
        validate_resources: Create all resources; not possible inside a running event loop.

    Returns:
        Whether people take part: an InputRequiredEvent is produced or a HumanResponseEvent accepted.

    Raises:
        WorkflowConfigurationError: There are no steps, no start or stop event, or several of them.
        WorkflowValidationError: Another check failed.
        RuntimeError: ``validate_resources`` inside a running event loop.
    """
    root = member_of(workflow)
    members = [member for member in root.everyone() if member is root or not _is_left_out(member)]
    for member in members:
        if member.neighbours():
            _check_member(member)
        else:  # the outcome depends on the class and the skipped checks, so it holds for other instances, too
            key = " ".join(["sound without", *sorted(_skipped(member))])
            member.table.once(key, partial(_check_member, member))
    if validate_resource_configs:
        _raise_all("Resource config validation failed:", _config_problems(members, workflow))
    if validate_resources:
        _raise_all("Resource validation failed:", _resource_problems(members, workflow))
    return any(member.table.once("asks people", partial(_asks_people, member)) for member in members)


def _is_left_out(member: AttachedWorkflow) -> bool:
    return member.workflow is not None and member.workflow.__batonflow__.disable_validation


def _skipped(member: AttachedWorkflow) -> frozenset[str]:
    """The skipped graph checks."""
    return member.workflow.__batonflow__.skip_graph_checks if member.workflow is not None else frozenset()


def _check_member(member: AttachedWorkflow) -> None:
    _check_steps(member)
    _check_list_joins(member)
    _check_joins(member)
    _check_stop_not_accepted(member)
    _check_consumed(member)
    _check_produced(member)
    _check_handlers(member)
    _check_attached(member)
    _raise_all("Graph validation failed:", graph_problems(member, _skipped(member)))


def _raise_all(headline: str, problems: list[str]) -> None:
    if problems:
        raise WorkflowValidationError("\n".join([headline, *(f"  - {problem}" for problem in problems)]))


def _names(classes: Iterable[type]) -> str:
    return ", ".join(sorted(cls.__name__ for cls in classes))


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- steps ------------------------------------------------------------------------------------------------------------


def _check_steps(member: AttachedWorkflow) -> None:
    if not member.steps:
        raise WorkflowConfigurationError(
            f"Workflow {member.label} has no configured steps: decorate its methods with @step, "
            f"or add free functions with @step(workflow={member.workflow_class.__name__})"
        )
    if member.workflow is not None:
        # Reading these raises an error unless there is exactly one class of each.
        steps = member.workflow.__batonflow__.steps
        _ = (steps.start_event_class, steps.stop_event_class)
    _check_result(member)
    for name, replaced in member.table.unknown_replaced.items():
        raise WorkflowValidationError(
            f"Step {name!r} of {member.label} replaces {replaced!r}, but there is no such step; "
            f"the steps are {_quoted(member.steps)}"
        )
    for event_type in member.entry:
        if not member.takes(event_type):
            raise WorkflowValidationError(
                f"{member.label} declares {event_type.__name__} in entry=[...], but no step of it accepts it: "
                f"write a step for {event_type.__name__}, or drop it from entry"
            )


def _check_result(member: AttachedWorkflow) -> None:
    """Compare the StopEvent that a class declares, as in ``Workflow[Total]``, with the ones that its steps return."""
    declared = declared_result(member.workflow_class)
    if not (isinstance(declared, type) and issubclass(declared, StopEvent)):
        return
    for name, spec in member.steps.items():
        for cls in spec.config.return_types:
            if issubclass(cls, StopEvent) and not issubclass(cls, declared):
                raise WorkflowConfigurationError(
                    f"{member.label} is declared as Workflow[{declared.__name__}], but step {name!r} returns "
                    f"{cls.__name__}: let the step return {declared.__name__}, or declare Workflow[{cls.__name__}]"
                )


def _check_list_joins(member: AttachedWorkflow) -> None:
    levels = member.table.levels()
    for spec in member.steps.values():
        if spec.config.collect is None:
            continue
        missing = [
            wanted
            for wanted in spec.config.accepted_events
            if not any(level for cls in levels if spec.matches(cls, [wanted]) for level in levels[cls])
        ]
        if missing:
            raise WorkflowValidationError(
                f"Step {spec.name!r} of {member.label}: parameter {spec.config.event_name!r} collects "
                f"list[{_names(missing)}], but {_names(missing)} has no returned-list producer. A list parameter is "
                "filled by the output of a step annotated `-> list[...]`; for events sent one by one use "
                "ctx.collect_events"
            )


def _check_joins(member: AttachedWorkflow) -> None:
    levels = member.table.levels()
    for spec in member.steps.values():
        if len(spec.slots) < 2:
            continue
        found: list[set[Level]] = [
            {level for cls in levels if spec.matches(cls, slot.types) for level in levels[cls]} for slot in spec.slots
        ]
        if not found[0].intersection(*found[1:]):
            where = "; ".join(
                f"{slot.name!r} ({slot.types[0].__name__}) comes {_places(slot_levels)}"
                for slot, slot_levels in zip(spec.slots, found, strict=True)
            )
            raise WorkflowValidationError(
                f"Step {spec.name!r} of {member.label} joins events that never meet on a common stream level: {where}. "
                "Let all of them come from the same list, or wait for the other event with ctx.wait_for_event"
            )


def _places(levels: set[Level]) -> str:
    nested = [" inside that of ".join(map(repr, reversed(level))) for level in sorted(levels) if level]
    outside = ["outside any list"] if () in levels else []
    return " and ".join([*outside, *(f"in the list of {place}" for place in nested)]) or "from nowhere"


def _check_stop_not_accepted(member: AttachedWorkflow) -> None:
    wrong = {
        name: next(cls for cls in spec.config.accepted_events if issubclass(cls, StopEvent))
        for name, spec in member.steps.items()
        if any(issubclass(cls, StopEvent) for cls in spec.config.accepted_events)
    }
    if wrong:
        names = " and ".join(map(repr, wrong))
        raise WorkflowValidationError(
            f"Step {names} of {member.label} cannot accept StopEvent ({_names(set(wrong.values()))}): it ends the run "
            "and reaches no step. Let the step before return another event, and return the StopEvent last"
        )


# --- events -----------------------------------------------------------------------------------------------------------


def _check_consumed(member: AttachedWorkflow) -> None:
    start_class = next((cls for cls in member.table.accepted if issubclass(cls, StartEvent)), StartEvent)
    produced = {*member.produced(), *member.arrivals(), *member.entry, start_class}
    lost: dict[type[Event], list[str]] = {}
    for spec in member.steps.values():
        for wanted in spec.config.accepted_events:
            if not issubclass(wanted, _FROM_OUTSIDE) and not any(spec.matches(cls, [wanted]) for cls in produced):
                lost.setdefault(wanted, []).append(spec.name)
    if lost:
        lines = [_consumed_line(member, cls, lost[cls]) for cls in sorted(lost, key=lambda cls: cls.__name__)]
        _raise_all(f"The following events are consumed but never produced: {_names(lost)}", lines)


def _consumed_line(member: AttachedWorkflow, wanted: type[Event], steps: list[str]) -> str:
    name = wanted.__name__
    line = f"{name} is accepted by step {_quoted(steps)} of {member.label}, but {_nobody(member)} returns it"
    near = [(other, cls) for other in (member, *member.neighbours()) for cls in other.produced()]
    for other, cls in near:
        where = f"step {_quoted(other.produced()[cls])} of {other.label}"
        if cls is wanted and other is not member:
            return (
                f"{line} to it: {where} does, but a step of {other.label} takes it there. "
                f"Let only one workflow accept {name}"
            )
        if cls is not wanted and cls.__name__ == name:
            return (
                f"{line}: {where} returns another class of that name ({qualified_name(cls)}, "
                f"not {qualified_name(wanted)}). Import the same one on both sides"
            )
        if other is member and cls is not wanted and issubclass(cls, wanted):
            return (
                f"{line}: {where} returns {cls.__name__}, a subclass, but a step takes exactly the annotated types. "
                f"Use @step(accept_event_subclasses=True) on {_quoted(steps)}, or annotate {cls.__name__}"
            )
    return (
        f"{line}. Add {name} to the return annotation of the step that returns or sends it, "
        f"or remove it from {_quoted(steps)}"
    )


def _nobody(member: AttachedWorkflow) -> str:
    others = [f"of {other.label}" for other in member.neighbours()]
    return " nor ".join(["no other step" if not others else "no step of it", *others])


def _check_produced(member: AttachedWorkflow) -> None:
    produced = member.produced()
    lost = [
        cls
        for cls in produced
        if not issubclass(cls, _TO_OUTSIDE) and not member.takes(cls) and not member.receivers(cls)
    ]
    if lost:
        lines = [_produced_line(member, cls, produced[cls]) for cls in sorted(lost, key=lambda cls: cls.__name__)]
        _raise_all(f"The following events are produced but never consumed: {_names(lost)}", lines)


def _produced_line(member: AttachedWorkflow, cls: type[Event], producers: list[str]) -> str:
    name = cls.__name__
    line = f"{name} is returned by step {_quoted(producers)} of {member.label}, but {_nobody(member)} accepts it"
    bases = [
        (spec, base)
        for spec in member.steps.values()
        for base in spec.config.accepted_events
        if issubclass(cls, base) and spec.config.catch_error is None
    ]
    if bases:
        spec, base = bases[0]
        return (
            f"{line}: step {spec.name!r} takes exactly {base.__name__}, not its subclasses. "
            f"Use @step(accept_event_subclasses=True) there, or annotate {name}"
        )
    return f"{line}. Write a step that takes {name}, attach a workflow that does, or remove it from the annotation"


def _asks_people(member: AttachedWorkflow) -> bool:
    return member.table.accepts_human or any(issubclass(cls, InputRequiredEvent) for cls in member.produced())


# --- handlers and attached workflows ----------------------------------------------------------------------------------


def _check_handlers(member: AttachedWorkflow) -> None:
    problems: list[str] = []
    handlers = member.table.handlers
    wildcards = sorted(name for name, config in handlers.items() if config.for_steps is None)
    if len(wildcards) > 1:
        problems.append(
            f"There can be only one wildcard @catch_error handler, found {len(wildcards)}: {_quoted(wildcards)}; "
            "say for_steps=[...] on the others"
        )
    owners: dict[str, str] = {}
    for name, config in handlers.items():
        for target in dict.fromkeys(config.for_steps or ()):
            if target not in member.steps:
                known = _quoted(step for step in member.steps if step not in handlers)
                problems.append(f"@catch_error handler {name!r} lists unknown step {target!r}; the steps are {known}")
            elif target in handlers:
                problems.append(
                    f"@catch_error handler {name!r} cannot cover another handler step, {target!r}; "
                    "remove it from for_steps"
                )
            elif target in owners:
                problems.append(
                    f"Step {target!r} is claimed by two @catch_error handlers, {owners[target]!r} and {name!r}; "
                    "name it in one of them"
                )
            owners.setdefault(target, name)
    _raise_all(f"The @catch_error handlers of {member.label} do not fit:", problems)


def _check_attached(member: AttachedWorkflow) -> None:
    if member.workflow is None:
        return
    attached = member.workflow.__batonflow__.children
    for spec in member.steps.values():
        for slot in spec.children:
            named = attached.get(slot.name)
            fitting = [name for name, child in attached.items() if isinstance(child, slot.workflow_class)]
            if slot.has_default or slot.name in fitting or (named is None and len(fitting) == 1):
                continue
            found = f"several of them are attached, as {_quoted(fitting)}" if len(fitting) > 1 else "none is attached"
            wanted = slot.workflow_class.__name__
            raise WorkflowValidationError(
                f"Step {spec.name!r} of {member.label} asks for the attached workflow {slot.name!r} ({wanted}), "
                f"but {found}: call add_workflows({slot.name}={wanted}(...))"
            )


# --- resources --------------------------------------------------------------------------------------------------------


def _config_problems(members: list[AttachedWorkflow], root: AnyWorkflow) -> list[str]:
    return [
        f"{place}, {problem}"
        for place, manager, definitions in _resources(members, root)
        for problem in manager.validate_configs(definitions)
    ]


def _resources(
    members: list[AttachedWorkflow], root: AnyWorkflow
) -> Iterator[tuple[str, ResourceManager, list[ResourceDefinition]]]:
    """Yield the place of each step in words, the manager of its resources, and the resources."""
    for member in members:
        manager = (member.workflow or root).__batonflow__.resource_manager
        for spec in member.steps.values():
            step = f"step '{spec.name}'"
            yield f"In {step}" if member.parent is None else f"In {member.label}, {step}", manager, spec.resources
        more: Any = getattr(member.workflow or root, "__batonflow_resources__", tuple)  # those of an agent's tools
        for place, definitions in more():
            yield place if member.parent is None else f"{place} of {member.label}", manager, definitions


def _resource_problems(members: list[AttachedWorkflow], root: AnyWorkflow) -> list[str]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_make_resources(members, root))
    raise RuntimeError(
        "validate(validate_resources=True) makes the resources in an event loop of its own and cannot be used inside a "
        "running one: call it from plain code, before the loop starts"
    )


async def _make_resources(members: list[AttachedWorkflow], root: AnyWorkflow) -> list[str]:
    problems: list[str] = []
    for place, manager, definitions in _resources(members, root):
        for definition in definitions:
            try:
                await manager.resolve([definition])
            except Exception as error:  # noqa: BLE001 - whatever a user's factory raises is what is being asked
                problems.append(f"{place}, parameter '{definition.name}': {type(error).__name__}: {error}")
    return problems

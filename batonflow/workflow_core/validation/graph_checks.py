"""Reachability, terminal events and dead ends of an event graph."""

from collections.abc import Iterable

from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from batonflow.workflow_core.validation.tree import Member

__all__ = ["graph_problems"]

"""The names of the checks, for ``skip_graph_checks``."""

Node = str | type[Event]
"""A step by its name, or an event class."""


def graph_problems(member: Member, skipped: frozenset[str]) -> list[str]:
    """Return the errors in the graph of one workflow, one text per check, each with a hint on its second line.

    Args:
        member: The workflow.
        skipped: The names of checks to leave out.
    """
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


def _problem(what: str, hint: str) -> list[str]:
    return [f"{what}\n    {hint}"]


class _Graph:
    """Arrows between steps and event classes, forwards and backwards."""

    def __init__(self, member: Member) -> None:
        self.events = self._all_events(member)
        self.after: dict[Node, list[Node]] = {}
        self.before: dict[Node, list[Node]] = {}
        for spec in member.steps.values():
            for cls in spec.config.return_types:
                if issubclass(cls, Event):
                    self._arrow(spec.name, cls)
            for cls in self.events:
                # A StopEvent is not routed, even when a step takes every subclass of Event.
                exact = cls in spec.config.accepted_events
                if exact or (spec.matches(cls, spec.config.accepted_events) and not issubclass(cls, StopEvent)):
                    self._arrow(cls, spec.name)

    @staticmethod
    def _all_events(member: Member) -> list[type[Event]]:
        accepted = [cls for spec in member.steps.values() for cls in spec.config.accepted_events]
        arriving = sorted(member.arrivals(), key=lambda cls: cls.__name__)
        return list(dict.fromkeys([*accepted, *member.produced(), *arriving]))

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


def _unreachable(member: Member, graph: _Graph) -> list[str]:
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
    if not lost:
        return []
    return _problem(
        f"[reachability] Unreachable steps: {', '.join(lost)} (workflow {member.label})",
        "Steps must be reachable from StartEvent, a HumanResponseEvent or an event of a neighbouring workflow: "
        'let a step that runs return what they accept, or say @step(skip_graph_checks=["reachability"])',
    )


def _never_started(member: Member) -> list[str]:
    """Return attached workflows that only an event can start which no step here returns."""
    lost: list[str] = []
    for child in member.children:
        accepted = [cls for spec in child.steps.values() for cls in spec.config.accepted_events]
        if any(issubclass(cls, StartEvent) for cls in accepted) or not child.entry:
            continue
        if not any(cls in member.produced() and child in member.receivers(cls) for cls in child.entry):
            lost.append(f"{child.label} starts on {' or '.join(cls.__name__ for cls in child.entry)}")
    if not lost:
        return []
    return _problem(
        f"[reachability] Attached workflows that are never started: {'; '.join(lost)} (workflow {member.label})",
        f"Let a step of {member.workflow_class.__name__} declare to return that event, and let none there accept it",
    )


def _without_consumer(member: Member, graph: _Graph) -> list[str]:
    lost = sorted(
        cls.__name__
        for cls in graph.events
        if not graph.after.get(cls)
        and not issubclass(cls, StopEvent | InputRequiredEvent)
        and not member.receivers(cls)
    )
    if not lost:
        return []
    return _problem(
        f"[terminal_event] Events produced but never consumed: {', '.join(lost)} (workflow {member.label})",
        "Only StopEvent and InputRequiredEvent may be last: write a step that accepts them, or do not return them",
    )


def _dead_ends(member: Member, graph: _Graph) -> list[str]:
    last = [cls for cls in graph.events if issubclass(cls, StopEvent | InputRequiredEvent) or member.receivers(cls)]
    leading = graph.reach(last, backwards=True)
    lost = sorted(
        name
        for name, spec in member.steps.items()
        if graph.after.get(name) and name not in leading and "dead_end" not in spec.config.skip_graph_checks
    )
    if not lost:
        return []
    return _problem(
        f"[dead_end] Dead-end steps: {', '.join(lost)} (workflow {member.label})",
        "Steps must have a path to StopEvent or InputRequiredEvent: let one of the steps behind return a StopEvent, "
        'or say @step(skip_graph_checks=["dead_end"])',
    )

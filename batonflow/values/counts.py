"""Counts of the events that each step of a run took and returned, for drawings of executions."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ExecutionCounts"]

Counts = dict[type[Any], int]


@dataclass(slots=True)
class ExecutionCounts:
    """Counts of one run, or of all runs of an attached workflow within one run.

    Attributes:
        executions: Step name -> number of deliveries to the step.
        received: Step name -> event class -> number of these events. A step that takes a list receives one
            CollectionReleaseEvent; a step that joins several events receives one of each.
        produced: Step name -> event class -> number of these events that the step returned or sent.
        children: Name of an attached workflow -> the counts of its runs.
        runs: The number of runs that were added up.
    """

    executions: dict[str, int] = field(default_factory=dict[str, int])
    received: dict[str, Counts] = field(default_factory=dict[str, Counts])
    produced: dict[str, Counts] = field(default_factory=dict[str, Counts])
    children: "dict[str, ExecutionCounts]" = field(default_factory=dict[str, "ExecutionCounts"])
    runs: int = 0

    def add(self, state: Any, live: Iterable[tuple[str, Any]] = ()) -> None:
        """Add a run; ``live`` has the names and runs of attached workflows that are still running."""
        self.runs += 1
        for step in state.steps.values():
            name = step.spec.name
            count = sum(step.received.values())
            self.executions[name] = self.executions.get(name, 0) + count
            received = step.received
            if len(step.spec.slots) > 1:  # the delivery of a join is counted for the event that arrived last
                received = {slot.types[0]: count for slot in step.spec.slots}
            _add(self.received.setdefault(name, {}), received)
            _add(self.produced.setdefault(name, {}), step.produced)
        ended_children: dict[str, ExecutionCounts] = state.child_counts or {}
        for name, ended in ended_children.items():
            self._child(name).merge(ended)
        for name, run in live:
            self._child(name).add_run(run)

    def add_run(self, run: Any) -> None:
        """Add a run, with its child runs that are still going on."""
        children = run.family.children if run.family is not None else ()
        self.add(run.state, [(child.name, child.run) for child in children])

    def merge(self, other: "ExecutionCounts") -> None:
        """Add the counts of another object."""
        self.runs += other.runs
        for name, count in other.executions.items():
            self.executions[name] = self.executions.get(name, 0) + count
        for name, counts in other.received.items():
            _add(self.received.setdefault(name, {}), counts)
        for name, counts in other.produced.items():
            _add(self.produced.setdefault(name, {}), counts)
        for name, child in other.children.items():
            self._child(name).merge(child)

    def _child(self, name: str) -> "ExecutionCounts":
        return self.children.setdefault(name, ExecutionCounts())


def _add(into: Counts, counts: Counts) -> None:
    for cls, count in counts.items():
        into[cls] = into.get(cls, 0) + count

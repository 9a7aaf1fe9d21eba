"""Child runs: the runs of attached workflows inside a run, and the events between them.

An event that no step of a run accepts is offered to the attached workflows below, then to the parent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core.engine.state import Causes, Number, WorkItem, origins_of
from batonflow.workflow_core.errors import ContextSerdeError, WorkflowRuntimeError, WorkflowValidationError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run

__all__ = ["ChildRun", "ChildRuns", "SavedChild", "call_as_data"]


@dataclass(slots=True, eq=False)
class ChildRun:
    """A run inside a run.

    Attributes:
        name: The name under which the workflow is attached.
        run: The child's run.
        by_event: Whether an event started it; otherwise a step called ``run()`` and awaits it.
        call: The delivery that called it and the number of the call, while the calling attempt is running.
        caller: The delivery that called it.
    """

    name: str
    run: Run
    by_event: bool
    call: tuple[int, Number] | None = None
    caller: WorkItem | None = None


@dataclass(slots=True, eq=False)
class SavedChild:
    """A child run of a restored run, before its own restore. It is a snapshot, or a ``LoadedRun`` from records."""

    name: str
    path: str
    call: list[Any] | None
    by_event: bool
    payload: dict[str, Any] | None = None
    loaded: Any = None

    @property
    def is_over(self) -> bool:
        """Tell whether it has a result."""
        return "result" in self.payload if self.payload is not None else self.loaded.result is not None

    def result(self, serializer: BaseSerializer) -> Any:
        """Return the event that ended it."""
        return self.loaded.result if self.payload is None else serializer.deserialize(self.payload["result"])


class ChildRuns:
    """The place of a run in the tree of workflows. ``make_inner`` makes a child run that has not begun."""

    __slots__ = (
        "_adopted", "_make_inner", "_resumable", "children", "counts", "finished", "own_streamed", "parent", "run",
        "saved", "saved_with",
    )  # fmt: skip

    def __init__(self, run: Run, parent: "ChildRuns | None", make_inner: Callable[..., Run]) -> None:
        self.run = run
        self._make_inner = make_inner
        self.parent = parent
        self.children: list[ChildRun] = []
        self.finished: list[ChildRun] = []
        # The child runs of a restored run that are not restored yet.
        self.saved: list[SavedChild] = []
        # Reads these snapshots; None for the serializer of each workflow.
        self.saved_with: BaseSerializer | None = parent.saved_with if parent is not None else None
        self._adopted: dict[str, AnyWorkflow] = {}
        # The number of runs of each attached workflow so far.
        self.counts: dict[str, int] = {}
        # Events that child runs have streamed to this run, by id.
        self.own_streamed: set[int] = set()
        self._resumable = False

    def attached(self) -> dict[str, AnyWorkflow]:
        """Return the attached workflows by name, including those injected as resources."""
        return {**self.run.workflow.__batonflow__.children, **self._adopted}

    def adopt(self, name: str, workflow: AnyWorkflow) -> None:
        """Attach a workflow for this run only."""
        known = self.attached().get(name)
        if known is not None and known is not workflow:
            raise WorkflowValidationError(
                f"Two workflows are attached to {self.run.workflow.__batonflow__.workflow_name} under the name "
                f"{name!r}: rename one parameter"
            )
        self._adopted[name] = workflow

    def name_of(self, workflow: object) -> str | None:
        """Return the name under which an instance is attached, or None."""
        return next((name for name, known in self.attached().items() if known is workflow), None)

    def child_of(self, run: Run) -> ChildRun | None:
        """Return the child with a run, as long as it goes on."""
        return next((child for child in self.children if child.run is run), None)

    def description_of(self, run: Run) -> dict[str, Any] | None:
        """Describe a child run for its record."""
        child = self.child_of(run)
        if child is None:
            return None
        about: dict[str, Any] = {"name": child.name, "call": None, "by_event": child.by_event}
        caller = child.caller
        if child.call is not None and caller is not None:
            about["call"] = call_as_data(child.call)
            # The delivery may not have a record yet.
            about["caller"] = {
                "step": caller.spec.name,
                "item": caller.id,
                "origins": origins_of(caller.causes),
                "releases": caller.released_stream,
            }
        return about

    # --- events between workflows -------------------------------------------------------------------------------------

    def offer(self, event: Event, causes: Causes) -> bool:
        """Offer an event that no own step accepts to the workflows below, then to the parent."""
        taken = self._offer_down(event, causes)
        return (self.parent is not None and self.parent.run.take_from_inside(event, causes)) or taken

    def _offer_down(self, event: Event, causes: Causes) -> bool:
        taken = False
        for name, workflow in self.attached().items():
            if type(event) in workflow.__batonflow__.steps.entry_events:
                self.start(name, workflow, event, None, causes)
                taken = True
                continue
            for child in self.children:
                if child.name == name and child.run.reaches(event):
                    child.run.send(event, None, None, causes)
                    taken = True
        return taken

    def check_target(self, event: Event, target: str) -> None:
        """Raise ``WorkflowRuntimeError`` unless ``target`` names a ``child.step`` that accepts the event."""
        name, _, step = target.partition(".")
        workflow = self.attached().get(name)
        if workflow is None:
            known = ", ".join(self.attached()) or "none"
            raise WorkflowRuntimeError(
                f"Step {target} does not exist: no workflow {name!r} is attached (attached: {known})"
            )
        workflow.__batonflow__.check_target(event, step)

    def send_to(self, event: Event, target: str, causes: Causes) -> None:
        """Deliver an event to ``child.step`` in every run of the child. Start a run if it has no run."""
        name, _, step = target.partition(".")
        runs = [child.run for child in self.children if child.name == name]
        if not runs:
            self.start(name, self.attached()[name], event, step, causes)
        for run in runs:
            run.send(event, step, None, causes)

    # --- runs of children ---------------------------------------------------------------------------------------------

    def _own_name(self, name: str) -> str:
        """Return the last part of the path of a new child run."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def start(self, name: str, workflow: AnyWorkflow, event: Event, step: str | None, causes: Causes) -> None:
        """Start a child on an event."""
        run = self._make_inner(workflow, self, self._own_name(name))
        self.children.append(ChildRun(name, run, by_event=True))
        workflow.__batonflow__.turns.launch(run, event, step, causes)

    def call(self, workflow: AnyWorkflow, name: str, item: WorkItem, event: Event, ctx: Any = None) -> Run:
        """Start a child run that a step calls; after a restore, the n-th call continues the n-th run."""
        numbers = item.make_progress().here()
        numbers.calls += 1
        number = numbers.named(numbers.calls)
        saved = next((one for one in self.saved if one.call == call_as_data((item.id, number))), None)
        if saved is not None:
            self.saved.remove(saved)
            run = self._make_inner(workflow, self, _last_part(saved.path), saved=saved, ctx=ctx)
        else:
            run = self._make_inner(workflow, self, self._own_name(name), ctx=ctx)
        child = ChildRun(name, run, by_event=False, call=(item.id, number), caller=item)
        if saved is not None and saved.is_over:
            run.ending.restore(saved.result(self.saved_with or self.run.workflow.__batonflow__.serializer))
            self.finished.append(child)
            return run
        self.children.append(child)
        workflow.__batonflow__.turns.launch(run, None if saved is not None else event, None, item.causes)
        if saved is not None:
            run.came_back()
        return run

    def attempt_over(self, item: WorkItem) -> None:
        """Forget the calls of a finished attempt; the next attempt starts new runs."""
        for child in self.children:
            if child.call is not None and child.call[0] == item.id:
                child.call = child.caller = None
        self.finished = [child for child in self.finished if child.call is None or child.call[0] != item.id]
        self.saved = [saved for saved in self.saved if saved.call is None or saved.call[0] != item.id]

    def unfold(self) -> list[Run]:
        """Create the child runs of a restored run that is not started, and return them."""
        attached = self.attached()
        for saved in self.saved:
            if not saved.is_over and saved.name in attached:
                self._make_saved(saved)
        return [child.run for child in self.children]

    def restart(self) -> None:
        """Continue the child runs that events started; the others continue when their step calls again."""
        for saved in [saved for saved in self.saved if saved.call is None]:
            self.saved.remove(saved)
            run = self._make_saved(saved)
            run.workflow.__batonflow__.turns.launch(run, None)
            run.came_back()

    def _make_saved(self, saved: SavedChild) -> Run:
        run = self._make_inner(self.attached()[saved.name], self, _last_part(saved.path), saved=saved)
        self.children.append(ChildRun(saved.name, run, by_event=saved.by_event))
        return run

    def restore(self, counts: dict[str, int], saved: list[SavedChild]) -> None:
        """Remember the child runs of a restored run.

        Raises:
            ContextSerdeError: A child run belongs to a workflow that is not attached any more.
        """
        lost = [one.name for one in saved if one.call is None and one.name not in self.attached()]
        if lost:
            raise ContextSerdeError(
                f"The snapshot holds a run of the attached workflow {lost[0]!r}, which is not attached to "
                f"{type(self.run.workflow).__name__}: attach it with add_workflows({lost[0]}=...) first"
            )
        self.counts = dict(counts)
        self.saved = list(saved)

    def active(self) -> bool:
        """Tell whether a child run is still working."""
        return any(child.run.is_active for child in self.children)

    def wake_around(self) -> None:
        """Mark this run and all runs around it as busy again."""
        if self.parent is not None:
            self.parent.run.idle = False
            self.parent.run.ending.busy_again()
            self.parent.wake_around()

    # --- the end ------------------------------------------------------------------------------------------------------

    def outlives(self) -> bool:
        """Tell whether child runs must finish before this run ends; other child runs are cancelled."""
        for child in list(self.children):
            policy = self.run.workflow.__batonflow__.when_parent_stops(child.name)
            if not child.by_event or policy == "cancel":
                child.run.ending.cancel()
        return any(child.by_event for child in self.children)

    def keep_for_snapshot(self) -> None:
        """Keep the child runs of a cancelled run in its snapshot, so that it can be resumed."""
        self._resumable = True
        self.finished = [*self.finished, *self.children]

    def cancel(self) -> None:
        """Cancel all child runs that are still running."""
        for child in list(self.children):
            child.run.ending.cancel()

    def ended(self) -> None:
        """Tell the parent that this run is over."""
        if self.parent is not None and (child := self.parent.child_of(self.run)) is not None:
            self.parent.child_ended(child)
        self._adopted.clear()

    def child_ended(self, child: ChildRun) -> None:
        """Note that a child run is over."""
        self.children.remove(child)
        if child.call is not None and not self._resumable:
            self.finished.append(child)
        self.run.child_over(child)


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


def call_as_data(call: tuple[int, Number]) -> list[Any]:
    """Return the call that started a child run as data that JSON does not change."""
    item_id, number = call
    return [item_id, list(number) if isinstance(number, tuple) else number]

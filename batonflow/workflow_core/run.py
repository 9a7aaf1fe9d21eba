"""The place of a run in its tree and in memory: child runs, leaving memory while it waits, and coming back."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.runner import Runner
from batonflow.workflow_core.engine.state import Causes, RunState, Waiter, WorkItem
from batonflow.workflow_core.errors import RunInterruptedError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.served_input import mark_input

__all__ = ["AttachedRuns", "OpenQuestions", "Run"]


class AttachedRuns(Protocol):
    """The runs of the attached workflows of one run, and the way to the run around it."""

    @property
    def parent(self) -> Any: ...
    @property
    def children(self) -> Sequence[Any]: ...
    @property
    def finished(self) -> Sequence[Any]: ...
    @property
    def saved(self) -> Sequence[dict[str, Any]]: ...
    @property
    def counts(self) -> dict[str, int]: ...
    def outlives(self) -> bool: ...
    def keep_for_snapshot(self) -> None: ...
    def cancel(self) -> None: ...
    def ended(self) -> None: ...
    def active(self) -> bool: ...
    def expecting(self) -> bool: ...
    def wake_around(self) -> None: ...
    def offer(self, event: Event, causes: Causes) -> bool: ...
    def forward(self, event: Event, ts: float, step: str, path: str, cause: int) -> None: ...
    def attempt_over(self, item: WorkItem) -> None: ...
    def restart(self) -> None: ...
    def adopt(self, name: str, workflow: Any) -> None: ...
    def description_of(self, run: Any) -> dict[str, Any] | None: ...
    def check_target(self, event: Event, target: str) -> None: ...
    def send_to(self, event: Event, target: str, causes: Causes) -> None: ...
    def name_of(self, workflow: object) -> str | None: ...
    def unfold(self) -> None: ...
    def streamed(self, event: Event) -> bool: ...
    def restore(self, counts: dict[str, int], saved: list[dict[str, Any]]) -> None: ...


class OpenQuestions(Protocol):
    """The questions to people of a tree of runs."""

    def opened(self, run: Any, waiter: Waiter, asked: Event | None) -> None: ...
    def answered_by(self, event: Event) -> int | None: ...
    def attempt_failed(self, run: Any, item: WorkItem) -> None: ...
    def person_answered(self, run: Any, event: Event) -> None: ...
    def falls_asleep(self) -> None: ...
    def wakes_up(self) -> None: ...


class Run(Runner):
    """A run in its tree, which may leave memory while it waits; ``runs.py`` assembles runs."""

    __slots__ = ()

    # --- the tree -----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Any:
        """The run at the root of the tree."""
        run: Any = self
        while run.family is not None and run.family.parent is not None:
            run = run.family.parent.run
        return run

    @property
    def questions(self) -> Any:
        """The questions to people; the root has the questions of the whole tree."""
        if self._questions is None:
            self._questions = self.make_questions()
        return self._questions

    def inside(self) -> Iterator[Any]:
        """Yield this run and all runs inside it."""
        yield self
        for child in self.family.children if self.family is not None else ():
            yield from child.run.inside()

    def at(self, path: str) -> Any:
        """Return the run at a path of the tree below this one, None when it is not here."""
        return next((run for run in self.inside() if run.path == path), None)

    def wants(self, event: Event) -> bool:
        """Tell whether a step of this run waits for the event."""
        return any(self.state.waiters.wanting(event))

    def reaches(self, event: Event) -> bool:
        """Tell whether a step of this run, or of a run inside it, takes the event or waits for it."""
        if self.state.table.route(type(event)).accepted or self.wants(event):
            return True
        return self.family is not None and any(child.run.reaches(event) for child in self.family.children)

    def awaits_people(self) -> bool:
        """Tell whether the run, or every run that its steps await, only waits for events from outside."""
        children = self.family.children if self.family is not None else ()
        if self.idle:
            waits = bool(self.state.waiters) or self.state.table.accepts_human
            return waits or any(child.run.awaits_people() for child in children)
        callers = {child.call[0] for child in children if child.call is not None}
        return self.state.busy == len(callers) > 0 and all(child.run.awaits_people() for child in children)

    # --- memory -------------------------------------------------------------------------------------------------------

    def adopt(self, loaded: Any) -> None:
        """Take the state of a loaded run, before this one begins."""
        self.state, self.cell = loaded.state, loaded.cell
        self.broker = Broker(self.state)
        if self.state.served:  # else it is as where the run is taken up: a server may do that
            mark_input(self.variables, served=True)
        if loaded.children.get("runs") or loaded.children.get("counts"):
            family = self.family = self.family or self.make_child_runs(None)
            family.restore(loaded.children["counts"], loaded.children["runs"])
        if self.handler_context is not None:
            self.handler_context.bind(self)
        self._late = deque()
        self.idle = False
        if self._questions is not None:
            self._questions.wakes_up()

    def sleep(self) -> None:
        """Leave memory: the store has everything. Waiting steps are dropped, and begin again after ``wake``."""
        tasks = [item.task for item in self.state.items.values() if item.task]
        children = list(self.family.children) if self.family is not None else []
        if self.family is None or self.family.parent is None:
            self.questions.falls_asleep()
        if self.observer is not None:
            self.observer.run_left(self)
            self.observer = None
        self.silence()
        self.state, self.cell = RunState(self.state.run_id, self.state.table), type(self.cell)(self.cell.state_type)
        self.broker = Broker(self.state)
        for child in children:
            child.run.sleep()
        if self.family is not None:
            self.family = self.make_child_runs(self.family.parent)
        for task in tasks:
            task.cancel()
        self.early = []

    @property
    def is_asleep(self) -> bool:
        """Tell whether the run left memory and nothing has woken it yet."""
        return self.is_away and self.drive is None and self.opening is None

    @property
    def is_away(self) -> bool:
        """Tell whether the run is out of memory or on its way back; events for it are kept until it is here."""
        return self.early is not None

    @property
    def is_replaced(self) -> bool:
        """Tell whether the run was inside a run that left memory, and another object goes on in its place."""
        return self.is_away and self.family is not None and self.family.parent is not None

    def rouse(self) -> None:
        """Ask to come back into memory."""
        keeper = self.workflow.__batonflow__.keeper
        if keeper is not None:
            keeper.wake(self)

    def wake(self) -> None:
        """Come back from the store, for an event or a timer."""
        self.workflow.__batonflow__.keeper.restore(self)

    def is_past(self, item: WorkItem) -> bool:
        """Tell whether a delivery is from before the run left memory."""
        return self.state.steps.get(item.spec.name) is not item.step

    def when_taken(self, event: Event, deliver: Callable[[], None], ready: Callable[[], bool] | None = None) -> None:
        """Deliver an event; after a restore not before a step is there that takes it, or nothing else goes on.

        Args:
            event: The event.
            deliver: Sends it.
            ready: Tells whether who takes it is there, if that is somebody in particular.
        """
        self._when(ready or partial(self.reaches, event), deliver)

    def _when(self, ready: Callable[[], bool], deliver: Callable[[], None]) -> None:
        if self._late is None or ready():
            deliver()
        else:
            self._late.append((ready, deliver))

    def send_to(self, event: Event, path: str, target: str | None = None) -> None:
        """Send an event to one workflow of the tree, of which this is the root, as soon as that is here.

        Args:
            event: The event.
            path: The place of the workflow in the tree.
            target: The only step that the event goes to, or the address of a wait.
        """
        if self.early is not None:
            self.early.append((event, target, path))
            if self.is_asleep:
                self.rouse()
            return

        def ready() -> bool:
            taker = self.at(path)
            return taker is not None and taker.reaches(event)

        self._when(ready, lambda: (self.at(path) or self).send(event, target, None))

    @property
    def has_late(self) -> bool:
        """Tell whether an event waits for a step that is not restored yet."""
        return bool(self._late)

    def look_at_late(self) -> None:
        """Deliver held events that a restored step or child run now takes."""
        waiting, self._late = self._late or (), deque()
        for ready, deliver in waiting:
            self._when(ready, deliver)

    def stop_unrecorded(self, fault: Exception) -> None:
        """Stop here, as the work cannot be recorded; the store has the run as it was written last."""
        root = self.root
        drive = root.drive
        stopped = RunInterruptedError(
            f"Run {root.state.run_id!r} was stopped, as what it did cannot be recorded "
            f"({type(fault).__name__}: {fault}); it stands in the store as it was written last"
        )
        stopped.__cause__ = fault
        if drive is not None:
            drive.fail(stopped)
        else:
            root.ending.drop(stopped)

    def silence(self) -> None:
        """Record nothing more, of the workflows inside either."""
        self.recorder = self.drive = None
        for child in self.family.children if self.family is not None else ():
            child.run.silence()

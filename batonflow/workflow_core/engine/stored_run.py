"""The part of a run that a store needs: how it becomes what was loaded, leaves memory and comes back."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context as ContextVars
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from batonflow.lazy import at_first_use
from batonflow.workflow_core.child_runs import Family, reaches, run_at
from batonflow.workflow_core.engine.broker import Broker
from batonflow.workflow_core.engine.state import RunState, WorkItem
from batonflow.workflow_core.errors import RunInterruptedError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.served_input import mark_input

if TYPE_CHECKING:
    from batonflow.durable.lease import Drive
    from batonflow.durable.recorder import Recorder
    from batonflow.tracing.observer import Observer
    from batonflow.workflow_core.context.context import Context
    from batonflow.workflow_core.context.snapshot import LoadedRun
    from batonflow.workflow_core.context.state_store import StateCell
    from batonflow.workflow_core.engine.runner import Run
    from batonflow.workflow_core.questions import Questions

__all__ = ["StoredRun"]

resume_sleeper = at_first_use("batonflow.durable.keeper", "resume_sleeper")
wake_sleeper = at_first_use("batonflow.durable.keeper", "wake_sleeper")


class StoredRun:
    """What a run does beside running when a store keeps it."""

    __slots__ = ()

    state: RunState
    cell: "StateCell"
    broker: Broker
    family: Family | None
    handler_context: "Context[Any] | None"
    recorder: "Recorder | None"
    drive: "Drive | None"
    observer: "Observer | None"
    idle: bool
    opening: "asyncio.Task[None] | None"
    early: list[tuple[Event, str | None, str]] | None
    _late: deque[tuple[Callable[[], bool], Callable[[], None]]] | None
    _questions: "Questions | None"
    variables: ContextVars

    def adopt(self, loaded: "LoadedRun") -> None:
        """Become what was loaded; before the run begins."""
        self.state, self.cell = loaded.state, loaded.cell
        self.broker = Broker(self.state)
        if self.state.served:  # else it is as where the run is taken up: a server may do that
            mark_input(self.variables, served=True)
        if loaded.children.get("runs") or loaded.children.get("counts"):
            self.family = self.family or Family(cast("Run", self), None)
            self.family.restore(loaded.children["counts"], loaded.children["runs"])
        if self.handler_context is not None:
            self.handler_context.bind(cast("Run", self))
        self._late = deque()
        self.idle = False
        if self._questions is not None:
            self._questions.wakes_up()

    def sleep(self) -> None:
        """Leave memory: the store has everything. Steps that wait are thrown away, and begin again after ``wake``."""
        tasks = [item.task for item in self.state.items.values() if item.task]
        children = list(self.family.children) if self.family is not None else []
        if self.family is None or self.family.parent is None:
            cast("Run", self).questions.falls_asleep()
        if self.observer is not None:
            self.observer.run_left(cast("Run", self))
            self.observer = None
        self.silence()
        self.state, self.cell = RunState(self.state.run_id, self.state.table), type(self.cell)(self.cell.state_type)
        self.broker = Broker(self.state)
        for child in children:
            child.run.sleep()
        if self.family is not None:
            self.family = Family(cast("Run", self), self.family.parent)
        for task in tasks:
            task.cancel()
        self.early = []

    @property
    def is_asleep(self) -> bool:
        """Whether the run left memory and nothing has woken it yet."""
        return self.is_away and self.drive is None and self.opening is None

    @property
    def is_away(self) -> bool:
        """Whether it left memory and is not quite back: what is sent to it is kept until it is."""
        return self.early is not None

    @property
    def is_replaced(self) -> bool:
        """Whether it was a run inside one that left memory: when that is back, another object goes on in its place."""
        return self.is_away and self.family is not None and self.family.parent is not None

    def rouse(self) -> None:
        """Come back without anything having come."""
        wake_sleeper(self)

    def wake(self) -> None:
        """Come back from the store, for what was sent or because a timer is due."""
        resume_sleeper(self)

    def is_past(self, item: WorkItem) -> bool:
        """Whether a delivery is one of before the run left memory."""
        return self.state.steps.get(item.spec.name) is not item.step

    def when_taken(self, event: Event, deliver: Callable[[], None], ready: Callable[[], bool] | None = None) -> None:
        """Deliver an event; after a restore not before a step is there that takes it, or nothing else goes on.

        Args:
            event: The event.
            deliver: Sends it.
            ready: Tells whether who takes it is there, if that is somebody in particular.
        """
        self._when(ready or partial(reaches, cast("Run", self), event), deliver)

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
        root = cast("Run", self)

        def ready() -> bool:
            taker = run_at(root, path)
            return taker is not None and reaches(taker, event)

        self._when(ready, lambda: (run_at(root, path) or root).send(event, target, None))

    @property
    def has_late(self) -> bool:
        """Whether something came for a step that is not there yet."""
        return bool(self._late)

    def look_at_late(self) -> None:
        """A step waits, or a workflow inside is back: something that came before may be for it."""
        waiting, self._late = self._late or (), deque()
        for ready, deliver in waiting:
            self._when(ready, deliver)

    def stop_unrecorded(self, fault: Exception) -> None:
        """Stop here, as what was done cannot be written down: the run stands in the store as it was written last."""
        run = cast("Run", self)
        root, drive = run.root, run.root.drive
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

"""Runs that stop after each step: ``run(stepwise=True)`` and ``handler.run_step()``."""

import asyncio
from collections import deque
from typing import cast

from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.engine.state import Causes, RunState, WorkItem
from batonflow.workflow_core.engine.ticks import StepFailed, StepReturned
from batonflow.workflow_core.events import Event, StopEvent
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.runs import WorkflowRun

__all__ = ["StepwiseRun"]


class StepwiseRun(WorkflowRun):
    """A run that starts one step at a time. It returns its events to the caller instead of delivering them."""

    __slots__ = ("_held", "_produced", "_step_done")

    def __init__(self, workflow: AnyWorkflow, state: RunState, cell: StateCell) -> None:
        super().__init__(workflow, state, cell)
        self._held: deque[WorkItem] = deque()
        self._produced: list[Event] = []
        self._step_done: asyncio.Event | None = None

    def spawn(self, item: WorkItem) -> None:
        """Hold a step back until the caller requests the next step."""
        self._held.append(item)

    def send(self, event: Event, target: str | None, sender: WorkItem | None, causes: Causes = ()) -> None:
        """Keep an event that a step sends for the caller."""
        if sender is None:
            super().send(event, target, None, causes)
        else:
            self._produced.append(event)

    def leave(self, item: WorkItem, tick: StepReturned | StepFailed) -> list[WorkItem]:
        """Keep the events that a step returns for the caller, except the StopEvent."""
        if isinstance(tick, StepReturned) and not isinstance(tick.result, StopEvent):
            result = tick.result
            produced = cast("list[Event]", result if isinstance(result, list) else [] if result is None else [result])
            if all(isinstance(event, Event) for event in produced):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._produced.extend(produced)
                tick = StepReturned(item, None, tick.now)
        for following in super().leave(item, tick):
            self.spawn(following)
        if self._step_done is not None:
            self._step_done.set()
        return []

    def _deliver_next(self) -> list[WorkItem]:
        return []  # each step has a task of its own

    async def take_step(self) -> list[Event] | None:
        """Run the next held step to its end."""
        await asyncio.sleep(0)  # deliver the events that the caller has sent
        while not self._held and not self.ending.over:
            await self.stream.more()
        if self.ending.over:
            return None
        self._produced = []
        self._step_done = asyncio.Event()
        super().spawn(self._held.popleft())
        await self._step_done.wait()
        await asyncio.sleep(0)
        return None if self.ending.over else self._produced

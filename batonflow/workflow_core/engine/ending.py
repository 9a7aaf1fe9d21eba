"""The end of a run: by its StopEvent, a failure, its timeout or a cancel."""

import asyncio
from typing import Any

from batonflow.instrumentation.logs import logger_named
from batonflow.workflow_core.engine.ports import LiveRun
from batonflow.workflow_core.engine.state import Waiter, WorkItem, current_item
from batonflow.workflow_core.engine.ticks import Finish, RunEnded
from batonflow.workflow_core.errors import (
    RunInterruptedError,
    StoreError,
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
    WorkflowStalledError,
    WorkflowTimeoutError,
)
from batonflow.workflow_core.events import StopEvent, WorkflowCancelledEvent, WorkflowFailedEvent, WorkflowTimedOutEvent
from batonflow.workflow_core.stream import ANOTHER_LOOP

__all__ = ["Ending"]

logger = logger_named("batonflow.workflow")

SECONDS_FOR_STRAGGLERS = 1.0
"""Seconds that a finished run waits for cancelled steps to end."""


class Ending:
    """The end of a run, from its timeout to the last future.

    ``over``: no step of the run takes effect any more. ``done``: the result is known. ``resolved``: the tasks of all
    steps have ended, and callers get the result.
    """

    __slots__ = (
        "_alive_seconds", "_deadline", "_dropped", "_futures", "_grace", "_run", "_stragglers", "_unrecorded",
        "alive_since", "awaited_in", "done", "error", "event", "handlers", "on_stall", "over", "refused", "resolved",
    )  # fmt: skip

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self.over = self.done = self.resolved = False
        # The run could not begin: recording failed, or another process owns it.
        self.refused = False
        # Handlers that may still ask for the result; a handler that has asked counts for ever.
        self.handlers = 0
        # The reaction to a stall, if the workflow does not say it.
        self.on_stall = "warn"
        self.event: StopEvent | None = None
        self.error: BaseException | None = None
        # The run with the step that waits for this one.
        self.awaited_in: Any = None
        self._futures: list[asyncio.Future[None]] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._stragglers = 0
        # The end is not in the store yet.
        self._unrecorded = False
        self._dropped = False
        # None while the clock of the timeout stands still.
        self.alive_since: float | None = None
        self._alive_seconds = 0.0

    # --- the timeout of the run ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the timeout; the time used before a restore counts."""
        self._alive_seconds = self._run.state.elapsed
        self._go()

    def _go(self) -> None:
        self.alive_since = self._run.loop.time()
        timeout = self._run.workflow.__batonflow__.timeout
        if timeout is not None:
            self._deadline = self._run.loop.call_later(max(0.0, timeout - self._alive_seconds), self._timed_out)

    def _pause(self) -> None:
        if self.alive_since is not None:
            self._alive_seconds += self._run.loop.time() - self.alive_since
            self.alive_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def elapsed(self) -> float:
        """Return the used seconds of the timeout."""
        running = self._run.loop.time() - self.alive_since if self.alive_since is not None else 0.0
        return self._alive_seconds + running

    def idle(self) -> None:
        """Pause the timeout while the run only waits for people, if the options say so.

        The option of the root also applies to its child runs, because the root receives the answers.
        """
        run = self._run
        if any(one.workflow.__batonflow__.excludes_waiting for one in (run, run.root)) and run.awaits_people():
            self._pause()

    def busy_again(self) -> None:
        """Continue the timeout, because a step runs again."""
        if self._run.drive is not None:
            self._run.drive.busy()
        if self.alive_since is None and not self.over:
            self._go()

    def _timed_out(self) -> None:
        steps = [step for step in self._run.state.steps.values() if step.active]
        active = sorted(step.spec.name for step in steps)
        timeout = self._run.workflow.__batonflow__.timeout or 0.0
        listed = f"Currently active steps: {', '.join(active)}" if active else "No steps active"
        if waits := sorted({f"{w.item.spec.name} for {w.event_type.__name__}" for w in self._run.state.waiters}):
            listed += f"; waiting: {', '.join(waits)}"
        error = WorkflowTimeoutError(f"Operation timed out after {timeout} seconds. {listed}")
        self.end(RunEnded(WorkflowTimedOutEvent(timeout=timeout, active_steps=active), error))

    # --- other ends ---------------------------------------------------------------------------------------------------

    def end(self, tick: RunEnded) -> None:
        """End the run from outside its steps, also while it waits for child runs."""
        run = self._run
        if self.done or run.is_replaced:
            return
        if run.is_asleep:
            run.request_restore()  # the end has to be recorded
        if self.over:
            self._complete(tick.event, tick.error)
        else:
            run.start_all(tick)

    def cancel(self, reason: str = "") -> None:
        """Cancel the run; keep its state, so that it can be resumed."""
        event = WorkflowCancelledEvent(**{"reason": reason} if reason else {})
        self.end(RunEnded(event, _cancelled(event), resumable=True))

    def fail(self, step: str, error: BaseException) -> None:
        """End the run with an error that no step can catch."""
        shown = error if isinstance(error, Exception) else WorkflowRuntimeError(repr(error))
        self.end(RunEnded(WorkflowFailedEvent(step_name=step, exception=shown), error))

    def warn(self, text: str) -> None:
        """Log a warning."""
        logger.warning("%s (run %s): %s", self._run.workflow.__batonflow__.workflow_name, self._run.state.run_id, text)

    def stalled(self, waiting_on: list[str]) -> None:
        """Report that the run has stalled, unless it is a service."""
        on_stall = self._run.workflow.__batonflow__.on_stall or self._run.root.ending.on_stall
        if on_stall == "wait":
            return
        lacks = "; ".join(waiting_on) or "no step is left to run and none returned a StopEvent"
        if nobodys := self._run.stream.last_unhandled():
            lacks += f"; the last event that no step takes was {nobodys}"
        text = f"the run can no longer move: {lacks}"
        if on_stall == "raise":
            error = WorkflowStalledError(f"{self._run.workflow.__batonflow__.workflow_name}: {text}")
            self.end(RunEnded(WorkflowFailedEvent(step_name="", exception=error), error))
        else:
            self.warn(text)

    # --- the end itself -----------------------------------------------------------------------------------------------

    def finish(self, end: Finish) -> None:
        """All steps have finished. On success, wait for child runs started by events; otherwise finish now."""
        run, event, error = self._run, end.event, end.error
        run.state.elapsed = self.elapsed()
        self.over = True
        self._stop(end.items, end.waiters)
        if run.recorder is not None:
            try:
                run.recorder.cut()
            except Exception as fault:  # noqa: BLE001 - whatever a serializer raises, the run must not be left hanging
                run.stop_unrecorded(fault)
                return
        if error is None and run.family is not None and run.family.outlives():
            self.event = event
            return
        if end.resumable and run.family is not None:
            run.family.keep_for_snapshot()
        self._complete(event, error)

    def children_ended(self) -> None:
        """Finish the run if it was only waiting for child runs."""
        if self.over and not self.done and self.event is not None:
            self._complete(self.event, None)
        self._let_out()

    def _complete(self, event: StopEvent, error: BaseException | None) -> None:
        run = self._run
        self.event, self.error = event, error
        self._pause()
        self.done = True
        if run.family is not None:
            self._stragglers += 1  # child runs that end at once must not resolve the run before its end is recorded
            run.family.cancel()
            self._stragglers -= 1
        if run.recorder is not None:
            self._unrecorded = run.drive is not None
            if run.arrived_while_released is None:  # otherwise the end is recorded once the beginning is in the store
                run.recorder.ended(event, run.stream.seq)
        elif run.opening is not None:
            self._unrecorded = True
        self._let_out()
        if not self.resolved:
            self._grace = run.loop.call_later(SECONDS_FOR_STRAGGLERS, self._enough_grace)

    def _stop(self, items: list[WorkItem], waiters: list[Waiter]) -> None:
        """Cancel all timers and tasks, except the task that ended the run."""
        current = asyncio.current_task(self._run.loop)
        for timer in (*(item.timer for item in items), *(waiter.timer for waiter in waiters)):
            if timer is not None:
                timer.cancel()
        for task in dict.fromkeys(item.task for item in items if item.task is not None):  # in a repeatable order
            if task is not current and not task.done():
                self._stragglers += 1
                task.add_done_callback(self._task_ended)
                task.cancel()

    def _task_ended(self, _: "asyncio.Task[None]") -> None:
        """Resolve the run when the last cancelled task has ended."""
        self._stragglers -= 1
        self._let_out()

    def _let_out(self) -> None:
        """Resolve the run, unless a step or a child run is still cleaning up."""
        family = self._run.family
        if self.done and not self.resolved and not self._stragglers and not (family is not None and family.children):
            self._resolve()

    def _enough_grace(self) -> None:
        self._stragglers = 0
        self._resolve()

    def recorded(self) -> None:
        """Resolve the run, because its end is recorded."""
        self._unrecorded = False
        self._let_out()

    def _resolve(self) -> None:
        if self._unrecorded:
            return
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        # Last, so that readers see the end after the steps have cleaned up.
        run, event = self._run, self.event
        assert event is not None
        if not self._dropped:  # otherwise the run goes on elsewhere
            run.publish(event, "", 0)
        run.stream.end(is_recorded=not self._dropped)
        if run.observer is not None:
            run.observer.run_ended(run, event, self.error)
        self._tell()
        run.workflow.__batonflow__.turns.ended(run)
        if run.family is not None:
            run.family.ended()
        if not self.handlers:
            self.forgotten()

    def _tell(self) -> None:
        """Wake all callers that await the result."""
        self.resolved = True
        futures, self._futures = self._futures or [], []
        for future in futures:
            if not future.done():
                future.set_result(None)

    def refuse(self, error: BaseException) -> None:
        """End a run that could not begin: recording failed, or another process owns it."""
        shown = error if isinstance(error, Exception) else WorkflowRuntimeError(repr(error))
        self.over = self.done = self.refused = True
        self.event, self.error = WorkflowFailedEvent(step_name="", exception=shown), error
        self._run.stream.end()
        self._tell()
        self._run.workflow.__batonflow__.runtime.discard(self._run)
        if not self.handlers:
            self.forgotten()

    def drop(self, error: BaseException) -> None:
        """Stop without recording an end, because the run goes on elsewhere or later."""
        self._unrecorded, self._dropped = False, True
        if self.done:
            self.error = error
            self._let_out()
        else:
            self._run.silence()
            self.fail("", error)

    def interrupted(self, because: str = "") -> None:
        """Stop the run in this process; it stays in the store."""
        run_id, drive = self._run.state.run_id, self._run.drive
        self.drop(
            RunInterruptedError(
                f"Run {run_id!r} was interrupted{because and f', {because}'}; it goes on from the store with "
                f"resume({run_id!r}), or run() under the same id"
            )
        )
        if drive is not None:
            drive.when_written(drive.close)

    def go_on_after(self, event: StopEvent) -> None:
        """Note that the steps of a restored run have finished while its child runs go on."""
        self.over, self.event = True, event
        self._run.state.running = False

    def forgotten(self) -> None:
        """Log a failure that no caller has asked for, because the last handler is gone."""
        inside = self._run.family is not None and self._run.family.parent is not None  # the parent gets the failure
        quiet = isinstance(self.error, (WorkflowCancelledByUser, RunInterruptedError))  # the caller requested this end
        if self.resolved and self.error is not None and not (inside or quiet):
            name, run_id = self._run.workflow.__batonflow__.workflow_name, self._run.state.run_id
            if isinstance(self.error, StoreError):  # it continues from its records
                logger.error("%s (run %s) stopped in this process: %s", name, run_id, self.error)
            else:  # a store has the failure
                told = "" if self._run.workflow.__batonflow__.keeper else ", and its result was not awaited"
                logger.error("%s (run %s) failed%s", name, run_id, told, exc_info=self.error)

    def restore(self, event: StopEvent) -> None:
        """Take the result of a run whose snapshot was taken after its end."""
        self.over = self.done = True
        self.event = event
        if isinstance(event, WorkflowFailedEvent):
            self.error = event.exception
        elif isinstance(event, WorkflowTimedOutEvent):
            self.error = WorkflowTimeoutError(f"Operation timed out after {event.timeout} seconds")
        elif isinstance(event, WorkflowCancelledEvent):
            self.error = _cancelled(event)
        self._run.stream.end()
        self._tell()

    async def begun(self) -> None:
        """Wait until the run has begun or was refused."""
        if self._run.opening is not None:
            await asyncio.wait({self._run.opening})

    async def wait(self) -> None:
        """Wait until the result is known and the steps' tasks have ended."""
        if self.resolved:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._run.loop:
            raise WorkflowRuntimeError(
                f"Run {self._run.state.run_id} {ANOTHER_LOOP}, or use run_sync() from other threads"
            )
        item = current_item.get()
        if item is not None and item.run is not None:
            self.awaited_in = item.run
            self._run.workflow.__batonflow__.turns.check(self._run)
        future: asyncio.Future[None] = loop.create_future()
        if self._futures is None:
            self._futures = []
        self._futures.append(future)
        try:
            await (future if self._run.stream.on_abandon is None else self._run.stream.follow(future))
        finally:
            self.awaited_in = None


def _cancelled(event: WorkflowCancelledEvent) -> WorkflowCancelledByUser:
    reason = event.get("reason")
    return WorkflowCancelledByUser(f"The run was cancelled: {reason}" if reason else "The run was cancelled")

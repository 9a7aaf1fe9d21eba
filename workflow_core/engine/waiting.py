"""Everything a run waits for: answers to ``wait_for_event``, retry delays and the timeouts of steps."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from batonflow.workflow_core.engine.state import Waiter, WorkItem
from batonflow.workflow_core.engine.ticks import WaitAnswered, WaitClosed, WaitOpened
from batonflow.workflow_core.events import Event

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.runner import Run

__all__ = ["Waiting"]


class _StepTimer:
    """The time limit of one attempt; stands still while the step waits for an event."""

    __slots__ = ("deadline", "fired", "handle", "left", "task")

    def __init__(self, seconds: float, task: "asyncio.Task[Any]") -> None:
        self.left = seconds
        self.task = task
        self.deadline = 0.0
        self.fired = False
        self.handle: asyncio.TimerHandle | None = None

    def go(self, loop: asyncio.AbstractEventLoop) -> None:
        self.deadline = loop.time() + self.left
        self.handle = loop.call_at(self.deadline, self._fire)

    def pause(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.handle is not None:
            self.left = max(0.0, self.deadline - loop.time())
            self.handle.cancel()
            self.handle = None

    def _fire(self) -> None:
        self.fired = True
        self.task.cancel()


class Waiting:
    """The futures and timers of a run.

    Args:
        run: The run they belong to.
    """

    __slots__ = ("_futures", "_run", "_step_timers", "_timers")

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._futures: dict[Waiter, list[asyncio.Future[Event | None]]] = {}
        self._timers: dict[asyncio.TimerHandle, None] = {}
        self._step_timers: dict[int, _StepTimer] = {}

    async def wait(
        self,
        item: WorkItem,
        event_type: type[Event],
        waiter_event: Event | None,
        waiter_id: str | None,
        requirements: dict[str, Any],
        timeout: float | None,
    ) -> Event:
        """Suspend a step until an event of ``event_type`` meets the requirements; its worker is free meanwhile."""
        run = self._run
        progress = item.done()
        progress.waits += 1
        type_name = f"{event_type.__module__}.{event_type.__qualname__}"
        key = waiter_id if waiter_id is not None else f"{progress.waits}:{type_name}"
        if key not in progress.answers:
            waiter = self._restored(item, key)
            asked_before = waiter is not None
            if waiter is None:
                run.state.waiter_seq += 1
                due = None if timeout is None else run.source.now() + timeout
                name = waiter_id if waiter_id is not None else f"waiter_{type_name}_{item.id}_{progress.waits}"
                waiter = Waiter(name, key, event_type, requirements, item, due)
                self._arm(waiter)
            else:
                waiter.requirements, waiter.unknown_requirements = requirements, False
            await self._suspend(item, waiter, None if asked_before else waiter_event)
        answer = progress.answers[key]
        if answer is None:
            raise TimeoutError(f"Step {item.spec.name} waited for {event_type.__name__} longer than its timeout")
        return answer

    async def _suspend(self, item: WorkItem, waiter: Waiter, question: Event | None) -> None:
        run = self._run
        if run.recorder is not None:
            run.recorder.close(item, "waiting", waiter.id)
        timer = self._step_timers.get(item.id)
        if timer is not None:
            timer.pause(run.loop)
        if not item.suspended:
            run.note_stopped(item, run.source.now(), None)
        answered: asyncio.Future[Event | None] = run.loop.create_future()
        self._futures.setdefault(waiter, []).append(answered)
        run.start_all(WaitOpened(waiter))
        if question is not None:
            run.publish(question, item.spec.name, item.id)
        run.settle()
        try:
            await answered
        except asyncio.CancelledError:
            self._futures.pop(waiter, None)
            if not run.ending.over:
                run.start_all(WaitClosed(waiter))
            raise
        finally:
            if timer is not None and not run.ending.over:
                timer.go(run.loop)
        name = item.spec.name
        run.stream.note(run.source.now(), "running", name, item.worker, type(item.event), None)
        if run.recorder is not None:
            run.recorder.open(item, None)

    def _restored(self, item: WorkItem, key: str) -> Waiter | None:
        """A wait that stood open in a snapshot, or was opened a moment ago under the same explicit id."""
        for waiters in self._run.state.waiters.values():
            for waiter in waiters:
                if waiter.item is item and waiter.key == key:
                    return waiter
        return None

    def resume(self, waiter: Waiter, answer: Event | None) -> None:
        """Let the waiting step go on."""
        for future in self._futures.pop(waiter, ()):
            if not future.done():
                future.set_result(answer)

    def _arm(self, waiter: Waiter) -> None:
        if waiter.due is not None:
            delay = max(0.0, waiter.due - self._run.source.now())
            self.at(delay, lambda: self._run.feed(WaitAnswered(waiter, None)))

    def rearm(self) -> None:
        """Set the timers of restored waits anew."""
        for waiters in self._run.state.waiters.values():
            for waiter in waiters:
                self._arm(waiter)

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Do something ``delay`` seconds from now, unless the run is over by then."""

        def fire() -> None:
            self._timers.pop(handle, None)
            action()

        handle = self._run.loop.call_later(delay, fire)
        self._timers[handle] = None

    def start_step_timer(self, item: WorkItem, task: "asyncio.Task[Any]") -> None:
        """Begin to count the time of an attempt."""
        timer = _StepTimer(item.spec.timeout or 0.0, task)
        self._step_timers[item.id] = timer
        timer.go(self._run.loop)

    def stop_step_timer(self, item: WorkItem) -> None:
        """The attempt is over."""
        timer = self._step_timers.pop(item.id, None)
        if timer is not None:
            timer.pause(self._run.loop)

    def timed_out(self, item: WorkItem) -> bool:
        """Whether it was the attempt's own timer that cancelled it."""
        timer = self._step_timers.get(item.id)
        return timer is not None and timer.fired

    def close(self) -> None:
        """Drop every timer; the futures end with the tasks that await them."""
        for timer in self._timers:
            timer.cancel()
        for step_timer in self._step_timers.values():
            step_timer.pause(self._run.loop)
        self._timers.clear()
        self._step_timers.clear()
        self._futures.clear()

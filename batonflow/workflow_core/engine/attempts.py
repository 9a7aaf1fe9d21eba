"""Attempts of steps: the function's call, its waits and time limits, and the record of the outcome."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from batonflow.clock import TaskTimer
from batonflow.threads import call_in_thread
from batonflow.values.names import qualified_name
from batonflow.workflow_core.engine.ports import LiveRun, Recorder
from batonflow.workflow_core.engine.state import RETURNED, Causes, Numbers, OnceCall, Waiter, WorkItem
from batonflow.workflow_core.engine.ticks import (
    Answered,
    Command,
    Finish,
    GaveUp,
    Recovered,
    StepFailed,
    StepReturned,
    WaitClosed,
    WaitOpened,
    WaitTimedOut,
)
from batonflow.workflow_core.errors import StoreError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec

__all__ = ["Waiting", "call_step", "events_and_context", "record_outcome", "record_wait", "verdict", "was_returned"]


# --- calling --------------------------------------------------------------------------------------------------------


def call_step(run: LiveRun, item: WorkItem) -> Awaitable[Any]:
    """Call the function of a step; the runner awaits the result."""
    spec = item.spec
    plan = spec.plan
    if plan == "event method":
        return spec.func(run.workflow, item.event)
    if plan == "names":
        return _call_by_names(run, item)
    subject = _members(item) if spec.has_collection else item.event
    if plan == "event":
        arguments: tuple[Any, ...] = (subject,)
    else:
        arguments = (run.context_for(item), subject)
    if not spec.is_free:
        arguments = (run.workflow, *arguments)
    if spec.is_async:
        return spec.func(*arguments)
    return call_in_thread(partial(spec.func, *arguments), f"Step {spec.name}")


def events_and_context(run: LiveRun, item: WorkItem) -> dict[str, Any]:
    """Return the arguments of a step by name, without the injected ones."""
    spec = item.spec
    arguments: dict[str, Any] = {}
    if len(spec.slots) > 1:
        arguments = {slot.name: event for slot, event in zip(spec.slots, item.inputs or (), strict=True)}
    else:
        arguments[spec.config.event_name] = _members(item) if spec.has_collection else item.event
    if spec.context_name is not None:
        arguments[spec.context_name] = run.context_for(item)
    return arguments


def _members(item: WorkItem) -> list[Event]:
    """Return the events for the parameter of a step that takes a list."""
    return list(item.inputs or ())


async def _call_by_names(run: LiveRun, item: WorkItem) -> Any:
    spec, arguments = item.spec, events_and_context(run, item)
    if spec.children:
        arguments.update(_attached_arguments(run.workflow, spec))
    if spec.resources:
        arguments.update(await run.resources(spec))
    function = spec.func if spec.is_free else partial(spec.func, run.workflow)
    if spec.is_async:
        return await function(**arguments)
    return await call_in_thread(partial(function, **arguments), f"Step {spec.name}")


def _attached_arguments(parent: AnyWorkflow, spec: StepSpec) -> dict[str, Any]:
    """Return the attached workflows for the parameters of a step, by name or by a unique class."""
    found: dict[str, Any] = {}
    attached = parent.__batonflow__.children
    for child in spec.children:
        named = attached.get(child.name)
        if named is not None and isinstance(named, child.workflow_class):
            found[child.name] = named
            continue
        fitting = [workflow for workflow in attached.values() if isinstance(workflow, child.workflow_class)]
        if len(fitting) == 1:
            found[child.name] = fitting[0]
        elif not child.has_default:
            raise WorkflowRuntimeError(
                f"Step {spec.name} of {type(parent).__name__} wants a {child.workflow_class.__name__} as "
                f"{child.name!r}, "
                f"but {len(fitting) or 'no such workflow'} is attached; attach it with add_workflows({child.name}=...)"
            )
    return found


# --- recording ------------------------------------------------------------------------------------------------------


def record_outcome(recorder: Recorder, tick: StepReturned | StepFailed) -> StepReturned | StepFailed:
    """Record an attempt before its outcome takes effect; a value that cannot be written fails the attempt."""
    if isinstance(tick, StepReturned):
        try:
            problem = tick.item.spec.problem_with(tick.result)
            if problem is not None:
                raise WorkflowRuntimeError(problem)
            recorder.returned(tick.item, tick.result)
        except (StoreError, WorkflowRuntimeError) as error:
            tick = StepFailed(tick.item, error, tick.now)
        else:
            return tick
    recorder.failed(tick.item, tick.error)
    return tick


def record_wait(recorder: Recorder | None, command: Answered | GaveUp) -> None:
    """Record the answer or the end of a wait."""
    if recorder is None:
        return
    if isinstance(command, Answered):
        recorder.answered(command.waiter, command.answer, command.causes)
    else:
        recorder.gave_up(command.waiter)


def verdict(tick: StepReturned | StepFailed, commands: list[Command]) -> dict[str, Any] | None:
    """Describe the fate of the delivery of a failed attempt, for its record."""
    if isinstance(tick, StepReturned):
        return None
    for command in commands:
        if type(command) is Finish:
            return {"then": "ended"}
        if type(command) is Recovered:
            handling = command.handling
            return {
                "then": "recovered",
                "step": handling.spec.name,
                "event": handling.event,
                "recoveries": handling.recoveries,
            }
    failures = tick.item.failures
    assert failures is not None
    return {
        "then": "retry",
        "due": tick.item.due,
        "first_attempt_at": failures.first_attempt_at,
        "last_failed_at": failures.last_failed_at,
    }


def was_returned(causes: Causes) -> bool:
    """Tell whether an event was the result of a step. The step's record then shows that no step accepted it."""
    number = causes[0][1]
    return not isinstance(number, tuple) and number <= RETURNED


class Waiting:
    """Waits of steps for events, and the time limits of attempts."""

    __slots__ = ("_run",)

    def __init__(self, run: LiveRun) -> None:
        self._run = run

    async def wait(
        self,
        item: WorkItem,
        event_type: type[Event],
        waiter_event: Event | None,
        waiter_id: str | None,
        requirements: dict[str, Any],
        timeout: float | None,
    ) -> Event:
        """Suspend a step until an event meets the requirements; its worker is free in the meantime."""
        run = self._run
        progress = item.make_progress()
        numbers = progress.here()
        numbers.waits += 1
        key = waiter_id or _place(numbers, event_type)
        if key not in progress.answers:
            waiter = self._restored(item, key)
            asked_before = waiter is not None
            if waiter is None:
                run.state.waiter_seq += 1
                waiter = Waiter(waiter_id, key, event_type, requirements, item, timeout and run.now() + timeout)
                waiter.timer = self._timer(waiter)
            else:
                waiter.requirements, waiter.unknown_requirements = requirements, False
            answered = self._suspend(item, waiter, waiter_event, asked_before=asked_before)
            try:
                await answered
            except asyncio.CancelledError:
                if not run.ending.over and waiter.futures == [answered]:  # other branches may share the wait
                    run.start_all(WaitClosed(waiter))
                raise
            finally:
                if waiter.timer is not None and waiter.futures in ([], [answered]):
                    waiter.timer.cancel()
                if answered in waiter.futures:  # otherwise the attempt is over
                    waiter.futures.remove(answered)
                    self._back(item)
        answer = progress.answers[key]
        if answer is None:
            raise TimeoutError(f"Step {item.spec.name} waited for {event_type.__name__} longer than its timeout")
        return answer

    def _suspend(
        self, item: WorkItem, waiter: Waiter, question: Event | None, *, asked_before: bool
    ) -> "asyncio.Future[None]":
        """Free the worker, stream the question, and return the future of the answer."""
        run = self._run
        asks = None if asked_before else question
        if not item.away:  # first, because the record holds the question's place in the stream
            run.stream.note(run.now(), "not_running", item.spec.name, item.worker, type(item.event), None)
        if run.recorder is not None:
            if asks is not None and item.segment is not None:
                item.segment.streamed.append((0, asks, run.root.stream.seq, run.now()))
            # The rest of the step, and its other branches, begin a new record.
            run.recorder.suspend(item, "waiting", (waiter, question))
        if not item.away:
            item.away = True
            if isinstance(item.timer, TaskTimer):
                item.timer.pause(run.loop)
            if run.observer is not None:
                run.observer.step_ended(run, item, None, None)
        answered: asyncio.Future[None] = run.loop.create_future()
        waiter.futures.append(answered)
        run.start_all(WaitOpened(waiter))
        if asks is not None:
            run.publish(asks, item.spec.name, item.id)
        run.root.questions.opened(run, waiter, question)
        run.root.deliver_held_back()
        run.settle()
        return answered

    def _back(self, item: WorkItem) -> None:
        """Take a worker again after a wait."""
        run = self._run
        if not item.away or run.ending.over or run.is_from_before_release(item):
            return
        item.away = False
        if isinstance(item.timer, TaskTimer):
            item.timer.go(run.loop)
        run.stream.note(run.now(), "running", item.spec.name, item.worker, type(item.event), None)
        if run.observer is not None:
            run.observer.step_started(run, item)

    def _restored(self, item: WorkItem, key: str) -> Waiter | None:
        """Return an open wait of a snapshot, or one that was just opened with the same explicit id."""
        return next((waiter for waiter in self._run.state.waiters.of(item) if waiter.key == key), None)

    def abandon(self, item: WorkItem) -> None:
        """End the waiting branches of a finished attempt."""
        for waiter in self._run.state.waiters.of(item):
            if waiter.timer is not None:
                waiter.timer.cancel()
            left, waiter.futures = waiter.futures, []
            for future in left:
                future.cancel()

    def resume(self, waiter: Waiter) -> None:
        """Let a waiting step go on; its delivery keeps the answer."""
        if waiter.timer is not None:
            waiter.timer.cancel()
        for future in waiter.futures:
            if not future.done():
                future.set_result(None)

    def _timer(self, waiter: Waiter) -> asyncio.TimerHandle | None:
        if waiter.due is None:
            return None
        return self._run.loop.call_later(max(0.0, waiter.due - self._run.now()), self._expired, waiter)

    def _expired(self, waiter: Waiter) -> None:
        self._run.feed(WaitTimedOut(waiter))

    def rearm(self) -> None:
        """Set the timers of restored waits again."""
        for waiter in self._run.state.waiters:
            waiter.timer = self._timer(waiter)

    def disarm(self) -> None:
        """Cancel the timers of waits."""
        for waiter in self._run.state.waiters:
            if waiter.timer is not None:
                waiter.timer.cancel()

    def start_step_timer(self, item: WorkItem, task: "asyncio.Task[Any]") -> None:
        """Start the timer of an attempt."""
        item.timer = timer = TaskTimer(item.spec.timeout or 0.0, task)
        timer.go(self._run.loop)

    def stop_step_timer(self, item: WorkItem) -> None:
        """Stop the timer of an attempt."""
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None

    def timed_out(self, item: WorkItem) -> bool:
        """Tell whether the timer of an attempt cancelled it."""
        return isinstance(item.timer, TaskTimer) and item.timer.fired


def _place(numbers: Numbers, event_type: type[Event]) -> str:
    """Return a name for a wait without an id: its place in the delivery."""
    name = qualified_name(event_type)
    return f"{numbers.waits}:{name}@{numbers.key}" if isinstance(numbers, OnceCall) else f"{numbers.waits}:{name}"

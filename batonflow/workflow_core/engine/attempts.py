"""One attempt of a step: the call of its function, and the record of its outcome."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from batonflow.threads import call_in_thread
from batonflow.workflow_core.engine.ports import LiveRun, Recorder
from batonflow.workflow_core.engine.state import RETURNED, Causes, WorkItem
from batonflow.workflow_core.engine.ticks import Answered, Command, Finish, GaveUp, Recovered, StepFailed, StepReturned
from batonflow.workflow_core.errors import StoreError, WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec

__all__ = ["call_step", "events_and_context", "record_outcome", "record_wait", "verdict", "was_returned"]

# --- calling --------------------------------------------------------------------------------------------------------


def call_step(run: LiveRun, item: WorkItem) -> Awaitable[Any]:
    """Call the function of ``item``'s step; the result is awaited by the runner."""
    spec = item.spec
    plan = spec.plan
    if plan == "method":
        return spec.func(run.workflow, item.context or run.context_for(item), item.event)
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
    """The attached workflows that a step asks for: by parameter name, else the only one of that class."""
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
    """Tell whether an event was the result of a step, whose record says already that no step took it."""
    number = causes[0][1]
    return not isinstance(number, tuple) and number <= RETURNED

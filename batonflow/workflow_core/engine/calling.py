"""How a step's function is called: which arguments it gets, on the loop or in a thread."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from batonflow.threads import call_in_thread
from batonflow.workflow_core.engine.ports import LiveRun
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.routing import StepSpec

__all__ = ["call_step", "events_and_context"]


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
    """What ``item``'s step is given by the names of its parameters, but for what is injected."""
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
    """What goes into the event parameter of a step that takes a collection."""
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
                f"but {len(fitting) or 'none'} is attached; attach it with add_workflows({child.name}=...)"
            )
    return found

"""How a step's function is called: which arguments it gets, on the loop or in a thread."""

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from batonflow.lazy import at_first_use
from batonflow.workflow_core.child_runs import attached_arguments
from batonflow.workflow_core.engine.state import WorkItem
from batonflow.workflow_core.events import Event

if TYPE_CHECKING:
    from batonflow.workflow_core.engine.runner import Run

__all__ = ["call_step", "events_and_context"]

call_in_thread = at_first_use("batonflow.threads", "call_in_thread")


def call_step(run: "Run", item: WorkItem) -> Awaitable[Any]:
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


def events_and_context(run: "Run", item: WorkItem) -> dict[str, Any]:
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


async def _call_by_names(run: "Run", item: WorkItem) -> Any:
    spec, arguments = item.spec, events_and_context(run, item)
    if spec.children:
        arguments.update(attached_arguments(run.workflow, spec))
    if spec.resources:
        arguments.update(await run.resources(spec))
    function = spec.func if spec.is_free else partial(spec.func, run.workflow)
    if spec.is_async:
        return await function(**arguments)
    return await call_in_thread(partial(function, **arguments), f"Step {spec.name}")

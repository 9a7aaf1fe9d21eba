"""Runs of a workflow that have not begun: new ones, and those that a context or a snapshot carries on."""

from typing import TYPE_CHECKING, Any

from batonflow.clock import current_source
from batonflow.lazy import at_first_use
from batonflow.workflow_core.child_runs import Family
from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.engine.runner import Run
from batonflow.workflow_core.engine.state import RunState
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.served_input import input_is_served, mark_input

if TYPE_CHECKING:
    from batonflow.workflow_core.context.context import Context
    from batonflow.workflow_core.context.snapshot import LoadedRun
    from batonflow.workflow_core.workflow import Workflow

__all__ = ["inner_run", "new_run"]

load_run = at_first_use("batonflow.workflow_core.context.snapshot", "load_run")
stepwise_run = at_first_use("batonflow.workflow_core.compat.stepwise", "StepwiseRun")


def new_run(workflow: "Workflow", ctx: "Context[Any] | None", run_id: str | None, *, stepwise: bool = False) -> Run:
    """A run that has not begun, with what a context carries into it."""
    options = workflow.__batonflow__
    restored, cell, children = (
        ctx.take_restored() if ctx is not None else (None, StateCell(options.steps.state_type), {})
    )
    if cell.foreign is not None:
        raise WorkflowRuntimeError(
            f"The snapshot keeps its state in a durable state store ({cell.foreign}), which this runtime does not offer"
        )
    if restored is None:
        restored = RunState("", options.steps.table)
    known = None if options.store is not None else options.runtime.find(restored.run_id)
    if known is not None and not workflow.__batonflow_id_matters__:
        restored.run_id = ""  # a snapshot of a run that still goes on here: this is another one
    was_served = restored.served
    restored.served = was_served or input_is_served()
    restored.run_id = run_id or restored.run_id or current_source().token()
    run = (stepwise_run if stepwise else Run)(workflow, restored, cell)
    if was_served:
        mark_input(run.variables, served=True)
    if children and children["runs"]:
        run.family = run.family or Family(run, None)
        run.family.saved_with = ctx.given_serializer if ctx is not None else None
    if run.family is not None and children:
        run.family.restore(children["counts"], children["runs"])
    if ctx is not None:
        ctx.bind(run)
        run.handler_context = ctx
    if options.store is None:  # else the store knows which runs there are
        options.runtime.add(run)
    options.last_state = run.state
    return run


def inner_run(
    workflow: "Workflow",
    *,
    path: str,
    parent: Family,
    payload: dict[str, Any] | None = None,
    ctx: "Context[Any] | None" = None,
) -> Run:
    """A run of a workflow inside another one: new, perhaps with the state of a context, or from a snapshot."""
    options = workflow.__batonflow__
    run_id = f"{parent.run.state.run_id}/{path.rpartition('/')[2]}"
    if payload is not None:
        loaded: LoadedRun = load_run(workflow, payload, parent.saved_with or options.serializer)
        state, cell, children = loaded.state, loaded.cell, loaded.children
        state.run_id = run_id
    else:
        cell = StateCell(options.steps.state_type) if ctx is None else ctx.take_restored()[1]
        state, children = RunState(run_id, options.steps.table), {}
    run = Run(workflow, state, cell, path=path, parent=parent)
    # An event from elsewhere may have started it, or the run around it was taken up.
    state.served = parent.run.state.served
    mark_input(run.variables, served=state.served)
    if run.family is not None and children:
        run.family.restore(children["counts"], children["runs"])
    if ctx is not None:
        ctx.bind(run)
        run.handler_context = ctx
    options.last_state = state
    recorder = parent.run.recorder
    if recorder is not None:
        run.recorder = recorder.for_child(path, options.serializer)
        run.recorder.watch(run.cell)
    return run

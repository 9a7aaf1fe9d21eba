"""The assembly of runs: new runs, and runs that continue from a context or a snapshot."""

from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from batonflow.clock import current_source
from batonflow.instrumentation.logs import set_debugging
from batonflow.new_runs import input_is_served, mark_input
from batonflow.workflow_core import context as parts
from batonflow.workflow_core.context.context import Context
from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.engine.ports import load_run, stepwise_run
from batonflow.workflow_core.engine.state import RunState
from batonflow.workflow_core.errors import WorkflowRuntimeError
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run

if TYPE_CHECKING:
    from batonflow.workflow_core.child_runs import ChildRuns, SavedChild
    from batonflow.workflow_core.questions import OpenQuestions

__all__ = ["WorkflowRun", "keep_when_abandoned", "new_run"]


class WorkflowRun(Run):
    """A run with all its parts: contexts of attempts, child runs, questions to people."""

    __slots__ = ()

    make_context = staticmethod(Context.for_step)

    def make_child_runs(self, parent: "ChildRuns | None") -> "ChildRuns":
        """Create the child runs of this run."""
        return parts.child_runs.ChildRuns(self, parent, _inner_run)

    def make_questions(self) -> "OpenQuestions":
        """Create the questions of the tree."""
        return parts.questions.OpenQuestions(self)


def new_run(
    workflow: AnyWorkflow, ctx: Context[Any] | None, run_id: str | None, *, debug: bool | None, stepwise: bool = False
) -> Run:
    """Create a run without starting it, with the state of a context."""
    options = workflow.__batonflow__
    loaded, cell = ctx.take_loaded() if ctx is not None else (None, StateCell(options.steps.state_type))
    if cell.foreign is not None:
        raise WorkflowRuntimeError(
            f"The snapshot keeps its state in a durable state store ({cell.foreign}), which this runtime does not offer"
        )
    restored: RunState = RunState("", options.steps.table) if loaded is None else loaded.state
    known = None if options.keeper is not None else options.runtime.find(restored.run_id)
    if known is not None and not getattr(workflow, "__batonflow_id_matters__", False):
        restored.run_id = ""  # the snapshot is from a run that still goes on here, so this is another run
    was_served = restored.served
    restored.served = was_served or input_is_served()
    restored.run_id = run_id or restored.run_id or current_source().token()
    run = (stepwise_run if stepwise else WorkflowRun)(workflow, restored, cell)
    if was_served:
        mark_input(run.variables, served=True)
    if debug is not None or options.debug is not None:
        set_debugging(run.variables, debug, options.debug)
    if loaded is not None and loaded.children:
        family: ChildRuns = cast("ChildRuns | None", run.family) or run.make_child_runs(None)
        run.family = family
        family.saved_with = ctx.given_serializer if ctx is not None else None
    if run.family is not None and loaded is not None:
        run.family.restore(loaded.counts, loaded.children)
    if ctx is not None:
        ctx.bind(run)
        run.handler_context = ctx
    if options.on_abandon == "stop":  # child runs follow their parent
        run.stream.on_abandon = partial(_abandon, ref(run))
    if options.keeper is None:  # otherwise the store knows the runs
        options.runtime.add(run)
    options.last_state = run.state
    return run


def _abandon(run: "ref[Run]") -> None:
    known = run()
    if known is not None:
        known.abandoned()


def _inner_run(
    workflow: AnyWorkflow,
    parent: "ChildRuns",
    own_name: str,
    *,
    saved: "SavedChild | None" = None,
    ctx: Context[Any] | None = None,
) -> Run:
    """Create a child run: new, with the state of a context, or from a restored run."""
    options = workflow.__batonflow__
    around = parent.run
    path = f"{around.path}/{own_name}" if around.path else own_name
    run_id = f"{around.state.run_id}/{own_name}"
    loaded: Any = None
    if saved is not None:
        loaded = saved.loaded or load_run(workflow, saved.payload, parent.saved_with or options.serializer)
        state, cell = loaded.state, loaded.cell
        state.run_id = run_id
    else:
        cell = StateCell(options.steps.state_type) if ctx is None else ctx.take_loaded()[1]
        state = RunState(run_id, options.steps.table)
    run = WorkflowRun(workflow, state, cell, path=path, parent=parent)
    # An event from elsewhere may have started it, or the parent was resumed.
    state.served = around.state.served
    mark_input(run.variables, served=state.served)
    if options.debug is not None:
        set_debugging(run.variables, options.debug)
    if run.family is not None and loaded is not None:
        run.family.restore(loaded.counts, loaded.children)
    if ctx is not None:
        ctx.bind(run)
        run.handler_context = ctx
    options.last_state = state
    recorder = around.recorder
    if recorder is not None:
        run.recorder = recorder.for_child(path, options.serializer)
        run.recorder.watch(run.cell)
    return run


def keep_when_abandoned(run: Run | None) -> None:
    """Let a run go on if a task that awaits or reads it is cancelled. The caller handles runs without readers."""
    if run is not None:
        run.stream.on_abandon = None

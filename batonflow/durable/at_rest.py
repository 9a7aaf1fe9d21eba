"""Runs at rest: the state and the waits of a run as its records leave it."""

from typing import TYPE_CHECKING

from batonflow.durable.history import no_such_run
from batonflow.durable.lifecycle import folded, known_run, restore
from batonflow.workflow_core.context.state_store import StateCell
from batonflow.workflow_core.engine.state import RunState
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest, open_requests
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import WorkflowRun

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStore

__all__ = ["awaited_events", "awaited_events_of", "open_inputs_of", "run_at_rest"]


async def run_at_rest(workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None) -> "Run | None":
    """Return a run as its records leave it, with its child runs; it never begins. None for an unknown or finished run.

    Args:
        workflow: Its code.
        store: Where it is.
        run_id: The run.
        at: As it was after this commit; as it is when left out.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records any more.
        StoreError: The store fails.
    """
    loaded = await store.load(run_id, at)
    if loaded is None or (loaded.info.result is not None and (at is None or at >= loaded.info.seq)):
        return None
    steps = workflow.__batonflow__.steps
    run = WorkflowRun(workflow, RunState(run_id, steps.table), StateCell(steps.state_type))
    restore(run, folded(workflow, loaded))
    if run.family is not None:
        run.family.unfold()
    return run


async def _found_at_rest(
    workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None, *, is_known: bool
) -> "Run | None":
    run = await run_at_rest(workflow, store, run_id, at)
    # One that this process has just begun may not have reached the store yet.
    if run is None and not is_known and await store.info(run_id) is None:
        raise no_such_run(run_id)
    return run


async def open_inputs_of(workflow: AnyWorkflow, store: "RunStore", run_id: str) -> list[InputRequest]:
    """The questions to people that stand open in a run, wherever it is.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records any more.
        StoreError: There is no such run, or the store fails.
    """
    live = known_run(store, workflow, run_id, None)
    if live is not None and live.opening is None:
        return open_requests(live)
    run = await _found_at_rest(workflow, store, run_id, is_known=live is not None)
    return [] if run is None else [InputRequest(asks, question) for asks, question in run.questions.at_rest()]


async def awaited_events_of(
    workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None
) -> set[type[Event]]:
    """Return the classes of events that a run of any process waits for, or waited for after a commit.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records any more.
        StoreError: There is no such run or commit, or the store fails.
    """
    live = known_run(store, workflow, run_id, None)
    if at is None and live is not None and live.opening is None and not live.is_asleep:
        return awaited_events(live)
    run = await _found_at_rest(workflow, store, run_id, at, is_known=live is not None)
    return set() if run is None else awaited_events(run)


def awaited_events(run: "Run") -> set[type[Event]]:
    """Return the classes of the events that a run and its child runs wait for."""
    return {waiter.event_type for inner in run.inside() for waiter in inner.state.waiters}

"""The keeper of runs: all that a workflow does with its store, behind the port of the engine."""

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any

from batonflow.durable.at_rest import awaited_events_of, open_inputs_of
from batonflow.durable.cancels import cancel_run
from batonflow.durable.history import stored_stream
from batonflow.durable.lifecycle import (
    begin_recorded,
    forget_sleepers,
    fork_run,
    give_up,
    recover_runs,
    resume_run,
    resume_sleeper,
    send_to_run,
    wake_sleeper,
)
from batonflow.durable.live_runs import known_run, runs_of
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.stores.opening import open_store
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.stream import Entry

__all__ = ["StoreKeeper", "open_keeper"]


class StoreKeeper:
    """Keeps the runs of workflows in one store.

    Args:
        store: The store.
    """

    def __init__(self, store: RunStore) -> None:
        self.store = store

    def check_run_id(self, run_id: str) -> None:
        """Refuse an id that no run can have."""
        check_run_id(run_id)

    # --- runs of this process -----------------------------------------------------------------------------------------

    def live_run(self, workflow: AnyWorkflow, run_id: str, event: Event | None = None) -> Run | None:
        """Return the run of this id that goes on in this process."""
        return known_run(self.store, workflow, run_id, event)

    def live_runs(self, workflow: AnyWorkflow) -> list[Run]:
        """Return the runs of a workflow that go on in this process."""
        return runs_of(self.store, workflow)

    def forget_sleeping(self, workflow: AnyWorkflow) -> int:
        """Let go of runs that left memory and have no handlers; return their number."""
        return forget_sleepers(self.store, workflow)

    def begin(self, workflow: AnyWorkflow, run: Run, event: Event | None) -> None:
        """Begin a run under its id, or go on with the run that the store has."""
        begin_recorded(workflow, self.store, run, event)

    def resume(self, workflow: AnyWorkflow, run: Run) -> None:
        """Go on with a run that the store has."""
        resume_run(workflow, self.store, run)

    def fork(
        self, workflow: AnyWorkflow, run: Run, source: str, at: int, state: Mapping[str, Any], event: Event | None
    ) -> None:
        """Begin a run that shares the work of another run up to a commit."""
        fork_run(workflow, self.store, run, source, at, state, event)

    async def recover(self, workflow: AnyWorkflow, limit: int, skip: Collection[str]) -> list[Run]:
        """Take up unfinished runs that no living process drives."""
        return await recover_runs(workflow, self.store, limit, skip)

    async def give_up(self, run: Run) -> None:
        """Stop a run in this process and leave it to the next process that takes it up."""
        await give_up(run)

    def wake(self, run: Run) -> None:
        """Bring a run that left memory back, as soon as its turn comes."""
        wake_sleeper(run)

    def restore(self, run: Run) -> None:
        """Bring a run that left memory back."""
        resume_sleeper(run)

    async def stored_stream(self, run: Run, after: int) -> list[Entry]:
        """Return the stream of a run from before this process took it up."""
        return await stored_stream(run, after)

    # --- runs of any process ------------------------------------------------------------------------------------------

    async def send(
        self, workflow: AnyWorkflow, run_id: str, event: Event, key: str | None = None, step: str | None = None
    ) -> bool:
        """Put an event into the inbox of a run; tell whether it is new there."""
        return await send_to_run(workflow, self.store, run_id, event, key, step)

    async def cancel(self, run_id: str, reason: str) -> None:
        """Cancel a run, whichever process drives it."""
        await cancel_run(self.store, run_id, reason)

    async def open_inputs(self, workflow: AnyWorkflow, run_id: str) -> list[InputRequest]:
        """Return the questions to people that stand open in a run."""
        return await open_inputs_of(workflow, self.store, run_id)

    async def awaited_events(self, workflow: AnyWorkflow, run_id: str, at: int | None) -> set[type[Event]]:
        """Return the classes of the events that the steps of a run wait for."""
        return await awaited_events_of(workflow, self.store, run_id, at)


def open_keeper(store: "str | PathLike[str] | RunStore") -> StoreKeeper:
    """Open a store and return its keeper.

    Args:
        store: A path, a URL, or a store.

    Raises:
        StoreError: ``store`` does not name a store.
    """
    return StoreKeeper(open_store(store))

"""The keeper of runs: the operations of a workflow on its store, behind a port of the engine.

It begins, resumes, forks and recovers runs, lets them leave memory while they wait, and says what a run id means.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, cast

from batonflow.clock import current_source
from batonflow.durable.at_rest import awaited_events_of, open_inputs_of
from batonflow.durable.attempt_record import as_json
from batonflow.durable.cancels import cancel_run, check_appended
from batonflow.durable.codec import Codec
from batonflow.durable.connection import connection_of
from batonflow.durable.history import stored_stream
from batonflow.durable.lease import RunLease
from batonflow.durable.live_runs import QUEUED, forget, known_run, runs_of
from batonflow.durable.opening import Opening
from batonflow.durable.store_protocol import RunStore, Serves
from batonflow.durable.stores.bounds import check_run_id
from batonflow.durable.stores.opening import open_store
from batonflow.workflow_core.dependencies import give_deps
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.options import AnyWorkflow, Options
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import new_run
from batonflow.workflow_core.stream import Entry

__all__ = ["StoreKeeper", "open_keeper"]


class StoreKeeper:
    """The keeper of workflows' runs in one store.

    Args:
        store: The store.
    """

    def __init__(self, store: RunStore) -> None:
        self.store = store

    def check_run_id(self, run_id: str) -> None:
        """Refuse an invalid run id."""
        check_run_id(run_id)

    # --- runs of this process -----------------------------------------------------------------------------------------

    def live_run(self, workflow: AnyWorkflow, run_id: str, event: Event | None = None) -> Run | None:
        """Return the run with an id in this process, or None."""
        return known_run(self.store, workflow, run_id, event)

    def live_runs(self, workflow: AnyWorkflow) -> list[Run]:
        """Return the runs of a workflow in this process."""
        return runs_of(self.store, workflow)

    def count_awake(self, workflow: AnyWorkflow) -> int:
        """Return the number of active runs of a workflow in the memory of this process."""
        return sum(not (run.is_asleep or run.ending.done) for run in self.live_runs(workflow))

    def forget_sleeping(self, workflow: AnyWorkflow) -> int:
        """Forget released runs without handlers, and return their number."""
        asleep = [run for run in self.live_runs(workflow) if run.is_asleep and not run.ending.handlers]
        for run in asleep:
            connection_of(self.store).forget(run)
            forget(self.store, run)
        return len(asleep)

    def begin(self, workflow: AnyWorkflow, run: Run, event: Event | None) -> None:
        """Start a run under its id, or continue the run of this id in the store.

        Args:
            workflow: The workflow.
            run: A new run; it begins as soon as the store agrees.
            event: The event that it starts with; None for a run from a snapshot.

        Raises:
            StoreError: The start event cannot be written.
        """
        opening = Opening(workflow, self.store, run)
        try:
            opening.prepare(event)
        except StoreError:
            opening.give_up()
            raise
        opening.start(opening.create())

    def resume(self, workflow: AnyWorkflow, run: Run) -> None:
        """Resume a stored run."""
        opening = Opening(workflow, self.store, run)
        opening.start(opening.carry_on())

    def fork(
        self, workflow: AnyWorkflow, run: Run, source: str, at: int, state: Mapping[str, Any], event: Event | None
    ) -> None:
        """Start a run that shares the work of another run up to a commit."""
        opening = Opening(workflow, self.store, run)
        opening.start(opening.fork(source, at, state, event))

    async def recover(
        self,
        workflow: AnyWorkflow,
        limit: int,
        skip: Collection[str],
        queues: Sequence[str] | None,
        ctx: Any,
        *,
        bounded: bool = False,
    ) -> list[Run]:
        """Resume runs of a workflow that no live process drives, or that are due.

        Args:
            workflow: The workflow.
            limit: The maximum number of runs.
            skip: The ids of runs to leave out.
            queues: The queues of the runs; None for all.
            ctx: A context with the dependencies of the runs, or None.
            bounded: Whether to leave runs to later beyond ``num_concurrent_runs``, over all processes of the store.
                Otherwise they wait for their turn in this process.
        """
        store, served = self.store, serves(workflow.__batonflow__, bounded=bounded)
        found: list[Run] = []
        left_out = set(skip)
        while len(found) < limit:
            most = min(100, limit - len(found))
            claimed = await store.claim_due(
                store.owner, store.lease_seconds, most, [served], queues=queues, skip=left_out
            )
            for one in claimed:
                if (live := self.live_run(workflow, one.run_id)) is not None:
                    connection_of(store).claimed_here(one, live)
                else:
                    run = new_run(workflow, None, one.run_id, debug=None)
                    if ctx is not None:
                        give_deps(run, ctx.given_deps)
                    opening = Opening(workflow, store, run)
                    opening.start(opening.take_up(one))
                    found.append(run)
            if len(claimed) < most:
                break
            left_out.update(one.run_id for one in claimed)  # a run that fails at once is offered again
        return found

    async def give_up(self, run: Run) -> None:
        """Stop a run in this process, and leave it to the next one. An ended run stays ended."""
        if (leave := QUEUED.get(run)) is not None:  # nothing of it is stored yet
            leave()
        with suppress(StoreError):
            # Repeated, because the run may be released or restored in the meantime; unwritten commits must not
            # follow the release.
            while not run.ending.done:
                held = _lease_of(run)
                coming_or_leaving = run.opening or (held and held.parking)
                if coming_or_leaving is not None:
                    await asyncio.wait({coming_or_leaving})
                elif held is not None and not held.is_settled:
                    await held.settled()
                else:
                    break
        lease = _lease_of(run)
        if run.ending.done:
            return
        if lease is None:  # it was released, perhaps just now
            connection_of(self.store).forget(run)
            forget(self.store, run)
            run.ending.interrupted()
        else:
            run.ending.interrupted()
            with suppress(StoreError):
                await self.store.release(lease.run_id, self.store.owner, lease.epoch)

    def wake(self, run: Run) -> None:
        """Request the restore of a released run."""
        connection_of(self.store).wake(run)

    def restore(self, run: Run) -> None:
        """Restore a released run."""
        arrived = run.arrived_while_released
        opening = Opening(run.workflow, self.store, run)
        run.arrived_while_released = arrived
        opening.start(opening.come_back(holds_events=bool(arrived)))

    async def stored_stream(self, run: Run, after: int) -> list[Entry]:
        """Return the stream of a run from before this process claimed it."""
        return await stored_stream(run, after)

    # --- runs of any process ------------------------------------------------------------------------------------------

    async def send(
        self, workflow: AnyWorkflow, run_id: str, event: Event, key: str | None = None, step: str | None = None
    ) -> bool:
        """Put an event into the inbox of a run; return False if its key is already there.

        Raises:
            StoreError: There is no such run, it is over, or the event cannot be written.
            WorkflowRuntimeError: There is no such step that takes the event.
        """
        options = workflow.__batonflow__
        if step is not None and await self._is_run_of(options.workflow_name, run_id):
            child, _, inner = step.rpartition(".")
            taker = options.children[child].__batonflow__ if child in options.children else options
            taker.check_target(event, inner if child else step)
        data = Codec.of(options).event(event)
        payload = as_json(data if step is None else {"event": data, "step": step})
        return check_appended(run_id, await self.store.append(run_id, key or current_source().token(20), payload))

    async def _is_run_of(self, workflow_name: str, run_id: str) -> bool:
        """Tell whether the steps of a workflow may take the events for a run."""
        info = await self.store.info(run_id)
        return info is None or info.workflow == workflow_name

    async def cancel(self, run_id: str, reason: str) -> None:
        """Cancel a run in any process."""
        await cancel_run(self.store, run_id, reason)

    async def open_inputs(self, workflow: AnyWorkflow, run_id: str) -> list[InputRequest]:
        """Return the questions that a run asks people."""
        return await open_inputs_of(workflow, self.store, run_id)

    async def awaited_events(self, workflow: AnyWorkflow, run_id: str, at: int | None) -> set[type[Event]]:
        """Return the classes of the events that the steps of a run wait for."""
        return await awaited_events_of(workflow, self.store, run_id, at)


def serves(options: Options, *, bounded: bool) -> Serves:
    """Return the runs whose records the code of a workflow understands.

    Args:
        options: The options of the workflow. Without a version it takes up the runs of all versions.
        bounded: Whether ``num_concurrent_runs`` bounds the runs that are driven.
    """
    versions = None if options.version is None else [options.version, *(known or None for known in options.upcasters)]
    return Serves(options.workflow_name, versions, options.num_concurrent_runs if bounded else None)


def open_keeper(store: "str | PathLike[str] | RunStore") -> StoreKeeper:
    """Open a store and return its keeper.

    Args:
        store: A path, a URL, or a store.

    Raises:
        StoreError: ``store`` is neither a store nor the name of a store.
    """
    return StoreKeeper(open_store(store))


def _lease_of(run: Run) -> RunLease | None:
    return cast("RunLease | None", run.drive)

"""The lifecycle of stored runs: beginning, takeover, release while waiting, forks, and the meaning of ids."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, cast

from batonflow.clock import current_source
from batonflow.durable.attempt_record import as_json
from batonflow.durable.cancels import check_appended
from batonflow.durable.codec import Codec
from batonflow.durable.connection import connection_of
from batonflow.durable.lease import RunLease
from batonflow.durable.live_runs import forget, known_run, runs_of
from batonflow.durable.opening import Opening
from batonflow.durable.store_protocol import Claimed, RunStore
from batonflow.workflow_core.errors import StoreError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run
from batonflow.workflow_core.runs import new_run

__all__ = [
    "begin_recorded", "forget_sleepers", "fork_run", "give_up", "recover_runs", "resume_run", "resume_sleeper",
    "send_to_run", "wake_sleeper",
]  # fmt: skip


def begin_recorded(workflow: AnyWorkflow, store: RunStore, run: Run, event: Event | None) -> None:
    """Begin a run under its id, or go on with the one that the store has.

    Args:
        workflow: The workflow.
        store: Where it is kept.
        run: A new run; it begins as soon as the store agrees.
        event: What it starts with; None for one that a snapshot holds.

    Raises:
        StoreError: The start event cannot be written.
    """
    opening = Opening(workflow, store, run)
    try:
        opening.prepare(event)
    except StoreError:
        opening.give_up()
        raise
    opening.start(opening.create())


def resume_run(workflow: AnyWorkflow, store: RunStore, run: Run) -> None:
    """Go on with a run that the store has."""
    opening = Opening(workflow, store, run)
    opening.start(opening.carry_on())


def fork_run(
    workflow: AnyWorkflow,
    store: RunStore,
    run: Run,
    source: str,
    at: int,
    state: Mapping[str, Any],
    event: Event | None,
) -> None:
    """Begin a run that shares the work of another run up to a commit."""
    opening = Opening(workflow, store, run)
    opening.start(opening.fork(source, at, state, event))


async def give_up(run: Run) -> None:
    """Stop a run in this process, and leave it to the next one that takes it up; one that is over stays so."""
    store: RunStore | None = run.workflow.__batonflow__.store
    assert store is not None
    with suppress(StoreError):
        # Repeated, as the run goes on meanwhile, and may leave memory or come back: commits on their way must not
        # come after the release.
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
    if lease is None:  # it left memory, perhaps just now
        connection_of(store).forget(run)
        forget(store, run)
        run.ending.interrupted()
    else:
        run.ending.interrupted()
        with suppress(StoreError):
            await store.release(lease.run_id, store.owner, lease.epoch)


def wake_sleeper(run: Run) -> None:
    """Wake a run that left memory, as an event came for it."""
    store: RunStore | None = run.workflow.__batonflow__.store
    if store is not None:
        connection_of(store).wake(run)


def resume_sleeper(run: Run) -> None:
    """Bring a run that left memory back into it."""
    store: RunStore | None = run.workflow.__batonflow__.store
    assert store is not None
    early = run.early
    opening = Opening(run.workflow, store, run)
    run.early = early
    opening.start(opening.carry_on())


async def recover_runs(workflow: AnyWorkflow, store: RunStore, limit: int, skip: Collection[str] = ()) -> list[Run]:
    """Take up runs of this workflow that no living process drives, or that are due."""
    found: list[Run] = []
    passed_over: list[Claimed] = []
    seen: set[str] = set()
    while len(found) < limit:
        claimed = await store.claim_due(
            store.owner, store.lease_seconds, min(100, limit - len(found)), [workflow.__batonflow__.workflow_name]
        )
        for one in claimed:
            if one.run_id in skip or one.run_id in seen:  # a run that cannot be taken up is offered again at once
                passed_over.append(one)
            elif known_run(store, workflow, one.run_id, None) is None:
                run = new_run(workflow, None, one.run_id)
                opening = Opening(workflow, store, run)
                opening.start(opening.take_up(one))
                found.append(run)
        if not claimed or all(one.run_id in seen for one in claimed):
            break
        seen.update(one.run_id for one in claimed)
    for one in passed_over:
        await store.release(one.run_id, store.owner, one.epoch)
    return found


async def send_to_run(
    workflow: AnyWorkflow,
    store: RunStore,
    run_id: str,
    event: Event,
    key: str | None = None,
    step: str | None = None,
) -> bool:
    """Put an event into a run's inbox; tells whether it was not there before.

    Raises:
        StoreError: There is no such run, it is over, or the event cannot be written.
        WorkflowRuntimeError: There is no such step that takes the event.
    """
    options = workflow.__batonflow__
    if step is not None:
        child, _, inner = step.rpartition(".")
        taker = options.children[child].__batonflow__ if child in options.children else options
        taker.check_target(event, inner if child else step)
    data = Codec(options.serializer).event(event)
    payload = as_json(data if step is None else {"event": data, "step": step})
    return check_appended(run_id, await store.append(run_id, key or current_source().token(20), payload))


def forget_sleepers(store: RunStore, workflow: AnyWorkflow) -> int:
    """Let go of runs that left memory and have no handlers; return their number."""
    asleep = [run for run in runs_of(store, workflow) if run.is_asleep and not run.ending.handlers]
    for run in asleep:
        connection_of(store).forget(run)
        forget(store, run)
    return len(asleep)


def _lease_of(run: Run) -> RunLease | None:
    return cast("RunLease | None", run.drive)

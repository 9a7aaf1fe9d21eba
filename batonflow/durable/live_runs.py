"""The stored runs of this process, by store and id."""

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from batonflow.durable.codec import Codec
from batonflow.durable.digests import digest_of_start
from batonflow.durable.store_protocol import RunStore
from batonflow.workflow_core.errors import RunInputMismatchError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run

__all__ = [
    "DIGESTS",
    "LIVE",
    "METADATA",
    "QUEUED",
    "belongs_to",
    "forget",
    "hand_over",
    "known_run",
    "other_input",
    "runs_of",
]


LIVE: WeakKeyDictionary[RunStore, dict[str, Run]] = WeakKeyDictionary()
"""The stored runs of this process, by store and id."""

DIGESTS: WeakKeyDictionary[Run, str] = WeakKeyDictionary()
"""Digests of the input of runs."""

METADATA: WeakKeyDictionary[Run, Mapping[str, str]] = WeakKeyDictionary()
"""The metadata of new runs, until the store has them."""

QUEUED: WeakKeyDictionary[Run, Callable[[], None]] = WeakKeyDictionary()
"""Runs that wait for the turn of their session, with the function that gives up their place."""


def forget(store: RunStore, run: Run) -> None:
    """Forget a run that this process no longer drives."""
    live = LIVE.get(store, {})
    if live.get(run.state.run_id) is run:
        del live[run.state.run_id]


def hand_over(run: Run) -> None:
    """Leave a stored run to the process that takes it up."""
    run.silence()
    run.ending.interrupted("as another process takes it up")


def known_run(store: RunStore, workflow: AnyWorkflow, run_id: str, event: Event | None) -> Run | None:
    """Return the run with an id in this process.

    Raises:
        RunInputMismatchError: The run has another input or belongs to another workflow.
    """
    run = LIVE.get(store, {}).get(run_id)
    if run is None or not run.is_live:
        return None
    theirs, ours = run.workflow.__batonflow__.workflow_name, workflow.__batonflow__.workflow_name
    if theirs != ours:
        raise belongs_to(run_id, theirs, ours)
    known = None if event is None else DIGESTS.get(run)
    if event is not None and known is not None:
        codec = Codec.of(workflow.__batonflow__)
        if digest_of_start(codec, event) != known:
            raise other_input(run_id)
    return run


def runs_of(store: RunStore, workflow: AnyWorkflow) -> list[Run]:
    """Return the runs of a workflow that this process drives, in memory or released."""
    runs = list(LIVE.get(store, {}).values())
    return [run for run in runs if run.workflow is workflow and run.is_live]


def belongs_to(run_id: str, theirs: str, ours: str) -> RunInputMismatchError:
    """Return the error for the run of another workflow."""
    return RunInputMismatchError(
        f"Run {run_id!r} belongs to workflow {theirs}, not to {ours}: choose another run_id, or keep the workflow's "
        f"name with workflow_name={theirs!r}"
    )


def other_input(run_id: str) -> RunInputMismatchError:
    """Return the error for a run that was started with other input."""
    return RunInputMismatchError(
        f"Run {run_id!r} was started with other input: use the same input to go on with it, or another run_id or "
        "request_id to start a new run"
    )

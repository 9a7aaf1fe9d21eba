"""Stored runs, read without running them: the state, the waits and the open questions after the last record."""

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from batonflow.durable.history import no_such_run
from batonflow.durable.live_runs import known_run
from batonflow.durable.recovery import recorded_run, run_of
from batonflow.durable.store_protocol import Loaded
from batonflow.workflow_core.errors import InputClosedError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest, open_requests
from batonflow.workflow_core.options import AnyWorkflow
from batonflow.workflow_core.run import Run

if TYPE_CHECKING:
    from batonflow.durable.store_protocol import RunStore

__all__ = ["awaited_events", "awaited_events_of", "open_inputs_of", "repeat_questions", "run_at_rest"]


async def run_at_rest(
    workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None
) -> tuple[Run, Loaded] | None:
    """Rebuild a run and its child runs without starting them; return None for an unknown or finished run.

    The returned records and inbox were read at the same moment.

    Args:
        workflow: The workflow of the run.
        store: The store of the run.
        run_id: The run.
        at: The last commit to read; by default the newest one.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
        StoreError: The store fails.
    """
    loaded = await store.load(run_id, at)
    if loaded is None or (loaded.info.result is not None and (at is None or at >= loaded.info.seq)):
        return None
    run = run_of(workflow, run_id, recorded_run(workflow, loaded))
    run.unfold()
    return run, loaded


async def _found_at_rest(
    workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None, *, is_known: bool
) -> tuple[Run, Loaded] | None:
    found = await run_at_rest(workflow, store, run_id, at)
    # A run that this process has just started may not be in the store yet.
    if found is None and not is_known and await store.info(run_id) is None:
        raise no_such_run(run_id)
    return found


class StoredInputRequest(InputRequest):
    """A question of a run that this process does not drive."""

    def respond(self, /, response: Any = None, **fields: Any) -> None:  # noqa: ARG002 - overrides
        """Refuse the answer, because it would not reach the run.

        Raises:
            InputClosedError: Always; the message says how to answer with ``send_to_run``.
        """
        raise InputClosedError(
            f"This {type(self.event).__name__} ({self.id}) belongs to a run that this store object does not drive: "
            "send the answer with await workflow.send_to_run(run_id, request.answer(...), key=request.answer_key)"
        )


async def open_inputs_of(workflow: AnyWorkflow, store: "RunStore", run_id: str) -> list[InputRequest]:
    """Return the open questions of a run in any process. Leave out questions with an answer in its inbox.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
        StoreError: The run does not exist, or the store fails.
    """
    live = known_run(store, workflow, run_id, None)
    if live is not None and live.opening is None:
        return open_requests(live)
    found = await _found_at_rest(workflow, store, run_id, is_known=live is not None)
    if found is None:
        return []
    run, loaded = found
    requests = [StoredInputRequest(asks, question) for asks, question in run.questions.at_rest()]
    answered = {item.key for item in loaded.inbox}  # the run has not read these answers yet
    return [request for request in requests if request.answer_key not in answered]


async def awaited_events_of(
    workflow: AnyWorkflow, store: "RunStore", run_id: str, at: int | None = None
) -> set[type[Event]]:
    """Return the classes of awaited events of a run in any process, now or since the commit ``at``.

    Raises:
        ReplayIncompatible: The code of the workflow does not fit the records.
        StoreError: The run or the commit does not exist, or the store fails.
    """
    live = known_run(store, workflow, run_id, None)
    if at is None and live is not None and live.opening is None and not live.is_asleep:
        return awaited_events(live)
    found = await _found_at_rest(workflow, store, run_id, at, is_known=live is not None)
    return set() if found is None else awaited_events(found[0])


def awaited_events(run: "Run") -> set[type[Event]]:
    """Return the classes of the events that a run and its child runs wait for."""
    return {waiter.event_type for _, waiter in run.waits()}


def repeat_questions(run: Run, loaded: Loaded, answered: Container[str]) -> None:
    """Stream the open questions of a resumed run again, for readers in this process.

    Args:
        run: The restored run.
        loaded: The records of the run.
        answered: The keys of the answers in the inbox of the run.
    """
    asks = run
    # The questions of child runs are found by restoring these runs, so do that in a copy.
    if run.family is not None:
        asks = run_of(run.workflow, run.state.run_id, recorded_run(run.workflow, loaded))
        asks.unfold()
    found = [
        (question.path if question.waiter is None else inner.path, question)
        for inner, question in asks.questions.at_rest()
        if InputRequest(inner, question).answer_key not in answered
    ]
    if found:
        run.questions.repeat(found)

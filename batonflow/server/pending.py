"""Open questions of a run, and their answers."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

from batonflow.durable.history import commits_of
from batonflow.durable.replay import records_of
from batonflow.server.envelopes import chain, envelope
from batonflow.server.runs import Place, Runs
from batonflow.values.problems import problems_of
from batonflow.workflow_core.errors import InputResponseError, StoreError
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.stored_runs import StoredRuns

__all__ = ["UnfitAnswerError", "answer", "open_requests", "put", "request_as_json"]

_ASKS_FOR_LEAVE = "ApprovalRequired"
_NOT_OPEN = "The question is no longer open: it was answered, or it timed out"


class UnfitAnswerError(Exception):
    """The fields of an answer do not fit.

    Attributes:
        problems: The problems, each with ``loc`` and ``msg``.
    """

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        super().__init__(str(problems))
        self.problems = problems


async def open_requests(place: Place) -> list[InputRequest]:
    """Return the unanswered questions of a run, also while an answer is on its way.

    Raises:
        StoreError: The records no longer fit the workflow.
    """
    return [request for request, _ in await _unanswered(place)]


async def _unanswered(place: Place) -> list[tuple[InputRequest, str]]:
    """Return the questions with the keys of their answers, except questions with an answer in the inbox."""
    if place.is_over or place.served is None:
        return []
    # Read before the questions: an answer that is used in between has closed its question by then.
    items = (await place.store.unread({place.info.run_id: 0})).get(place.info.run_id, [])
    try:
        requests = await StoredRuns.open_inputs(place.served.workflow, place.info.run_id)
    except StoreError:
        if await place.store.info(place.info.run_id) is not None:
            raise
        return []  # it has just been deleted
    on_their_way = {item.key for item in items}
    found = [(request, request.answer_key) for request in requests]
    return [(request, key) for request, key in found if key not in on_their_way]


def request_as_json(request: InputRequest) -> dict[str, Any]:
    """Return a question in the form for readers."""
    return {
        "id": request.id,
        "event": envelope(request.event, path=request.path),
        "schema": request.schema,
        "response_type": request.response_type.__name__,
        "filled": to_jsonable_python(request.filled, inf_nan_mode="null", serialize_unknown=True),
        "path": request.path,
        "kind": "approval" if _asks_for_leave(request) else "input",
    }


def _asks_for_leave(request: InputRequest) -> bool:
    kind = type(request.event)
    return _ASKS_FOR_LEAVE in (kind.__name__, *(chain(kind) or ()))


async def answer(runs: Runs, place: Place, request_id: str, fields: dict[str, Any]) -> None:
    """Answer a question.

    Args:
        runs: The runs of the server.
        place: The run.
        request_id: The id of the question.
        fields: The fields of the answer.

    Raises:
        HTTPException: 404 for an unknown question, 409 for an answered one.
        UnfitAnswerError: The fields do not fit.
        StoreError: The store fails.
    """
    place.workflow()
    unanswered = await _unanswered(place)
    found = next(((one, key) for one, key in unanswered if request_id in _names_of(one)), None)
    if found is None:
        if await _was_asked(place, request_id):
            raise HTTPException(409, _NOT_OPEN)
        there = ", ".join(one.id for one, _ in unanswered)
        raise HTTPException(404, f"The run does not have this question; open: {there or 'no question'}")
    request, key = found
    try:
        event = request.answer(**fields)
    except InputResponseError as error:
        cause = error.__cause__
        problems: list[dict[str, Any]] = [{"loc": [], "msg": str(error)}]
        if isinstance(cause, ValidationError):
            problems = problems_of(cause)
        raise UnfitAnswerError(problems) from None
    if not await put(place, event, key=key):
        raise HTTPException(409, _NOT_OPEN)
    await runs.wake(place)


def _names_of(request: InputRequest) -> tuple[Any, ...]:
    """Return the ids of a question; an approval also has the id of its event."""
    return request.id, request.long_id, getattr(request.event, "id", None) if _asks_for_leave(request) else None


async def put(place: Place, event: Event, *, key: str | None = None, step: str | None = None) -> bool:
    """Put an event into the inbox of a run, and return True if it was not there before.

    Raises:
        HTTPException: 409 if the run is over.
        StoreError: The store fails.
        WorkflowRuntimeError: The step does not exist or does not accept the event.
    """
    run_id = place.info.run_id
    try:
        return await StoredRuns.send_to_run(place.workflow().workflow, run_id, event, key=key, step=step)
    except StoreError:
        now = await place.store.info(run_id)
        if now is None or now.is_over:
            ended = "was deleted" if now is None else f"is over ({now.status})"
            raise HTTPException(409, f"Run {run_id} {ended} and takes no more events") from None
        raise


async def _was_asked(place: Place, request_id: str) -> bool:
    if any(one.id == request_id for one in await StoredRuns.open_inputs(place.workflow().workflow, place.info.run_id)):
        return True  # its answer is on its way
    path, _, own = request_id.rpartition(":")
    async for commit in commits_of(place.store, place.info.run_id):
        for record in records_of([commit]):
            outcome = record.get("outcome", ("",))
            if outcome[0] == "waiting" and outcome[1].get("waiter_id") in (own, request_id):
                return True
            streamed = [entry[2] for entry in record.get("streamed", ())]
            streamed += [seq for seq, _ in record.get("published", ())]
            if record["path"] == path and any(own == f"question_{seq + 1}" for seq in streamed):
                return True
    return False

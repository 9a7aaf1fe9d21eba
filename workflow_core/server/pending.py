"""The open questions of a run, and their answers."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException

from batonflow.workflow_core.clock import current_source
from batonflow.workflow_core.errors import InputResponseError
from batonflow.workflow_core.inputs import InputRequest
from batonflow.workflow_core.replay import records_of
from batonflow.workflow_core.server.envelopes import chain, envelope
from batonflow.workflow_core.server.runs import Place, Runs
from batonflow.workflow_core.server.served import Served, problems_of

__all__ = ["UnfitAnswerError", "answer", "open_requests", "told"]

_ASKS_FOR_LEAVE = "ApprovalRequired"
PAGE = 500


class UnfitAnswerError(Exception):
    """The fields of an answer do not fit.

    Attributes:
        problems: What is wrong, each with ``loc`` and ``msg``.
    """

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        super().__init__(str(problems))
        self.problems = problems


async def open_requests(place: Place) -> list[InputRequest]:
    """The questions of a run that nobody has answered, also while an answer is on its way.

    Raises:
        StoreError: The records do not fit the workflow any more.
    """
    if place.is_over or place.served is None:
        return []
    requests = await place.served.workflow.open_inputs(place.info.run_id)
    if not requests:
        return []
    on_their_way = await _on_their_way(place)
    return [request for request in requests if request.id not in on_their_way]


async def _on_their_way(place: Place) -> set[str]:
    """The ids of requests whose answers are in the inbox."""
    items = (await place.store.unread({place.info.run_id: 0})).get(place.info.run_id, [])
    return {_request_of(item.key) for item in items if item.key.startswith(_KEY)}


_KEY = "answer "


def _request_of(key: str) -> str:
    return key[len(_KEY) :].rpartition(" ")[0]


def told(request: InputRequest) -> dict[str, Any]:
    """A question as readers get it."""
    kinds = (type(request.event).__name__, *(chain(type(request.event)) or ()))
    return {
        "id": request.id,
        "event": envelope(request.event, path=request.path),
        "schema": request.schema,
        "response_type": request.response_type.__name__,
        "filled": envelope_fields(request.filled),
        "path": request.path,
        "kind": "approval" if _ASKS_FOR_LEAVE in kinds else "input",
    }


def envelope_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Values as data of JSON."""
    return to_jsonable_python(values, inf_nan_mode="null", serialize_unknown=True)


async def answer(runs: Runs, place: Place, request_id: str, fields: dict[str, Any]) -> None:
    """Answer a question.

    Args:
        runs: The runs of the server.
        place: The run.
        request_id: Of the question.
        fields: Of the answer.

    Raises:
        HTTPException: 404 when there is no such question, 409 when it was answered before.
        UnfitAnswerError: The fields do not fit.
        StoreError: The store fails.
    """
    served: Served = place.workflow()
    requests = await open_requests(place)
    request = next((one for one in requests if one.id == request_id), None)
    if request is None:
        if await _was_asked(place, request_id):
            raise HTTPException(409, "This question is not open any more: it was answered, or its time was up")
        raise HTTPException(404, "The run has not asked this")
    try:
        event = request.answer(**fields)
    except InputResponseError as error:
        cause = error.__cause__
        problems: list[dict[str, Any]] = [{"loc": [], "msg": str(error)}]
        if isinstance(cause, ValidationError):
            problems = problems_of(cause)
        raise UnfitAnswerError(problems) from None
    key = f"{_KEY}{request_id} {current_source().token(16)}"
    await served.workflow.send_to_run(place.info.run_id, event, key=key)
    await runs.wake(place)


async def _was_asked(place: Place, request_id: str) -> bool:
    """Whether a question of this name was asked before."""
    if request_id in await _on_their_way(place):
        return True
    path, _, own = request_id.rpartition(":")
    commit = 0
    while commits := await place.store.read(place.info.run_id, commit, PAGE):
        commit = commits[-1].seq
        for record in records_of(commits):
            outcome = record.get("outcome", ("",))
            if outcome[0] == "waiting" and outcome[1].get("waiter_id") in (own, request_id):
                return True
            if (
                own.startswith("question_")
                and record["path"] == path
                and (record.get("streamed") or record.get("published"))
            ):
                return True
    return False

"""The conditions of a listing of runs, from the query of a request."""

import math

from starlette.exceptions import HTTPException
from starlette.requests import Request

from batonflow.durable.search import RunQuery
from batonflow.durable.store_protocol import RunStatus
from batonflow.durable.stores.bounds import check_query
from batonflow.server.bodies import moment, words
from batonflow.server.runs import IN_STORE
from batonflow.workflow_core.errors import StoreError

__all__ = ["run_query"]


def run_query(request: Request) -> RunQuery:
    """Return the conditions of a request.

    Raises:
        HTTPException: 400 if a parameter is malformed.
    """
    given = request.query_params
    query = RunQuery(
        text=given.get("text", ""),
        model=given.get("model", ""),
        error=given.get("error", ""),
        since=_time(request, "since"),
        until=_time(request, "until"),
        min_cost=_dollars(request, "min_cost"),
        max_cost=_dollars(request, "max_cost"),
        status=_statuses(request),
        metadata=_metadata(request),
    )
    try:
        return check_query(query, None, 1)
    except StoreError as error:
        raise HTTPException(400, str(error)) from None


def _time(request: Request, name: str) -> float | None:
    given = request.query_params.get(name)
    return moment(given, name) if given else None


def _dollars(request: Request, name: str) -> float | None:
    given = request.query_params.get(name)
    if not given:
        return None
    try:
        cost = float(given)
    except ValueError:
        cost = math.nan
    if not math.isfinite(cost):
        raise HTTPException(400, f"{name} must be a number of US dollars, for example {name}=0.5")
    return cost


def _metadata(request: Request) -> dict[str, str]:
    pairs = [word.partition("=") for word in words(request, "metadata")]
    if not all(sign for _, sign, _ in pairs):
        raise HTTPException(400, "metadata must be name=value, for example metadata=user=ann")
    return {name: value for name, _, value in pairs}


def _statuses(request: Request) -> list[RunStatus] | None:
    given = words(request, "status")
    for one in given:
        if one not in IN_STORE:
            raise HTTPException(400, f"status must be one of {', '.join(IN_STORE)}")
    return list({one for status in given for one in IN_STORE[status]}) or None

"""Validation of requests: bodies, queries and paths."""

import re
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from batonflow.durable.stores.bounds import check_run_id
from batonflow.server.limits import json_body
from batonflow.values.problems import in_words
from batonflow.workflow_core.errors import StoreError

__all__ = ["body_of", "choice", "flag", "moment", "number", "run_id_of", "seconds", "words"]

T = TypeVar("T", bound=BaseModel)

_LARGEST = 2**53
_AFTER_AN_ID = ("/cancel", "/fork", "/pending", "/state", "/trace")


async def body_of(request: Request, cls: type[T]) -> T:
    """Return the validated body of a request.

    Raises:
        HTTPException: 400 if it does not fit.
    """
    data = await json_body(request)
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise HTTPException(400, f"The body of the request does not fit: {in_words(error)}") from None


def run_id_of(given: str, field: str) -> str:
    """Return the id that a client chose for a new run.

    Args:
        given: The id.
        field: Its field in the body.

    Raises:
        HTTPException: 400 if the id is invalid or conflicts with another path of the server.
    """
    try:
        check_run_id(given)
    except StoreError as error:
        raise HTTPException(400, f"{field}: {error}") from None
    if "/pending/" in given or given.endswith(_AFTER_AN_ID):
        endings = ", ".join(_AFTER_AN_ID)
        raise HTTPException(400, f"{field}: an id must not contain /pending/ and must not end with {endings}")
    return given


def flag(request: Request, name: str, default: bool) -> bool:
    """Return a boolean parameter.

    Raises:
        HTTPException: 400 for another value.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if given.lower() in ("true", "1", "yes"):
        return True
    if given.lower() in ("false", "0", "no", ""):
        return False
    raise HTTPException(400, f"{name} must be true or false")


def number(request: Request, name: str, default: int, *, least: int = 0, most: int = _LARGEST) -> int:
    """Return an integer parameter.

    Raises:
        HTTPException: 400 if it is not a number or out of bounds.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.removeprefix("-").isdigit() or len(given) > 17:
        raise HTTPException(400, f"{name} must be a whole number")
    value = int(given)
    if not least <= value <= most:
        raise HTTPException(400, f"{name} must be a whole number from {least} to {most}")
    return value


def seconds(request: Request, name: str) -> float:
    """Return a parameter with a time, such as ``50ms``, in seconds; 0 without it.

    Raises:
        HTTPException: 400 if it is malformed.
    """
    given = request.query_params.get(name, "0ms")
    if not re.fullmatch(r"[0-9]{1,4}ms", given):
        raise HTTPException(400, f"{name} must be milliseconds from 0ms to 9999ms, for example {name}=50ms")
    return int(given.removesuffix("ms")) / 1000


def choice(request: Request, name: str, values: tuple[str, ...]) -> str:
    """Return a parameter with a choice of words; the first word is the default.

    Raises:
        HTTPException: 400 for another word.
    """
    given = request.query_params.get(name, values[0])
    if given not in values:
        raise HTTPException(400, f"{name} must be one of {', '.join(values)}")
    return given


def words(request: Request, name: str) -> list[str]:
    """Return the values of a repeated parameter; clients send an empty one for no value."""
    return [word for word in request.query_params.getlist(name) if word]


def moment(given: str, name: str) -> float:
    """Return a time in ISO 8601 in wall-clock seconds; without a time zone it is UTC.

    Args:
        given: The text.
        name: The name of its field or parameter.

    Raises:
        HTTPException: 400 for another text.
    """
    try:
        time = datetime.fromisoformat(given)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise HTTPException(
            400, f"{name} must be a time in ISO 8601, for example 2026-05-01 or 2026-05-01T18:30:00Z"
        ) from None

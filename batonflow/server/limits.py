"""Limits of requests: size, depth and time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batonflow.server.responses import refusal

__all__ = ["DEPTH", "BodyLimit", "ReaderLimit", "inside", "is_deeper", "json_body"]

DEPTH = 64
"""Largest depth of nested lists and objects in a request."""

READ_AT_MOST = 16
"""Factor of the largest body up to which bodies are read and dropped. Some clients read the answer afterwards."""


class BodyLimit:
    """Middleware that reads bodies first, within limits of size and time.

    Args:
        app: Receives requests with a complete body.
        largest: Largest body in bytes.
        seconds: Seconds for the body.
    """

    def __init__(self, app: ASGIApp, largest: int, seconds: float) -> None:
        self._app = app
        self._largest = largest
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        names = {name for name, _ in scope.get("headers", ())}
        if scope["type"] != "http" or not names & {b"content-length", b"transfer-encoding"}:
            await self._app(scope, receive, send)
            return
        body: bytes | None = b""
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._body(receive)
        except TimeoutError:
            text = f"The body of the request did not arrive within {self._seconds:g} seconds"
            await refusal(408, text, close=True)(scope, receive, send)
            return
        except ConnectionError:
            return
        if body is None:
            text = f"The body of a request must have at most {self._largest} bytes"
            await refusal(413, text, close=True)(scope, receive, send)
            return
        given = False

        async def replayed() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replayed, send)

    async def _body(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= READ_AT_MOST * self._largest:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            part = message.get("body", b"")
            size += len(part)
            if size <= self._largest:
                parts.append(part)
            else:
                parts.clear()
            more = message.get("more_body", False)
        return b"".join(parts) if size <= self._largest else None


class ReaderLimit:
    """Middleware that disconnects clients that do not read their answers.

    Args:
        app: Answers the requests.
        seconds: Seconds that an answer may stay unread.
        drop: Closes the connection of a request at once, if possible.
    """

    def __init__(self, app: ASGIApp, seconds: float, drop: Callable[[Scope], None]) -> None:
        self._app = app
        self._seconds = seconds
        self._drop = drop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def patient_send(message: Message) -> None:
            sending = asyncio.timeout(self._seconds)
            try:
                async with sending:
                    await send(message)
            except TimeoutError:
                raise ReaderGoneError from None

        try:
            await self._app(scope, receive, patient_send)
        except ReaderGoneError:
            self._drop(scope)


class ReaderGoneError(Exception):
    """A client did not read its answer."""


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    Raises:
        HTTPException: 400 if the body is not an object, or too deep.
    """
    try:
        value = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"The body of the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The body of the request must be a JSON object")
    if is_deeper(value, DEPTH):
        raise HTTPException(400, f"The body of the request is nested deeper than {DEPTH} levels")
    return cast("dict[str, Any]", value)


def is_deeper(value: Any, depth: int = DEPTH) -> bool:
    """Return True if lists and objects are nested deeper than the limit."""
    level: list[Any] = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in inside(outer)]
        if not level:
            return False
    return True


def inside(value: Any) -> list[Any]:
    """Return the lists and objects directly inside a value."""
    if isinstance(value, dict):
        return [one for one in cast("dict[str, Any]", value).values() if isinstance(one, dict | list)]
    return [one for one in cast("list[Any]", value) if isinstance(one, dict | list)]

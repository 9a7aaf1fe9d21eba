"""Answers: JSON, refusals, and the headers that every answer has."""

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batonflow.values.serializers import as_json

__all__ = ["JSON", "SafeHeaders", "refusal", "refuse_websocket"]

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'"


class JSON(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of a value; what JSON has no name for is null."""
        return as_json(content, inf_nan_mode="null")


def refusal(status: int, detail: Any, *, close: bool = False) -> JSON:
    """An answer that says what is wrong.

    Args:
        status: Of HTTP.
        detail: What is wrong and what to do, as text or as a list of problems.
        close: Whether the connection ends with it.
    """
    headers = dict(_ALWAYS)
    if close:
        headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSON({"detail": detail}, status, headers)


async def refuse_websocket(receive: Receive, send: Send) -> None:
    """Turn a WebSocket away before it is one."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


class SafeHeaders:
    """Adds the headers that keep browsers from doing more with an answer than showing it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add to what is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", _NOTHING_ALLOWED)
            await send(message)

        await self._app(scope, receive, send_with_headers)

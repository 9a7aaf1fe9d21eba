"""Responses: JSON, errors, and common headers."""

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
        """Return the bytes of a value; values without a JSON form become null."""
        return as_json(content, inf_nan_mode="null")


def refusal(status: int, detail: Any, *, close: bool = False) -> JSON:
    """Return an error response.

    Args:
        status: The HTTP status.
        detail: The problem and a remedy, as text or as a list of problems.
        close: Close the connection afterwards.
    """
    headers = dict(_ALWAYS)
    if close:
        headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSON({"detail": detail}, status, headers)


async def refuse_websocket(receive: Receive, send: Send) -> None:
    """Reject a WebSocket before its handshake."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


class SafeHeaders:
    """Middleware that adds security headers for browsers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
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

"""Checks of clients: a local address or the token, an allowed name, and the same origin."""

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from batonflow.server.mounts import own_path
from batonflow.server.responses import refusal, refuse_websocket
from batonflow.workflow_core.errors import ServerConfigurationError

__all__ = ["Guard", "check_bind", "is_loopback"]

OPEN_TO_ALL = frozenset({"/", "/health"})
"""Paths without a token: the health check and the page. The page has no data and asks for the token itself."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_PORTS = {"http": 80, "https": 443}
_LOCAL_NAMES = frozenset({"localhost"})


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine can reach."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host in _LOCAL_NAMES
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_bind(host: str, token: str | None) -> None:
    """Refuse to listen on addresses that other machines can reach, unless a token is set.

    Raises:
        ServerConfigurationError: Other machines can reach the host, and the server has no token.
    """
    if token is None and not is_loopback(host):
        raise ServerConfigurationError(
            f"host={host!r} can be reached from other machines, which could run its workflows: "
            "set a token with WorkflowServer(token=...) or BATONFLOW_TOKEN, or listen on 127.0.0.1"
        )


class Guard:
    """Middleware that passes requests on or refuses them.

    Args:
        app: The application behind.
        token: The required bearer token; None allows all clients on this machine, and no others.
        allowed_hosts: Host names besides the names of this machine; ``"*"`` for any name.
    """

    def __init__(self, app: ASGIApp, token: str | None, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = _LOCAL_NAMES | {host.lower().rstrip(".") for host in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if _has_two_lengths(scope):
            # A proxy that uses the other header would forward a part of this body as another request.
            text = "Content-Length and Transfer-Encoding are both given: send one of them"
            await refusal(400, text, close=True)(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await refuse_websocket(receive, send)
        else:
            await refusal(*problem)(scope, receive, send)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if self._token is None and not self._is_local(scope):
            return 403, "Only clients on this machine are allowed: a server for other machines needs a token"
        host = headers.get("host", "")
        if not self._knows(host):
            return 421, "The name in the Host header is not allowed: add it to allowed_hosts"
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if changes and _is_cross_origin(headers, host, _own_scheme(scope, headers, host)):
            return 403, "The request comes from a page of another site"
        if self._token is not None and own_path(scope) not in OPEN_TO_ALL and not self._has_token(headers):
            return 401, "The header Authorization: Bearer with the server's token is missing or wrong"
        return None

    def _is_local(self, scope: Scope) -> bool:
        client = scope.get("client")
        return client is not None and is_loopback(client[0])

    def _knows(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        if name in self._hosts or "*" in self._hosts:
            return True
        try:
            # A page whose own name resolves to this address would send that name, never a number.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _has_token(self, headers: Headers) -> bool:
        given = headers.getlist("authorization")
        if len(given) != 1 or self._token is None:
            return False
        scheme, _, token = given[0].partition(" ")
        # The token is compared first, so that the time does not depend on the scheme.
        same = hmac.compare_digest(token.strip().encode(), self._token)
        return same and scheme.lower() == "bearer"


def _has_two_lengths(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


def _host_name(host: str) -> str | None:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return None if not name or "@" in host or "/" in host else name.rstrip(".")


def _own_scheme(scope: Scope, headers: Headers, host: str) -> str | None:
    """Return the client's path prefix before the server's name, or None if a proxy may hide it."""
    told = headers.get("x-forwarded-proto")
    if told is not None:
        return told.rpartition(",")[2].strip().lower()
    scheme = scope.get("scheme", "http").replace("ws", "http", 1)
    server = scope.get("server")
    try:
        port = urlsplit(f"//{host}").port or _PORTS.get(scheme)
    except ValueError:
        return None
    return scheme if server is not None and server[1] == port else None


def _is_cross_origin(headers: Headers, host: str, own_scheme: str | None) -> bool:
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        return True
    origins = headers.getlist("origin")
    for origin in origins:
        scheme, _, name = origin.lower().partition("://")
        if name != host.lower() or own_scheme not in (None, scheme):
            return True
    return False

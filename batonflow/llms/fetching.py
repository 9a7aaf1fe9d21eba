"""Downloads of URLs that messages or models name.

An attacker may choose such a URL. It is therefore fetched over http and https only, never from a private, loopback or
link-local network, including after DNS resolution and redirects, and with limits of size and time. The connection
goes to the IP address that was checked.
"""

import io
import ipaddress
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms import _vendor
from batonflow.llms.errors import LLMRequestError
from batonflow.new_runs import input_is_served
from batonflow.threads import in_thread, start_in_thread

__all__ = ["FetchError", "FetchPolicy", "Fetched", "afetch", "fetch", "fetching"]

_REDIRECTS = (301, 302, 303, 307, 308)
_PIECE = 64 * 1024
# These characters stay unchanged in a path and a query; all others are percent-encoded.
_STAYS = "!$%&'()*+,/:;=?@[]~"
_PORTS = {"http": 80, "https": 443}
# Addresses that look public but are metadata services of cloud machines.
_INTERNAL = frozenset({ipaddress.ip_address("168.63.129.16")})
# IPv6 networks that embed IPv4 addresses, which have to be public too.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"),)
# Networks that lead to IPv4 addresses by local rules, and retired relays.
_LOCAL = (ipaddress.ip_network("64:ff9b:1::/48"), ipaddress.ip_network("192.88.99.0/24"))

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class FetchError(LLMRequestError):
    """A URL was not fetched; the message has the reason and the remedy."""


class FetchPolicy(BaseModel):
    """The rules for fetching URLs.

    Args:
        served: Whether to fetch URLs in messages that came over a server.
        private_addresses: Whether to fetch private, loopback and link-local addresses: for tests, and for networks that
            every author of messages may read.
        max_bytes: The maximum size of a body.
        seconds: The time limit of a fetch, redirects included.
        max_redirects: The maximum number of redirects.

    Example:
        >>> llm = OpenAI("gpt-5.6", fetch_urls=FetchPolicy(max_bytes=5_000_000, seconds=10))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    served: bool = False
    private_addresses: bool = False
    max_bytes: int = Field(default=32 * 1024 * 1024, gt=0)
    seconds: float = Field(default=30.0, gt=0)
    max_redirects: int = Field(default=5, ge=0)


_DEFAULT = FetchPolicy()
_policy: ContextVar[FetchPolicy | None] = ContextVar("batonflow_fetching", default=_DEFAULT)


@contextmanager
def fetching(policy: FetchPolicy | bool | None) -> Generator[None]:
    """Apply a policy to the fetches inside the block.

    Args:
        policy: The policy. True also fetches for messages that came over a server, False fetches nothing, and None
            keeps the policy around the block.

    Example:
        >>> with fetching(FetchPolicy(served=True, max_bytes=1_000_000)):
        ...     data = block.resolve_document().read()
    """
    if policy is None:
        yield
        return
    chosen = FetchPolicy(served=True) if policy is True else None if policy is False else policy
    token = _policy.set(chosen)
    try:
        yield
    finally:
        _policy.reset(token)


class Fetched(NamedTuple):
    """A downloaded body, its media type (empty when the server does not send it), and the last URL."""

    data: bytes
    content_type: str
    url: str


def fetch(url: str, policy: FetchPolicy | None = None) -> Fetched:
    """Fetch a URL that is not trusted.

    Proxies of the environment are not used, because they would resolve the host themselves.

    Args:
        url: An http or https URL.
        policy: The rules; by default the policy of :func:`fetching` around the call.

    Raises:
        FetchError: The URL may not be fetched, or fetching failed.

    Example:
        >>> page = fetch("https://example.org/tides.csv")
        >>> print(page.content_type, len(page.data))
    """
    chosen = policy or _policy.get()
    shown_url = _safe(url)
    if chosen is None:
        raise FetchError(f"{shown_url} was not fetched: fetching is off; give the data themselves")
    if input_is_served() and not chosen.served:
        raise FetchError(
            f"{shown_url} was not fetched: in a run that a server started, a client may have chosen the URL; give the "
            "data themselves, or allow it with fetch_urls=True on the model"
        )
    return _Fetch(chosen).follow(url)


async def afetch(url: str, policy: FetchPolicy | None = None) -> Fetched:
    """Fetch a URL as :func:`fetch` does, without blocking the event loop."""
    return await in_thread(fetch, url, policy)


def _safe(url: str) -> str:
    """Return a URL without user, password and query, which may contain secrets."""
    head = url.partition("?")[0].partition("#")[0]
    scheme, found, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{found}{host.rpartition('@')[2]}{slash}{path}"


class _Fetch:
    """A fetch with its redirects."""

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        self._deadline = time.monotonic() + policy.seconds
        self._http = _vendor.load("http.client")

    def follow(self, url: str) -> Fetched:
        for _ in range(self._policy.max_redirects + 1):
            try:
                found = self._asked(url)
            except TimeoutError:
                raise FetchError(f"cannot fetch {_safe(url)}: it took more than {self._policy.seconds:g} s") from None
            except (OSError, ValueError, self._http.HTTPException) as err:
                # The URL itself is left out, because it may contain secrets.
                raise FetchError(f"cannot fetch {_safe(url)}: {err or type(err).__name__}") from None
            if isinstance(found, Fetched):
                return found
            url = urljoin(url, found)
        raise FetchError(f"cannot fetch {_safe(url)}: more than {self._policy.max_redirects} redirects")

    def _asked(self, url: str) -> Fetched | str:
        """Return the body of a URL, or the URL that it redirects to."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise FetchError(f"cannot fetch {_safe(url)}: only http and https addresses with a host are fetched")
        name = _in_ascii(parts.hostname)
        sock = self._connected(parts, name)
        with sock:
            port = f":{parts.port}" if parts.port is not None else ""
            host = f"[{name}]" if ":" in name else name
            connection = self._http.HTTPConnection(name)
            connection.sock = _InTime(sock, self._left)
            path = quote(parts._replace(scheme="", netloc="", fragment="").geturl(), _STAYS) or "/"
            headers = {"Host": host + port, "Accept-Encoding": "identity", "Accept": "*/*", "Connection": "close"}
            connection.request("GET", path, headers={**headers, "User-Agent": "batonflow"})
            response = connection.getresponse()
            if response.status in _REDIRECTS and response.headers.get("location"):
                return _in_utf_8(response.headers["location"])
            if response.status != 200:
                raise FetchError(f"cannot fetch {_safe(url)}: HTTP status {response.status}; give the data themselves")
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            return Fetched(self._body(response, url), kind, url)

    def _body(self, response: Any, url: str) -> bytes:
        limit = self._policy.max_bytes
        too_long = FetchError(f"cannot fetch {_safe(url)}: it has more than {limit:,} bytes")
        if response.length is not None and response.length > limit:
            raise too_long
        data = io.BytesIO()
        while piece := response.read1(_PIECE):
            data.write(piece)
            if data.tell() > limit:
                raise too_long
        if response.length:
            raise FetchError(
                f"cannot fetch {_safe(url)}: the answer ended {response.length:,} bytes too early; try again"
            )
        return data.getvalue()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _connected(self, parts: SplitResult, name: str) -> Any:
        """Return a connection to a checked IP address of the host."""
        family, kind, protocol, _, place = self._checked(parts, name)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(self._left())
            sock.connect(place)
            if parts.scheme == "https":
                context = _vendor.load("ssl").create_default_context()
                sock.settimeout(self._left())
                return context.wrap_socket(sock, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        return sock

    def _checked(self, parts: SplitResult, name: str) -> list[Any]:
        """Resolve the host; every address of its name has to be public."""
        port = parts.port if parts.port is not None else _PORTS[parts.scheme]
        # In a thread, because a DNS lookup may take long.
        looking = start_in_thread(partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM))
        found = looking.result(self._left())
        for *_, place in found:
            if not self._policy.private_addresses and not _is_public(str(place[0])):
                said = place[0] if place[0] == name else f"{name} is {place[0]}, which"
                url = _safe(parts.geturl())
                raise FetchError(f"{url} was not fetched: {said} is not a public address; give the data themselves")
        return found


def _in_ascii(host: str) -> str:
    """Return the name of a host in the form of name servers.

    Raises:
        ValueError: It is not a valid host name.
    """
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"its host {host!r} is not a name ({error})") from None


def _in_utf_8(header: str) -> str:
    """Return the text of a header, which is decoded as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _is_public(written: str) -> bool:
    """Return whether an address is public, including an address embedded in it."""
    address: _Address = ipaddress.ip_address(written.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return _is_public(str(inner))
        if address.is_site_local:
            return False
    is_local = any(address in network for network in _LOCAL if network.version == address.version)
    return address.is_global and not (address.is_multicast or is_local or address in _INTERNAL)


def _inner(address: ipaddress.IPv6Address) -> _Address | None:
    """Return the IPv4 address embedded in an IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED) or int(address) < 1 << 32:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


class _InTime:
    """A connected socket for ``http.client`` with the remaining time as the timeout of each operation."""

    def __init__(self, sock: Any, left: Any) -> None:
        self._sock = sock
        self._left = left

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - always "rb"
        return io.BufferedReader(_Reading(self._sock, self._left))

    def close(self) -> None:
        """Do nothing, as the caller closes the socket."""


class _Reading(io.RawIOBase):
    def __init__(self, sock: Any, left: Any) -> None:
        super().__init__()
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._left())
        return self._sock.recv_into(buffer)

"""The one way in which this process reads an address that a message or a model names.

Such an address may be chosen by an attacker. It is therefore read over http and https only, never from a private,
loopback or link-local network, whatever its name resolves to and wherever it redirects, and within bounds of size and
time. The connection goes to the very address that was checked.
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
from batonflow.threads import in_thread, start_in_thread
from batonflow.workflow_core.served_input import input_is_served

__all__ = ["FetchError", "FetchPolicy", "Fetched", "afetch", "fetch", "fetching"]

_REDIRECTS = (301, 302, 303, 307, 308)
_PIECE = 64 * 1024
# Stays in a path and a query as it is; all else is written in percent signs.
_STAYS = "!$%&'()*+,/:;=?@[]~"
_PORTS = {"http": 80, "https": 443}
# Addresses that look public and are services of a cloud's own machines.
_INTERNAL = frozenset({ipaddress.ip_address("168.63.129.16")})
# Networks of IPv6 that stand for addresses of IPv4, which then have to be public themselves.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"),)
# Networks that lead to addresses of IPv4 by rules of a network's own, and retired relays.
_LOCAL = (ipaddress.ip_network("64:ff9b:1::/48"), ipaddress.ip_network("192.88.99.0/24"))

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class FetchError(LLMRequestError):
    """An address was not fetched; the message says why and what to do."""


class FetchPolicy(BaseModel):
    """What may be fetched.

    Args:
        served: Whether addresses in messages that came over a server are fetched too.
        private_addresses: Whether private, loopback and link-local addresses are fetched: for tests, and for networks
            that whoever writes the messages may read.
        max_bytes: Bytes that a body may have.
        seconds: Seconds that a fetch may take in all, redirects included.
        max_redirects: Redirects that are followed.

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
    """Let a policy hold for what is fetched inside the block.

    Args:
        policy: The policy; True fetches for messages that came over a server too, False fetches nothing, and None
            leaves the policy around the block.

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
    """What an address gave: the body, its media type (empty when the server does not say), the last address."""

    data: bytes
    content_type: str
    url: str


def fetch(url: str, policy: FetchPolicy | None = None) -> Fetched:
    """Read an address that is not to be trusted.

    Proxies of the environment are not used, as they would connect to an address of their own choice.

    Args:
        url: The address, of http or https.
        policy: What may be fetched; that of :func:`fetching` around the call when left out.

    Raises:
        FetchError: It may not be fetched, or it gives nothing.

    Example:
        >>> page = fetch("https://example.org/tides.csv")
        >>> print(page.content_type, len(page.data))
    """
    chosen = policy or _policy.get()
    shown = _shown(url)
    if chosen is None:
        raise FetchError(f"{shown} was not fetched: fetching is off; give the data themselves")
    if input_is_served() and not chosen.served:
        raise FetchError(
            f"{shown} was not fetched: in runs that a server begins, a client may have chosen the address; give the "
            "data themselves, or allow it with fetch_urls=True on the model"
        )
    return _Fetch(chosen).follow(url)


async def afetch(url: str, policy: FetchPolicy | None = None) -> Fetched:
    """The same as :func:`fetch` without stopping the event loop."""
    return await in_thread(fetch, url, policy)


def _shown(url: str) -> str:
    """An address without what may open a door: user, password, and what stands behind the question mark."""
    head = url.partition("?")[0].partition("#")[0]
    scheme, found, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{found}{host.rpartition('@')[2]}{slash}{path}"


class _Fetch:
    """One fetch with its redirects."""

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        self._deadline = time.monotonic() + policy.seconds
        self._http = _vendor.load("http.client")

    def follow(self, url: str) -> Fetched:
        for _ in range(self._policy.max_redirects + 1):
            try:
                found = self._asked(url)
            except TimeoutError:
                raise FetchError(f"cannot fetch {_shown(url)}: it took more than {self._policy.seconds:g} s") from None
            except (OSError, ValueError, self._http.HTTPException) as err:
                # Not the words of an address: they may hold what opens a door.
                raise FetchError(f"cannot fetch {_shown(url)}: {err or type(err).__name__}") from None
            if isinstance(found, Fetched):
                return found
            url = urljoin(url, found)
        raise FetchError(f"cannot fetch {_shown(url)}: more than {self._policy.max_redirects} redirects")

    def _asked(self, url: str) -> Fetched | str:
        """The body behind an address, or the address that it redirects to."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise FetchError(f"cannot fetch {_shown(url)}: only http and https addresses with a host are fetched")
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
                raise FetchError(f"cannot fetch {_shown(url)}: HTTP status {response.status}; give the data themselves")
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            return Fetched(self._body(response, url), kind, url)

    def _body(self, response: Any, url: str) -> bytes:
        limit = self._policy.max_bytes
        too_long = FetchError(f"cannot fetch {_shown(url)}: it has more than {limit:,} bytes")
        if response.length is not None and response.length > limit:
            raise too_long
        data = io.BytesIO()
        while piece := response.read1(_PIECE):
            data.write(piece)
            if data.tell() > limit:
                raise too_long
        if response.length:
            raise FetchError(
                f"cannot fetch {_shown(url)}: the answer ended {response.length:,} bytes too early; try again"
            )
        return data.getvalue()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _connected(self, parts: SplitResult, name: str) -> Any:
        """A connection to the host, at an address of it that was checked."""
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
        """Where the host is. Every address that its name stands for has to be public."""
        port = parts.port if parts.port is not None else _PORTS[parts.scheme]
        # In a thread, as the system looks names up for as long as it likes.
        looking = start_in_thread(partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM))
        found = looking.result(self._left())
        for *_, place in found:
            if not self._policy.private_addresses and not _is_public(str(place[0])):
                said = place[0] if place[0] == name else f"{name} is {place[0]}, which"
                shown = _shown(parts.geturl())
                raise FetchError(f"{shown} was not fetched: {said} is not a public address; give the data themselves")
        return found


def _in_ascii(host: str) -> str:
    """The name of a host as name servers know it.

    Raises:
        ValueError: It cannot be the name of a host.
    """
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"its host {host!r} is not a name ({error})") from None


def _in_utf_8(header: str) -> str:
    """The text of a header, which is read as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _is_public(written: str) -> bool:
    """Tell whether an address lies in the public internet, also one that stands for another address."""
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
    """The IPv4 address that an IPv6 address stands for."""
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
    """A connected socket as ``http.client`` uses one, each of whose reads and writes has the time that is left."""

    def __init__(self, sock: Any, left: Any) -> None:
        self._sock = sock
        self._left = left

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - always "rb"
        return io.BufferedReader(_Reading(self._sock, self._left))

    def close(self) -> None:
        """The caller closes the socket."""


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

"""Connections of slow clients, which do not finish a request or do not read an answer."""

import asyncio
import socket
from typing import Any, ClassVar

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connections"]


class Connections:
    """The open connections of ``WorkflowServer.serve``.

    Args:
        header_timeout: Seconds for the head of a request.
        answer_timeout: Seconds in which a client must read more of an answer.
    """

    def __init__(self, header_timeout: float, answer_timeout: float) -> None:
        self.header_timeout = header_timeout
        self.answer_timeout = answer_timeout
        self.open: dict[Any, asyncio.Transport] = {}

    def open_clients(self) -> list[Any]:
        """Return the addresses of connected clients."""
        return list(self.open)

    def drop(self, scope: Scope) -> None:
        """Close the connection of a request at once, including unread data."""
        client = scope.get("client")
        transport = None if client is None else self.open.get(tuple(client))
        if transport is not None:
            transport.abort()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class for uvicorn that maintains this object."""
        return type("Protocol", (_Protocol,), {"book": self})


class _Protocol(H11Protocol):
    """HTTP/1.1 with timeouts."""

    book: ClassVar[Connections]  # uvicorn has connections of its own
    _asking: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.book.open[self.client] = transport
        _send_at_once(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.book.open.pop(self.client, None)
        self._has_asked()
        self._has_taken()

    # --- requests -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.scope and not self.cycle.response_complete:
            self._has_asked()  # the body has its own timeout, and so have pauses between requests
        elif self._asking is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._asking = self.loop.call_later(self.book.header_timeout, self.transport.abort)

    def _has_asked(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    # --- answers ------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_until_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._has_taken()

    def _wait_until_taken(self) -> None:
        untaken = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(self.book.answer_timeout, self._look, untaken)

    def _look(self, untaken: int) -> None:
        if self.transport.get_write_buffer_size() < untaken:
            self._wait_until_taken()  # slow, but the client reads
        else:
            self.transport.abort()

    def _has_taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


def _send_at_once(transport: asyncio.Transport) -> None:
    """Send small pieces without delay; asyncio sets this only for some kinds of sockets."""
    taken: socket.socket | None = transport.get_extra_info("socket")
    if taken is not None and taken.family in (socket.AF_INET, socket.AF_INET6):
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

"""Connections of clients that are too slow: those that never finish a request, and those that take no answer."""

import asyncio
import socket
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connections"]


class Connections:
    """The open connections of a server that ``WorkflowServer.serve`` runs.

    Args:
        header_timeout: Seconds in which a connection has to bring the head of a request.
    """

    def __init__(self, header_timeout: float) -> None:
        self._header_timeout = header_timeout
        self._open: dict[Any, asyncio.Transport] = {}

    def open_clients(self) -> list[Any]:
        """The addresses of those who are connected."""
        return list(self._open)

    def drop(self, scope: Scope) -> None:
        """Close the connection of a request at once, whatever it has not taken."""
        client = scope.get("client")
        transport = None if client is None else self._open.get(tuple(client))
        if transport is not None:
            transport.abort()

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol for uvicorn that keeps this up to date."""
        connections = self

        class Protocol(H11Protocol):
            _patience: asyncio.TimerHandle | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                connections._open[self.client] = transport
                _send_at_once(transport)
                self._begin_to_wait()

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                if self.scope and not self.cycle.response_complete:
                    self._is_asked()  # the body has a time of its own, and so have pauses between requests
                elif self._patience is None:
                    self._begin_to_wait()

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connections._open.pop(self.client, None)
                self._is_asked()

            def _begin_to_wait(self) -> None:
                self._patience = self.loop.call_later(connections._header_timeout, self._give_up)

            def _is_asked(self) -> None:
                if self._patience is not None:
                    self._patience.cancel()
                    self._patience = None

            def _give_up(self) -> None:
                self.transport.abort()

        return Protocol


def _send_at_once(transport: asyncio.Transport) -> None:
    """Let small pieces go without waiting for larger ones; asyncio does so only for some ways of making a socket."""
    taken: socket.socket | None = transport.get_extra_info("socket")
    if taken is not None and taken.family in (socket.AF_INET, socket.AF_INET6):
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

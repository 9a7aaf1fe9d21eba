"""Connections of clients that are too slow: those that never finish a request, and those that take no answer."""

import asyncio
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
                self._patience = self.loop.call_later(connections._header_timeout, self._give_up)

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                if self._patience is not None and self.scope:
                    self._patience.cancel()  # the body has a time of its own, and pauses between requests too
                    self._patience = None

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connections._open.pop(self.client, None)
                if self._patience is not None:
                    self._patience.cancel()
                    self._patience = None

            def _give_up(self) -> None:
                self.transport.abort()

        return Protocol

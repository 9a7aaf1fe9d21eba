"""The response that streams the events of a run: server-sent events, or one line of JSON per event."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from batonflow.server.deltas import Deltas, Told, put_together
from batonflow.server.streaming import EventForReader
from batonflow.values.serializers import as_json

__all__ = ["EventStream", "disconnected"]

AT_ONCE = 32 * 1024
"""The size in bytes at which encoded events are sent, even if their group has more."""


class EventStream(Response):
    """A response that sends events as they arrive.

    Args:
        batches: Groups of events; an empty group sends a heartbeat.
        sse: Send server-sent events; otherwise send lines of JSON.
        names: Include the qualified names of the event classes.
        deltas: Send only the new text of each piece of an answer; see ``Deltas``.
        pieces: With ``deltas``, the seconds in which pieces of an answer are joined; 0 sends each piece by itself.
        idles: Returns the reason for a pause, or an empty string. Heartbeats contain the reason as a comment.
    """

    def __init__(
        self,
        batches: AsyncGenerator[list[EventForReader]],
        *,
        sse: bool,
        names: bool,
        deltas: bool = False,
        pieces: float = 0.0,
        idles: Callable[[], str] = str,
    ) -> None:
        super().__init__(media_type="text/event-stream" if sse else "application/x-ndjson")
        self._batches = batches
        self._sse = sse
        self._names = names
        self._deltas = deltas
        self._pieces = pieces
        self._idles = idles
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["method"] == "HEAD":
            await self._batches.aclose()
            await self._begin(send)
            await self._end(send)
            return
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _send(self, send: Send) -> None:
        groups: AsyncGenerator[Iterable[Told]] = self._groups()
        if self._deltas:
            lean = self._lean_groups(Deltas())
            groups = put_together(lean, self._pieces) if self._pieces else lean
        async with aclosing(groups):
            await self._begin(send)
            async for batch in groups:
                # Let other tasks run, and notice a disconnect. This comes before a batch and not after it, so that
                # nothing delays the end of the response after the last batch.
                await asyncio.sleep(0)
                for body in self._bodies(batch):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        await self._end(send)

    async def _groups(self) -> AsyncGenerator[Iterable[Told]]:
        """Yield the groups in the form for readers; each event is converted only when it is sent."""
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                yield ((one.seq, one.envelope()) for one in batch)

    async def _lean_groups(self, deltas: Deltas) -> AsyncGenerator[list[Told]]:
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                yield [(one.seq, deltas.lean(one.envelope())) for one in batch]

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _end(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _bodies(self, group: Iterable[Told]) -> Iterator[bytes]:
        parts: list[bytes] = []
        size, is_pause = 0, True
        for seq, event in group:
            is_pause = False
            part = self._encoded(seq, event)
            parts.append(part)
            size += len(part)
            if size >= AT_ONCE:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)
        elif is_pause and self._sse:
            yield b": %b\n\n" % (" ".join(self._idles().split()) or "heartbeat").encode(errors="replace")

    def _encoded(self, seq: int, event: dict[str, Any]) -> bytes:
        if not self._names and "qualified_name" in event:
            event["qualified_name"] = None
        if not self._sse:
            event.setdefault("seq", seq)
        try:
            text = as_json(event, inf_nan_mode="null")
        except PydanticSerializationError as error:
            # One bad event must not end the stream, and the reader must see that it cannot be read.
            text = to_json({**event, "value": {"$unreadable": str(error)}}, inf_nan_mode="null")
        return b"id: %d\ndata: %b\n\n" % (seq, text) if self._sse else text + b"\n"


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass

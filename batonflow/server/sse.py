"""The response of a run's stream: server-sent events, or a line of JSON for each event."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from batonflow.server.streaming import EventForReader
from batonflow.values.serializers import as_json

__all__ = ["EventStream", "disconnected"]

AT_ONCE = 32 * 1024


class EventStream(Response):
    """Response that sends events as they arrive.

    Args:
        batches: The events; an empty group for a heartbeat.
        sse: Server-sent events; else lines of JSON.
        names: Include the qualified names of classes.
        idles: The reason for a pause, if known. Heartbeats contain it as a comment.
    """

    def __init__(
        self, batches: AsyncGenerator[list[EventForReader]], *, sse: bool, names: bool, idles: Callable[[], str] = str
    ) -> None:
        super().__init__(media_type="text/event-stream" if sse else "application/x-ndjson")
        self._batches = batches
        self._sse = sse
        self._names = names
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
        async with aclosing(self._batches) as batches:
            await self._begin(send)
            async for batch in batches:
                # Other readers get a turn, and a disconnect is noticed. This happens before a batch and not after
                # it, because the last one and the end of the answer must be sent at once.
                await asyncio.sleep(0)
                for body in self._bodies(batch):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        await self._end(send)

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _end(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _bodies(self, batch: list[EventForReader]) -> Iterator[bytes]:
        parts: list[bytes] = []
        size = 0
        for told in batch:
            part = self._encoded(told)
            parts.append(part)
            size += len(part)
            if size >= AT_ONCE:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)
        elif not batch and self._sse:
            yield b": %b\n\n" % (" ".join(self._idles().split()) or "heartbeat").encode(errors="replace")

    def _encoded(self, told: EventForReader) -> bytes:
        data = told.envelope()
        if not self._names:
            data["qualified_name"] = None
        try:
            text = as_json(data, inf_nan_mode="null")
        except PydanticSerializationError as error:
            # The other events must get through, and the reader must learn of this one.
            text = to_json({**data, "value": {"$unreadable": str(error)}}, inf_nan_mode="null")
        return b"id: %d\ndata: %b\n\n" % (told.seq, text) if self._sse else text + b"\n"


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass

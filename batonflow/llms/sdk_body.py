"""The body of a vendor's response as it arrives: limits, timeouts, marks that SDKs ignore, and split characters."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from batonflow.llms.blocks import ThinkingBlock, has_halves, sendable
from batonflow.llms.errors import InvalidResponseError, LLMTimeoutError
from batonflow.llms.stream import BlockDone, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta

__all__ = ["AnswerBody", "Chunks", "ErrorEvent", "Opened", "Silence", "SurrogateJoiner", "iterate_events"]

_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_ERROR_EVENT = re.compile(rb"[\r\n]event: ?error *[\r\n]")
_ERROR_LINES = (b"event: error", b"event:error")
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_ERROR = 64 * 1024
_MARK_LENGTH = 16
_LINE_ENDS = (b"\n", b"\r")


class ErrorEvent(Exception):
    """An ``event: error`` in a stream; ``data`` is its JSON value, or text."""

    def __init__(self, data: Any) -> None:
        super().__init__(str(data))
        self.data = data


class Silence:
    """A timeout for the time in which a vendor sends no content.

    Comments, pings and empty events are not content. The time of the consumer does not count. One timer serves a whole
    response, so that an event needs no timer of its own.

    Args:
        seconds: The seconds without content.
        details: Vendor and model, for the error.
    """

    __slots__ = ("_before", "_details", "_expired", "_loop", "_seconds", "_since", "_task", "_timer")

    def __init__(self, seconds: float, details: dict[str, Any]) -> None:
        self._seconds = seconds
        self._details = details
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._before = 0

    def begin(self) -> None:
        """Start waiting for the vendor."""
        if self._since is None:
            self._since = self._loop.time()
        self._task = asyncio.current_task()
        if self._timer is None:
            self._timer = self._loop.call_at(self._since + self._seconds, self._look)

    def end(self, content: bool) -> None:
        """Stop waiting; ``content`` is True when content has arrived."""
        self._task = None
        if content:
            self._since = None

    def heard(self) -> None:
        """Reset the timeout after content."""
        self._since = None

    def broken(self) -> bool:
        """Return whether the present CancelledError comes from this timeout."""
        task = self._task
        return self._expired and task is not None and task.uncancel() <= self._before

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def error(self) -> LLMTimeoutError:
        """Return the error for a passed timeout."""
        text = f"no content within {self._seconds:g} s; raise timeout= if the model needs longer"
        return LLMTimeoutError(text, **self._details)

    def _look(self) -> None:
        self._timer = None
        if self._task is None or self._since is None:
            return  # the next wait starts a new timer
        due = self._since + self._seconds
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self._look)
            return
        self._expired, self._before = True, self._task.cancelling()
        self._task.cancel()


class Chunks:
    """The chunks of an SDK's stream, each awaited with a timeout.

    Args:
        stream: The SDK's stream.
        silence: The timeout.
        is_empty: Returns whether a chunk has no content, such as a ping; None when the consumer calls
            ``silence.heard()`` itself.
        body: The bytes that the stream reads.
    """

    def __init__(
        self, stream: Any, silence: Silence, is_empty: Callable[[Any], bool] | None, body: "AnswerBody"
    ) -> None:
        self.response = stream.response
        self.body = body
        self._next = stream.__anext__
        self.silence = silence
        self._is_empty = is_empty

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        silence = self.silence
        silence.begin()
        try:
            chunk = await self._next()
        except asyncio.CancelledError:
            if silence.broken():
                raise silence.error() from None
            raise
        except BaseException:
            silence.end(content=True)
            raise
        silence.end(content=self._is_empty is not None and not self._is_empty(chunk))
        return chunk


class Opened:
    """A response with its open stream.

    Attributes:
        response: The HTTP response; None when a program has patched the SDK and returns responses itself.
        events: The stream events.
        closes: Closes the response.
    """

    def __init__(self, response: Any, events: AsyncGenerator[StreamEvent, None]) -> None:
        self.response = response
        self.events = events
        self.closes: Callable[[], Awaitable[None]] | None = None if response is None else response.aclose

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {} if self.response is None else self.response.headers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.closes is not None:
            await self.closes()


async def iterate_events(events: Iterable[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of a whole response."""
    for event in events:
        yield event


class AnswerBody:
    """The bytes of a response, counted and scanned on their way to the SDK.

    Args:
        response: The unread HTTP response. Its ``aiter_bytes`` is replaced by a scanning one.
        limit: The maximum of bytes.
        details: Vendor and model, for errors.
        scan: Whether to look for ``[DONE]`` and ``event: error``, which OpenAI's SDK does not report.

    Attributes:
        done: Whether ``data: [DONE]`` has arrived.
    """

    def __init__(self, response: Any, limit: int, details: dict[str, Any], *, scan: bool) -> None:
        self.done = False
        self._details = details
        self._limit = limit
        self._size = 0
        self._head: list[bytes] = []
        self._pieces: AsyncIterator[bytes] = aiter(response.aiter_bytes())
        self._scan = scan
        response.aiter_bytes = self._looked_through

    async def begins_as_json(self, silence: Silence) -> bool:
        """Return whether the body starts like a JSON object or array; the bytes read stay available."""
        async for piece in self._timed(silence):
            self._head.append(piece)
            begun = piece.lstrip()
            if begun:
                return begun[:1] in b"{["
        return False

    async def read(self, silence: Silence) -> bytes:
        """Return the whole body."""
        pieces, self._head = self._head, []
        async for piece in self._timed(silence):
            pieces.append(piece)
        return b"".join(pieces)

    async def _timed(self, silence: Silence) -> AsyncGenerator[bytes, None]:
        while True:
            silence.begin()
            try:
                piece = await anext(self._pieces, None)
            except asyncio.CancelledError:
                if silence.broken():
                    raise silence.error() from None
                raise
            # Servers send white space to keep a connection alive while the model writes.
            silence.end(content=piece is None or not piece.isspace())
            if piece is None:
                return
            yield self._counted(piece)

    def _counted(self, piece: bytes) -> bytes:
        self._size += len(piece)
        if self._size > self._limit:
            raise InvalidResponseError(
                f"the answer is longer than {self._limit:,} bytes; raise max_answer_bytes= if it may be",
                **self._details,
            )
        return piece

    async def _bounded(self) -> AsyncGenerator[bytes, None]:
        for piece in self._head:
            yield piece
        async for piece in self._pieces:
            yield self._counted(piece)

    def _looked_through(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:  # noqa: ARG002 - httpx's name
        return self._scanned() if self._scan else self._bounded()

    async def _scanned(self) -> AsyncGenerator[bytes, None]:
        # One generator for everything, because each generator costs as much as its work.
        held, tail = b"", b"\n"
        head, self._head = self._head, []
        for piece in head:
            self._size -= len(piece)  # counted when it was read, and again below
        async for piece in _chained(head, self._pieces) if head else self._pieces:
            self._counted(piece)
            data, held = (held + piece, b"") if held else (piece, b"")
            if b"]" in data and b"DONE]" in (seen := tail + data):
                self.done = self.done or _DONE.search(seen) is not None
            if b"error" in data and (found := _ERROR_EVENT.search(tail + data)) is not None:
                start = max(0, found.start() - len(tail) + 1)
                if start:
                    yield data[:start]
                raise ErrorEvent(await self._error_data(data[start:]))
            # The rest of an incomplete line may turn it into an error event.
            begun = 0 if data[-1:] in _LINE_ENDS else _begun_line(data)
            if begun:
                data, held = data[:-begun], data[-begun:]
            tail = data[-_MARK_LENGTH:] if len(data) >= _MARK_LENGTH else (tail + data)[-_MARK_LENGTH:]
            if data:
                yield data
        if held:
            yield held

    async def _error_data(self, text: bytes) -> Any:
        """Return the data of the error event that starts with ``text``."""
        async for piece in self._bounded_rest():
            if _BLANK_LINE.search(text) or len(text) > _LONGEST_ERROR:
                break
            text += piece
        lines = text.strip().replace(b"\r\n", b"\n").replace(b"\r", b"\n").partition(b"\n\n")[0].split(b"\n")
        data = "\n".join(
            line[5:].decode(errors="replace").removeprefix(" ") for line in lines if line.startswith(b"data:")
        )
        try:
            return json.loads(data)
        except ValueError:
            return data or "the server sent an error without a message"

    async def _bounded_rest(self) -> AsyncGenerator[bytes, None]:
        yield b""
        async for piece in self._pieces:
            yield self._counted(piece)


async def _chained(head: Sequence[bytes], pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in head:
        yield piece
    async for piece in pieces:
        yield piece


def _begun_line(data: bytes) -> int:
    """Return the length of the last line if it may become ``event: error``, else 0."""
    line = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :]
    return len(line) if line and any(mark.startswith(line) or line == mark for mark in _ERROR_LINES) else 0


_Piece = TextDelta | ThinkingDelta | ToolCallDelta
_TEXTS = (TextDelta, ThinkingDelta)


class SurrogateJoiner:
    """Join surrogate pairs that are split between two deltas, as servers that count in UTF-16 send them.

    A high surrogate waits for the next delta of the same text. Without one it becomes U+FFFD, because no request and no
    record can contain it.
    """

    def __init__(self) -> None:
        self._waiting: _Piece | None = None

    def affects(self, event: StreamEvent) -> bool:
        """Return whether ``event`` has to go through :meth:`joined`, which is rare."""
        if self._waiting is not None:
            return True
        if isinstance(event, _TEXTS):
            return has_halves(event.text)
        if isinstance(event, BlockDone):
            return isinstance(event.block, ThinkingBlock) and has_halves(event.block.content or "")
        return has_halves(_text(event))

    def joined(self, event: StreamEvent) -> Sequence[StreamEvent]:
        """Return the events that can be passed on, with valid Unicode."""
        joined: list[StreamEvent] = []
        before, self._waiting = self._waiting, None
        text = _text(event)
        if before is not None:
            if _strand(before) == _strand(event):
                text = _text(before) + text
            else:
                joined.append(_with_text(before, sendable(_text(before))))
        if isinstance(event, BlockDone) and isinstance(event.block, ThinkingBlock) and event.block.content:
            # Adapters build the block from the original deltas.
            event.block.content = sendable(event.block.content)
        if not isinstance(event, _Piece):
            return [*joined, event]
        if "\ud800" <= text[-1:] <= "\udbff":
            self._waiting = _with_text(event, text[-1])
            text = text[:-1]
        # A delta of a call carries its id and name even without text.
        if text or self._waiting is None or isinstance(event, ToolCallDelta):
            joined.append(_with_text(event, sendable(text)))
        return joined


def _text(event: StreamEvent) -> str:
    match event.kind:
        case "text" | "thinking":
            return event.text
        case "tool_call":
            return event.arguments
        case _:
            return ""


def _with_text(event: _Piece, text: str) -> _Piece:
    return replace(event, arguments=text) if isinstance(event, ToolCallDelta) else replace(event, text=text)


def _strand(event: StreamEvent) -> tuple[str, int]:
    """Return the text that the event is a delta of."""
    match event:
        case TextDelta():
            return event.kind, event.part
        case ToolCallDelta():
            return event.kind, event.index
        case _:
            return event.kind, 0

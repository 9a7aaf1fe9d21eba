"""The responses that the events of a stream add up to."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from functools import partial
from io import StringIO
from operator import itemgetter
from typing import Any

from batonflow.clock import current_source
from batonflow.llms.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.call_forms import KwargsWithCalls
from batonflow.llms.errors import IncompleteResponseError
from batonflow.llms.lazy_fields import assembled
from batonflow.llms.messages import ALL_FIELDS, ChatMessage, ChatResponse, MessageRole
from batonflow.llms.stream import BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import parse_arguments
from batonflow.llms.usage import record_usage

__all__ = ["Answer", "fold", "incomplete"]

# Arguments up to this many characters are tried at every piece that may be their last.
_SHORT = 512
# How often balanced braces may have been no end before they are taken for a matter of the strings inside.
_TRUST = 8
# Answers are shorter than that, by characters, parts and pieces of calls.
_BITS = 40


def incomplete(shown: bool, vendor: str | None, model: str | None) -> IncompleteResponseError:
    """The error for an answer that ends without its terminal mark.

    Args:
        shown: Whether a part of it has been seen, so that asking again would show it twice.
        vendor: Who broke off.
        model: Which model.
    """
    state = "half way" if shown else "before it began"
    return IncompleteResponseError(
        f"the answer broke off {state}: its terminal mark is missing", vendor=vendor, model=model, shown=shown
    )


class _Text:
    """A text that is arriving."""

    __slots__ = ("_buffer", "length", "part", "write")

    def __init__(self, part: int) -> None:
        self.part = part
        self.length = 0
        self._buffer = StringIO()
        self.write = self._buffer.write

    def first(self, length: int) -> str:
        """The first ``length`` characters."""
        text = self._buffer.getvalue()
        return text if length == len(text) else text[:length]


_number_of: Any = itemgetter(0)


class _Call:
    """A tool call that is arriving.

    Args:
        index: Which one.
    """

    __slots__ = (
        "_misled", "_opened", "_pieces", "_size", "_states", "_tried", "block", "extra", "id", "index", "name",
        "settled_at",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.extra: dict[str, Any] | None = None
        self.block: ToolCallBlock | None = None
        self.settled_at = 0
        self._pieces: list[str] = []
        self._opened = 0
        self._size = 0
        self._tried = 0
        self._misled = 0
        # After which event there were how many pieces, under which id and name. Each event from there on brings one
        # piece, up to the next entry: nothing need be kept for every one.
        self._states: list[tuple[int, int, str | None, str]] = []

    def goes_on(self, number: int) -> None:
        """What comes behind event ``number`` is of this call."""
        self._states.append((number, len(self._pieces), self.id, self.name))

    def add(self, event: ToolCallDelta, number: int) -> None:
        piece = event.arguments
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            self._opened += piece.count("{") - piece.count("}")
        self.extra = event.extra or self.extra
        # Names come with the first piece; servers that repeat them in every piece must not make "addadd".
        if not piece or (event.id and not self.id) or (event.name and not self.name):
            self.id = self.id or event.id
            self.name = self.name or event.name or ""
            self.goes_on(number)

    def begun(self, number: int) -> ToolCallBlock:
        """The call as far as it had come after event ``number``."""
        at = bisect_right(self._states, number, key=_number_of)
        since, count, call_id, name = self._states[at - 1]
        most = self._states[at][1] if at < len(self._states) else len(self._pieces)
        text = "".join(self._pieces[: min(count + number - since, most)])
        return ToolCallBlock.made(call_id, name, text)

    def _may_be_whole(self) -> bool:
        # Parsing at every piece would take time with the square of the length. An object ends with a brace, and nearly
        # always its braces are balanced; where strings hold odd ones, try each time it has grown by an eighth.
        if not self._pieces or not self._pieces[-1].rstrip().endswith("}"):
            return False
        balanced = self._opened == 0 and self._misled < _TRUST
        return balanced or self._size < _SHORT or self._size * 8 > self._tried * 9

    def settle(self, number: int, final: bool) -> None:
        """Make the block once the arguments are whole; at the end of the answer make it in any case."""
        # A name that comes late belongs to it too.
        if self.block is not None or not (final or (self.name and self._may_be_whole())):
            return
        text = "".join(self._pieces)
        arguments = parse_arguments(text)
        if arguments is None and not final:
            self._tried = self._size
            self._misled += self._opened == 0
            return
        self.settled_at = number
        call_id = self.id or f"call_{current_source().token(12)}"
        self.block = ToolCallBlock.made(call_id, self.name, text if arguments is None else arguments)


class Answer:
    """The answer so far. Blocks keep the order in which they began.

    It only grows, so that what it was after any event can be told later from a few numbers.
    """

    __slots__ = ("_arriving", "_calls", "_last", "_number", "_parts", "settled_late")

    def __init__(self) -> None:
        self._parts: list[_Text | ContentBlock | _Call] = []
        # Made when first needed, as an answer is kept for as long as somebody holds a piece of it.
        self._calls: dict[int, _Call] | None = None
        self._arriving: _Call | None = None
        self._number = 0
        # Whether its end made calls whole, which nobody can have seen before.
        self.settled_late = False
        # The last part, where it is a text.
        self._last: _Text | None = None

    def text(self, event: TextDelta) -> None:
        """A piece of text has arrived."""
        last = self._last
        if last is None or last.part != event.part:
            last = self._last = _Text(event.part)
            self._parts.append(last)
        last.length += last.write(event.text)

    def block(self, block: ContentBlock) -> None:
        """A block has arrived whole."""
        self._last = None
        self._parts.append(block)

    def call(self, event: ToolCallDelta) -> None:
        """A piece of a call has arrived."""
        self._number += 1
        call = self._arriving
        if call is None or call.index != event.index:
            call = self._arriving = self._turn_to(event.index)
        call.add(event, self._number)
        call.settle(self._number, final=False)

    def _turn_to(self, index: int) -> _Call:
        """The call of which a piece has arrived, when the last one was another's."""
        if self._calls is None:
            self._calls = {}
        call = self._calls.get(index)
        if call is None:
            # That it begins does not say that those before it are whole: some servers write several at a time.
            call = self._calls[index] = _Call(index)
            self._last = None
            self._parts.append(call)
        call.goes_on(self._number - 1)
        return call

    def shown(self, event: StreamEvent) -> ChatResponse | None:
        """Take an event that is not the last one; gives the answer so far where the event shows something of it."""
        delta = ""
        additional: dict[str, Any] = {}
        match event:
            case TextDelta():
                self.text(event)
                delta = event.text
            case ThinkingDelta():
                additional["thinking_delta"] = event.text
            case ToolCallDelta():
                self.call(event)
            case BlockDone():
                self.block(event.block)
                if isinstance(event.block, ThinkingBlock):
                    return None
            case _:
                raise TypeError(
                    f"a model's _stream gave {event!r:.100}, which is no event of a stream: give TextDelta, "
                    "ThinkingDelta, ToolCallDelta, BlockDone or Finish of batonflow.llms.stream"
                )
        return ChatResponse.piece(self, delta, event.raw, additional, self.mark())

    def finished(self, event: Finish, model: str | None) -> ChatResponse:
        """The whole answer; what it took is counted where :func:`batonflow.llms.track_usage` is at work.

        Args:
            event: The terminal mark.
            model: The model's name, for answers that do not say it.
        """
        self.settle()
        if event.usage is not None:
            record_usage(event.usage, event.model or model or "unknown")
        values: dict[str, Any] = {
            "raw": event.raw,
            "delta": "",
            "logprobs": None,
            "additional_kwargs": dict(event.additional_kwargs),
            "usage": event.usage,
            "stop_reason": event.reason,
            "model": event.model or model,
            "vendor": event.vendor,
            "request_id": event.request_id,
        }
        # Not left until somebody asks, as somebody always does.
        values["message"] = message = self.whole()
        message.additional_kwargs.update(event.message_kwargs)
        values["_mark"] = self.mark()
        return ChatResponse.partial(self, values, ALL_FIELDS)

    def settle(self) -> None:
        """All calls so far are whole."""
        # Later than everything so far, or answers read late would show calls that had not been whole then.
        self._number += 1
        for call in (self._calls or {}).values():
            if call.block is None:
                self.settled_late = True
                call.settle(self._number, final=True)

    def has_content(self) -> bool:
        """Whether anything has arrived."""
        return bool(self._parts)

    def number_of_calls(self) -> int:
        """How many calls have begun."""
        return len(self._calls or ()) + sum(isinstance(part, ToolCallBlock) for part in self._parts)

    def mark(self) -> int:
        """Tells :meth:`at` what the answer is now, however much comes later."""
        # One number, as there is one for every piece for as long as somebody holds the piece.
        last = self._last
        return (self._number << _BITS | len(self._parts)) << _BITS | (0 if last is None else last.length)

    def at(self, mark: int) -> ChatMessage:
        """The message as it was when :meth:`mark` gave ``mark``."""
        rest, length = divmod(mark, 1 << _BITS)
        number, count = divmod(rest, 1 << _BITS)
        return self._message(count, length, number)

    def __call__(self, mark: int) -> dict[str, Any]:
        """What is left to make of a :class:`ChatResponse`."""
        return {"message": self.at(mark)}

    def whole(self) -> ChatMessage:
        """The message of everything so far."""
        return self.at(self.mark())

    def _message(self, count: int, length: int, number: int) -> ChatMessage:
        """The message that the first ``count`` parts make, of the last one ``length`` characters."""
        blocks: list[ContentBlock] = []
        additional: dict[str, Any] = {}
        parts, calls = self._parts[:count], list[ToolCallBlock | Callable[[], ToolCallBlock]]()
        for position, part in enumerate(parts, 1):
            if isinstance(part, _Text):
                text = part.first(part.length if position < len(parts) else length)
                blocks.append(assembled(TextBlock, {"block_type": "text", "text": text}))
            elif isinstance(part, _Call):
                if part.block is None or part.settled_at > number:
                    # Not made for every piece of it, which would take time with the square of their number.
                    calls.append(partial(part.begun, number))
                    continue
                calls.append(part.block)
                blocks.append(part.block)
                if part.extra:
                    additional.setdefault("tool_call_extras", {})[part.block.tool_call_id] = part.extra
            else:
                blocks.append(part)
        if calls:
            additional = KwargsWithCalls(additional, calls)
        # The pieces are of our own making and need no second validation.
        return assembled(
            ChatMessage, {"role": MessageRole.ASSISTANT, "additional_kwargs": additional, "blocks": blocks}
        )


async def fold(
    events: AsyncGenerator[StreamEvent, None], *, vendor: str | None = None, model: str | None = None
) -> AsyncGenerator[ChatResponse, None]:
    """The responses that ``events`` add up to, one per event that shows something, the last one with usage and reason.

    Args:
        events: What an adapter produces.
        vendor: For errors.
        model: For errors, and for answers that do not name their model.

    Raises:
        IncompleteResponseError: The events end without :class:`Finish`.
    """
    answer = Answer()
    try:
        async for event in events:
            if isinstance(event, Finish):
                yield answer.finished(event, model)
                return
            response = answer.shown(event)
            if response is not None:
                yield response
    finally:
        # As aclosing would, at a third of its price.
        await events.aclose()
    raise incomplete(answer.has_content(), vendor, model)

"""The events of a model's answer, and the responses that they are folded into."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from operator import itemgetter
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import Field

from batonflow.clock import current_source
from batonflow.llms.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock, WatchedList
from batonflow.llms.errors import IncompleteResponseError
from batonflow.llms.lazy_fields import KwargsWithCalls, assembled
from batonflow.llms.messages import ALL_FIELDS, ChatMessage, ChatResponse, MessageRole
from batonflow.llms.tool_protocol import parse_arguments
from batonflow.llms.usage import CostOf, Usage, record_usage, with_cost

__all__ = [
    "Answer",
    "BlockDone",
    "Finish",
    "StreamEvent",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "fold",
    "incomplete",
]

NotKept = Annotated[Any, Field(exclude=True)]
"""The vendor's own object: visible, but never serialized."""


_BLOCKS: tuple[type[Any], ...] = get_args(get_args(ContentBlock)[0])


def _no_text(piece: Any) -> ValueError:
    # Compatible servers may send other types, and the SDKs pass them on.
    return ValueError(f"a piece of an answer is {type(piece).__name__}, not text: {str(piece)[:100]}")


# Dataclasses and not models: a response has thousands of events, and creating one takes a third of the time.


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """A delta of text.

    Args:
        text: The new text.
        part: The number of the vendor's text part; each part becomes a block.
        raw: The vendor's object.
    """

    text: str
    part: int = 0
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["text"] = "text"

    def __post_init__(self) -> None:
        piece: Any = self.text
        if not isinstance(piece, str):
            raise _no_text(piece)


@dataclass(slots=True, kw_only=True)
class ThinkingDelta:
    """A delta of thinking, for display. A thought that is kept follows as a :class:`BlockDone`.

    Args:
        text: The new text.
        raw: The vendor's object.
    """

    text: str
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["thinking"] = "thinking"

    def __post_init__(self) -> None:
        piece: Any = self.text
        if not isinstance(piece, str):
            raise _no_text(piece)


@dataclass(slots=True, kw_only=True)
class ToolCallDelta:
    """A delta of a tool call; ``index`` tells calls apart.

    Args:
        index: The position of the call in the response.
        id: The vendor's id, in the first delta.
        name: The tool, in the first delta.
        arguments: A piece of the arguments' JSON text.
        extra: Data that the vendor wants back with this call.
        raw: The vendor's object.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extra: dict[str, Any] | None = None
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["tool_call"] = "tool_call"

    def __post_init__(self) -> None:
        piece: Any
        for piece in (self.arguments, self.name or "", self.id or ""):
            if not isinstance(piece, str):
                raise _no_text(piece)


@dataclass(slots=True, kw_only=True)
class BlockDone:
    """A complete block, such as a thought with its signature or a citation.

    Args:
        block: The block.
        raw: The vendor's object.
    """

    block: ContentBlock
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["block"] = "block"

    def __post_init__(self) -> None:
        block: Any = self.block
        if not isinstance(block, _BLOCKS):
            raise ValueError(f"a block of an answer is {type(block).__name__}, not one of the content blocks")


_KINDS_IN_FINISH: tuple[tuple[str, Any, str], ...] = (
    ("reason", str, "text"),
    *((name, (str, type(None)), "text") for name in ("model", "vendor", "request_id")),
    *((name, dict, "a dict") for name in ("additional_kwargs", "message_kwargs")),
)


@dataclass(slots=True, kw_only=True)
class Finish:
    """The terminal mark. A response without it is incomplete.

    Args:
        reason: ``stop``, ``length``, ``tool_calls``, ``content_filter``, ``refusal``, ``pause`` or the vendor's own
            word.
        usage: Tokens, when the vendor sends them.
        model: The model that answered.
        vendor: The vendor.
        request_id: The vendor's id of the request.
        attempts: The number of requests that were sent until one was answered.
        additional_kwargs: The vendor's data about the whole response.
        message_kwargs: Data of the message that the vendor wants back.
        raw: The vendor's object.
    """

    reason: str = "stop"
    usage: Usage | None = None
    model: str | None = None
    vendor: str | None = None
    request_id: str | None = None
    attempts: int = 1
    additional_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    message_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["finish"] = "finish"

    def __post_init__(self) -> None:
        for name, kind, expected in _KINDS_IN_FINISH:
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ValueError(f"{name} of an answer is {type(value).__name__}, not {expected}: {value!r:.100}")
        if self.usage is not None and not isinstance(cast("Any", self.usage), Usage):
            self.usage = Usage.model_validate(self.usage)


StreamEvent = Annotated[TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Finish, Field(discriminator="kind")]
"""Any event of a stream."""

# Arguments of up to this length are parsed at every delta that may be the last.
_SHORT = 512
# The number of failed parses at balanced braces before unbalanced braces inside strings are assumed.
_TRUST = 8
# The limit of characters, parts and deltas of an answer.
_BITS = 40


def incomplete(shown: bool, vendor: str | None, model: str | None) -> IncompleteResponseError:
    """Return the error for a response that ends without its terminal mark.

    Args:
        shown: Whether a part of the response was yielded, so that a retry would repeat it.
        vendor: The vendor.
        model: The model.
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
        """Return the first ``length`` characters."""
        text = self._buffer.getvalue()
        return text if length == len(text) else text[:length]


_number_of: Any = itemgetter(0)


class _Call:
    """A tool call that is arriving.

    Args:
        index: The position of the call.
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
        # Entries of event number, count of deltas, id and name. Each event after an entry adds one delta up to the next
        # entry, so no state is kept for single events.
        self._states: list[tuple[int, int, str | None, str]] = []

    def goes_on(self, number: int) -> None:
        """Count the deltas after event ``number`` for this call."""
        self._states.append((number, len(self._pieces), self.id, self.name))

    def add(self, event: ToolCallDelta, number: int) -> None:
        piece = event.arguments
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            self._opened += piece.count("{") - piece.count("}")
        self.extra = event.extra or self.extra
        # The name comes with the first delta. Some servers repeat it in every delta, which must not make "addadd".
        if not piece or (event.id and not self.id) or (event.name and not self.name):
            self.id = self.id or event.id
            self.name = self.name or event.name or ""
            self.goes_on(number)

    def block_at(self, number: int) -> ToolCallBlock:
        """Return the call as it was after event ``number``."""
        at = bisect_right(self._states, number, key=_number_of)
        since, count, call_id, name = self._states[at - 1]
        most = self._states[at][1] if at < len(self._states) else len(self._pieces)
        text = "".join(self._pieces[: min(count + number - since, most)])
        return ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=text)

    def settle(self, number: int, final: bool) -> None:
        """Make the block once the arguments are complete. At the end of the response, make it in any case."""
        if self.block is not None:
            return
        if not final:
            # A name that comes late belongs to the call too.
            if not self.name or not self._pieces or not self._pieces[-1].rstrip().endswith("}"):
                return
            # Parsing at every delta would take quadratic time. The end of an object is a brace, and its braces are
            # nearly always balanced. Where strings contain unbalanced braces, parse each time the text has grown by
            # an eighth.
            balanced = self._opened == 0 and self._misled < _TRUST
            if not (balanced or self._size < _SHORT or self._size * 8 > self._tried * 9):
                return
        text = "".join(self._pieces)
        arguments = parse_arguments(text)
        if arguments is None and not final:
            self._tried = self._size
            self._misled += self._opened == 0
            return
        self.settled_at = number
        call_id = self.id or f"call_{current_source().token(12)}"
        values = {
            "block_type": "tool_call",
            "tool_call_id": call_id,
            "tool_name": self.name,
            "tool_kwargs": text if arguments is None else arguments,
        }
        self.block = assembled(ToolCallBlock, values)


class Answer:
    """The answer so far, with its blocks in the order of their first deltas.

    It only grows, so a few numbers are enough to rebuild its state after any event.
    """

    __slots__ = ("_arriving", "_calls", "_last", "_number", "_parts", "settled_late")

    def __init__(self) -> None:
        self._parts: list[_Text | ContentBlock | _Call] = []
        # Created at first use, because every kept chunk of a response keeps the answer alive.
        self._calls: dict[int, _Call] | None = None
        self._arriving: _Call | None = None
        self._number = 0
        # Whether the end of the stream completed calls that no chunk has shown.
        self.settled_late = False
        # The last block, if it is a text.
        self._last: _Text | None = None

    def text(self, event: TextDelta) -> None:
        """Add a text delta."""
        last = self._last
        if last is None or last.part != event.part:
            last = self._last = _Text(event.part)
            self._parts.append(last)
        last.length += last.write(event.text)

    def block(self, block: ContentBlock) -> None:
        """Add a complete block."""
        self._last = None
        self._parts.append(block)

    def call(self, event: ToolCallDelta) -> None:
        """Add a delta of a tool call."""
        self._number += 1
        call = self._arriving
        if call is None or call.index != event.index:
            call = self._arriving = self._turn_to(event.index)
        call.add(event, self._number)
        call.settle(self._number, final=False)

    def _turn_to(self, index: int) -> _Call:
        """Return the call of a delta when it differs from the call of the previous delta."""
        if self._calls is None:
            self._calls = {}
        call = self._calls.get(index)
        if call is None:
            # A new call does not complete the calls before it, because some servers interleave calls.
            call = self._calls[index] = _Call(index)
            self._last = None
            self._parts.append(call)
        call.goes_on(self._number - 1)
        return call

    def add(self, event: StreamEvent) -> ChatResponse | None:
        """Add an event before the last one; return the answer so far if it has changed visibly."""
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
                    f"{event!r:.100} is not a stream event: a model's _stream must yield TextDelta, "
                    "ThinkingDelta, ToolCallDelta, BlockDone or Finish of batonflow.llms.stream"
                )
        return ChatResponse.piece(self, delta, event.raw, additional, self.mark())

    def finished(self, event: Finish, model: str | None, cost_of: CostOf | None = None) -> ChatResponse:
        """Return the whole response, and count its usage for :func:`batonflow.llms.track_usage`.

        Args:
            event: The terminal mark.
            model: The name of the model, for responses without a name.
            cost_of: Returns the cost of usage without a cost; ``LLM.cost_of``.
        """
        self.settle()
        usage = event.usage
        if usage is not None:
            usage = with_cost(usage, cost_of)
            record_usage(usage, event.model or model or "unknown")
        values: dict[str, Any] = {
            "raw": event.raw,
            "delta": "",
            "logprobs": None,
            "additional_kwargs": dict(event.additional_kwargs),
            "usage": usage,
            "stop_reason": event.reason,
            "model": event.model or model,
            "vendor": event.vendor,
            "request_id": event.request_id,
        }
        # The message is built at once, because the last response is always read.
        values["message"] = message = self.whole()
        message.additional_kwargs.update(event.message_kwargs)
        return ChatResponse.partial(self, values, ALL_FIELDS)

    def settle(self) -> None:
        """Complete all calls so far."""
        # A number larger than all so far, or chunks that are read late would show calls as complete too early.
        self._number += 1
        for call in (self._calls or {}).values():
            if call.block is None:
                self.settled_late = True
                call.settle(self._number, final=True)

    def has_content(self) -> bool:
        """Return whether the answer has any content."""
        return bool(self._parts)

    def number_of_calls(self) -> int:
        """The number of calls in the answer."""
        return len(self._calls or ()) + sum(isinstance(part, ToolCallBlock) for part in self._parts)

    def mark(self) -> int:
        """Return a mark with which :meth:`at` rebuilds the present answer later."""
        # The mark is one number, because every kept chunk holds one.
        last = self._last
        return (self._number << _BITS | len(self._parts)) << _BITS | (0 if last is None else last.length)

    def at(self, mark: int) -> ChatMessage:
        """Return the message as it was when :meth:`mark` returned ``mark``."""
        rest, length = divmod(mark, 1 << _BITS)
        number, count = divmod(rest, 1 << _BITS)
        return self._message(count, length, number)

    def __call__(self, mark: int) -> dict[str, Any]:
        """Return the fields of a :class:`ChatResponse` that are still to be made."""
        return {"message": self.at(mark)}

    def whole(self) -> ChatMessage:
        """Return the message with everything so far."""
        return self._message(len(self._parts), 0 if self._last is None else self._last.length, self._number)

    def _message(self, count: int, length: int, number: int) -> ChatMessage:
        """Return the message of the first ``count`` parts, with ``length`` characters of the last part."""
        blocks: list[ContentBlock] = []
        additional: dict[str, Any] = {}
        calls: list[ToolCallBlock | Callable[[], ToolCallBlock]] = []
        parts = self._parts[:count]
        for position, part in enumerate(parts, 1):
            if isinstance(part, _Text):
                text = part.first(part.length if position < len(parts) else length)
                blocks.append(assembled(TextBlock, {"block_type": "text", "text": text}))
            elif isinstance(part, _Call):
                if part.block is None or part.settled_at > number:
                    # A dict for each call of each chunk would take quadratic time.
                    calls.append(partial(part.block_at, number))
                    continue
                calls.append(part.block)
                blocks.append(part.block)
                if part.extra:
                    additional.setdefault("tool_call_extras", {})[part.block.tool_call_id] = part.extra
            else:
                blocks.append(part)
        if calls:
            additional = KwargsWithCalls(additional, calls)
        # The blocks come from this module and need no validation.
        return assembled(
            ChatMessage, {"role": MessageRole.ASSISTANT, "additional_kwargs": additional, "blocks": WatchedList(blocks)}
        )


async def fold(
    events: AsyncGenerator[StreamEvent, None],
    *,
    vendor: str | None = None,
    model: str | None = None,
    cost_of: CostOf | None = None,
) -> AsyncGenerator[ChatResponse, None]:
    """Fold events into responses: one for each visible event; the last one has usage and stop reason.

    Args:
        events: The events of an adapter.
        vendor: The vendor, for errors.
        model: The model, for errors and for responses that do not name it.
        cost_of: Returns the cost of usage without a cost; ``LLM.cost_of``.

    Raises:
        IncompleteResponseError: The events end without :class:`Finish`.
    """
    answer = Answer()
    try:
        async for event in events:
            if isinstance(event, Finish):
                yield answer.finished(event, model, cost_of)
                return
            response = answer.add(event)
            if response is not None:
                yield response
    finally:
        # aclosing() would do the same at three times the cost.
        await events.aclose()
    raise incomplete(answer.has_content(), vendor, model)

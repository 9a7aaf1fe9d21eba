"""How an answer arrives: the events every adapter produces, and the response they add up to."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.errors import IncompleteResponseError
from batonflow.llms.messages import ChatMessage, ChatResponse, MessageRole, Usage
from batonflow.llms.tool_protocol import ToolSpec, parse_arguments
from batonflow.workflow_core.clock import current_source

__all__ = [
    "BlockDone",
    "ChatRequest",
    "Finish",
    "StreamEvent",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "fold",
]


class ChatRequest(BaseModel):
    """What is asked of a model, in terms that no vendor owns.

    Args:
        messages: The conversation.
        tools: Tools the model may call.
        tool_choice: ``"auto"``, ``"required"``, ``"none"``, the name of the tool to call, or the vendor's own form;
            None leaves it to the vendor.
        parallel_tool_calls: Whether several calls may come at once; None leaves it to the vendor.
        options: Everything else of this call, under the vendor's names.
    """

    model_config = ConfigDict(frozen=True)

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSpec] = ()
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class _StreamEvent(BaseModel):
    model_config = ConfigDict(frozen=True)

    raw: Any = Field(default=None, exclude=True, repr=False)


class TextDelta(_StreamEvent):
    """A piece of text."""

    kind: Literal["text"] = "text"
    text: str


class ThinkingDelta(_StreamEvent):
    """A piece of thought. It only shows; the whole thought comes as a :class:`BlockDone` if it is to be kept."""

    kind: Literal["thinking"] = "thinking"
    text: str


class ToolCallDelta(_StreamEvent):
    """A piece of a tool call; calls are told apart by ``index``.

    Args:
        index: Position of the call in the answer.
        id: The vendor's id, with the first piece.
        name: The tool, with the first piece.
        arguments: A piece of the arguments' JSON text.
        extra: What the vendor wants back with this call.
    """

    kind: Literal["tool_call"] = "tool_call"
    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extra: dict[str, Any] | None = None


class BlockDone(_StreamEvent):
    """A block that arrives whole, or is whole now: a thought with its signature, a citation."""

    kind: Literal["block"] = "block"
    block: ContentBlock


class Finish(_StreamEvent):
    """The terminal mark. An answer without it is not whole.

    Args:
        reason: ``stop``, ``length``, ``tool_calls``, ``content_filter``, ``pause`` or the vendor's own word.
        usage: Tokens, when the vendor says.
        model: The model that answered.
        request_id: The vendor's id of the request.
    """

    kind: Literal["finish"] = "finish"
    reason: str = "stop"
    usage: Usage | None = None
    model: str | None = None
    request_id: str | None = None


StreamEvent = Annotated[TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Finish, Field(discriminator="kind")]
"""Any event of a stream."""


class _Call:
    """A tool call that is arriving."""

    __slots__ = ("block", "extra", "id", "name", "pieces")

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.pieces: list[str] = []
        self.extra: dict[str, Any] | None = None
        self.block: ToolCallBlock | None = None

    def add(self, event: ToolCallDelta) -> None:
        self.id = self.id or event.id
        # Names come with the first piece; servers that repeat them in every piece must not make "addadd".
        self.name = self.name or event.name or ""
        self.extra = event.extra or self.extra
        if event.arguments:
            self.pieces.append(event.arguments)

    def settle(self, final: bool) -> None:
        """Make the block once the arguments are whole; at the end of the answer make it in any case."""
        if self.block is not None:
            return
        # Only text that ends like an object can be one: this keeps a long argument from being parsed at every piece.
        whole = bool(self.pieces) and self.pieces[-1].rstrip().endswith("}")
        if not (final or whole):
            return
        text = "".join(self.pieces)
        arguments = parse_arguments(text)
        if arguments is None and not final:
            return
        self.block = ToolCallBlock(
            tool_call_id=self.id or f"call_{current_source().token(12)}",
            tool_name=self.name,
            tool_kwargs=text if arguments is None else arguments,
        )


class _Answer:
    """The answer so far. Blocks keep the order in which they began."""

    def __init__(self) -> None:
        self._parts: list[str | ContentBlock | _Call] = []
        self._calls: dict[int, _Call] = {}
        self._extras: dict[str, Any] = {}

    def text(self, piece: str) -> None:
        if self._parts and isinstance(self._parts[-1], str):
            self._parts[-1] += piece
        else:
            self._parts.append(piece)

    def block(self, block: ContentBlock) -> None:
        self._parts.append(block)

    def call(self, event: ToolCallDelta) -> None:
        call = self._calls.get(event.index)
        if call is None:
            # The next call begins, so those before it are whole: this settles calls without arguments.
            self.settle(final=True)
            call = self._calls[event.index] = _Call()
            self._parts.append(call)
        call.add(event)
        call.settle(final=False)

    def settle(self, final: bool) -> None:
        for call in self._calls.values():
            call.settle(final)

    def has_content(self) -> bool:
        return bool(self._parts)

    def message(self) -> ChatMessage:
        blocks: list[ContentBlock] = []
        additional: dict[str, Any] = {}
        for part in self._parts:
            if isinstance(part, str):
                blocks.append(TextBlock(text=part))
            elif isinstance(part, _Call):
                if part.block is not None:
                    blocks.append(part.block)
                    if part.extra:
                        additional.setdefault("tool_call_extras", {})[part.block.tool_call_id] = part.extra
            else:
                blocks.append(part)
        # The pieces are of our own making and need no second validation; this runs for every delta.
        return ChatMessage.model_construct(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=additional)


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
    answer = _Answer()
    async with aclosing(events):
        async for event in events:
            delta, additional = "", dict[str, Any]()
            match event:
                case TextDelta():
                    answer.text(event.text)
                    delta = event.text
                case ThinkingDelta():
                    additional["thinking_delta"] = event.text
                case ToolCallDelta():
                    answer.call(event)
                case BlockDone():
                    answer.block(event.block)
                    if isinstance(event.block, ThinkingBlock):
                        continue
                case Finish():
                    answer.settle(final=True)
                    yield ChatResponse(
                        message=answer.message(),
                        raw=event.raw,
                        delta="",
                        usage=event.usage,
                        stop_reason=event.reason,
                        model=event.model or model,
                    )
                    return
            yield ChatResponse(message=answer.message(), raw=event.raw, delta=delta, additional_kwargs=additional)
    state = "half way" if answer.has_content() else "before it began"
    raise IncompleteResponseError(
        f"the answer of {vendor or 'the model'} broke off {state}: its terminal mark is missing",
        vendor=vendor,
        model=model,
    )

"""What a model is asked, and the events of which every adapter's answer consists."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms.blocks import ContentBlock
from batonflow.llms.messages import ChatMessage, ChatResponse
from batonflow.llms.tool_protocol import ToolSpec
from batonflow.llms.usage import Usage

__all__ = [
    "BlockDone",
    "ChatRequest",
    "Finish",
    "Gate",
    "OutputSchema",
    "Settle",
    "StreamEvent",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "Watch",
    "current_gates",
    "generated",
    "request_gates",
]


class OutputSchema(BaseModel):
    """The form an answer must have.

    Args:
        name: Of the form: letters, digits, ``_`` and ``-``.
        parameters: Its JSON schema.
        description: What it is, for the model.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    parameters: dict[str, Any]
    description: str = ""


class ChatRequest(BaseModel):
    """What is asked of a model, in terms that no vendor owns.

    Args:
        messages: The conversation.
        tools: Tools the model may call.
        tool_choice: ``"auto"``, ``"required"``, ``"none"``, the name of the tool to call, or the vendor's own form;
            None leaves it to the vendor.
        parallel_tool_calls: Whether several calls may come at once; None leaves it to the vendor.
        output_schema: The form the answer must have; only for models that can be held to one
            (``LLM.native_output_schema``).
        options: Everything else of this call, under the vendor's names.
        stream: Whether the vendor is to send the answer in pieces; None leaves it to the model. Records of requests
            leave it out: the answer is the same.
    """

    model_config = ConfigDict(frozen=True)

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSpec] = ()
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    output_schema: OutputSchema | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    stream: bool | None = Field(default=None, exclude=True)


NotKept = Annotated[Any, Field(exclude=True)]
"""The vendor's own object: shown, but never written down."""


_BLOCKS: tuple[type[Any], ...] = get_args(get_args(ContentBlock)[0])


def _no_text(piece: Any) -> ValueError:
    # Servers that only resemble a vendor's send other things, and the SDKs pass them on.
    return ValueError(f"a piece of an answer is {type(piece).__name__}, not text: {str(piece)[:100]}")


# Plain objects, not models: an answer has thousands of them, and making one takes a third of the time.


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """A piece of text.

    Args:
        text: The piece.
        part: Tells texts apart that the vendor keeps apart: a piece of another part begins a block of its own.
        raw: What the vendor sent.
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
    """A piece of thought. It only shows; the whole thought comes as a :class:`BlockDone` if it is to be kept.

    Args:
        text: The piece.
        raw: What the vendor sent.
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
    """A piece of a tool call; calls are told apart by ``index``.

    Args:
        index: Position of the call in the answer.
        id: The vendor's id, with the first piece.
        name: The tool, with the first piece.
        arguments: A piece of the arguments' JSON text.
        extra: What the vendor wants back with this call.
        raw: What the vendor sent.
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
    """A block that arrives whole, or is whole now: a thought with its signature, a citation.

    Args:
        block: The block.
        raw: What the vendor sent.
    """

    block: ContentBlock
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["block"] = "block"

    def __post_init__(self) -> None:
        block: Any = self.block
        if not isinstance(block, _BLOCKS):
            raise ValueError(f"a block of an answer is {type(block).__name__}, not one of the content blocks")


@dataclass(slots=True, kw_only=True)
class Finish:
    """The terminal mark. An answer without it is not whole.

    Args:
        reason: ``stop``, ``length``, ``tool_calls``, ``content_filter``, ``refusal``, ``pause`` or the vendor's own
            word.
        usage: Tokens, when the vendor says.
        model: The model that answered.
        vendor: Whose it is.
        request_id: The vendor's id of the request.
        additional_kwargs: For the response: what the vendor says about the answer as a whole.
        message_kwargs: For the message: what the vendor wants back with it.
        raw: What the vendor sent.
    """

    reason: str = "stop"
    usage: Usage | None = None
    model: str | None = None
    vendor: str | None = None
    request_id: str | None = None
    additional_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    message_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    raw: NotKept = field(default=None, repr=False)
    kind: Literal["finish"] = "finish"

    def __post_init__(self) -> None:
        told: Any
        for what in ("reason", "model", "vendor", "request_id"):
            told = getattr(self, what)
            if not isinstance(told, str) and (told is not None or what == "reason"):
                raise ValueError(f"{what} of an answer is {type(told).__name__}, not text: {told!r:.100}")
        for what in ("additional_kwargs", "message_kwargs"):
            told = getattr(self, what)
            if not isinstance(told, dict):
                raise ValueError(f"{what} of an answer is {type(told).__name__}, not a dict: {told!r:.100}")
        if self.usage is not None and not isinstance(cast("Any", self.usage), Usage):
            self.usage = Usage.model_validate(self.usage)


StreamEvent = Annotated[TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Finish, Field(discriminator="kind")]
"""Any event of a stream."""

Watch = Callable[[StreamEvent], None]
"""A callback that receives each event of a stream as it passes."""


Settle = Callable[[ChatResponse | None], None]
"""Is told the last piece of the answer, None when none came."""

Gate = Callable[[Any, ChatRequest], Settle]
"""Gets the model and the request, and raises when the request may not be sent."""

_gates: ContextVar[tuple[Gate, ...]] = ContextVar("batonflow_gates", default=())


def current_gates() -> tuple[Gate, ...]:
    """The gates in front of a request that is made here, the outermost first."""
    return _gates.get()


@contextmanager
def request_gates(*added: Gate, instead: bool = False) -> Generator[None, None, None]:
    """Put gates in front of every model that is asked inside the block, in tasks and runs started there too.

    Counted are models whose adapter is written with ``_stream``, as all of ours are.

    Args:
        added: The gates.
        instead: Whether those around the block stand open.
    """
    token = _gates.set(added if instead else (*_gates.get(), *added))
    try:
        yield
    finally:
        _gates.reset(token)


def generated(events: AsyncGenerator[StreamEvent, None], model: str) -> AsyncGenerator[StreamEvent, None]:
    """What a ``_stream`` gave.

    Args:
        events: What it gave.
        model: The name of its class.

    Raises:
        TypeError: It is no asynchronous generator.
    """
    if not hasattr(events, "aclose"):
        if asyncio.iscoroutine(events):
            events.close()
        raise TypeError(f"{model}._stream is no asynchronous generator: write it with `yield`")
    return events

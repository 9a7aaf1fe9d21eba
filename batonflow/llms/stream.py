"""Requests to models, the gates in front of them, and the events of responses."""

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
    "checked_stream",
    "current_gates",
    "estimated_tokens",
    "request_gates",
]


class OutputSchema(BaseModel):
    """The schema of a structured answer.

    Args:
        name: The name: letters, digits, ``_`` and ``-``.
        parameters: The JSON schema.
        description: A description for the model.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    parameters: dict[str, Any]
    description: str = ""


class ChatRequest(BaseModel):
    """A request to a model, independent of the vendor.

    Args:
        messages: The conversation.
        tools: The tools that the model may call.
        tool_choice: ``"auto"``, ``"required"``, ``"none"``, the name of the tool to call, or the vendor's own form;
            None for the vendor's default.
        parallel_tool_calls: Whether the response may have several calls; None for the vendor's default.
        output_schema: The schema of the answer; only for models that enforce one (``LLM.native_output_schema``).
        options: All other options of the call, under the vendor's names.
        stream: Whether the vendor should stream the response; None for the model's default. Recordings leave it out,
            because the response is the same.
    """

    model_config = ConfigDict(frozen=True)

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSpec] = ()
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    output_schema: OutputSchema | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    stream: bool | None = Field(default=None, exclude=True)


_CHARACTERS_PER_TOKEN = 4
_ANSWER_TOKENS = 1024


def estimated_tokens(request: ChatRequest, max_tokens: int | None = None) -> int:
    """Return an estimate of the tokens of a request, response included.

    Args:
        request: The request, with four characters per token.
        max_tokens: The limit of the response; 1,024 when there is no limit.
    """
    read = sum(len(message.content or "") for message in request.messages)
    read += sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    limit = request.options.get("max_tokens") or max_tokens or _ANSWER_TOKENS
    return read // _CHARACTERS_PER_TOKEN + limit


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
        additional_kwargs: The vendor's data about the whole response.
        message_kwargs: Data of the message that the vendor wants back.
        raw: The vendor's object.
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
        for name, kind, expected in _KINDS_IN_FINISH:
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ValueError(f"{name} of an answer is {type(value).__name__}, not {expected}: {value!r:.100}")
        if self.usage is not None and not isinstance(cast("Any", self.usage), Usage):
            self.usage = Usage.model_validate(self.usage)


StreamEvent = Annotated[TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Finish, Field(discriminator="kind")]
"""Any event of a stream."""

Watch = Callable[[StreamEvent], None]
"""A callback that receives each event of a stream as it passes."""


Settle = Callable[[ChatResponse | None], None]
"""A callback for the last chunk of the response, None without a response."""

Gate = Callable[[Any, ChatRequest], Settle]
"""A callback for model and request that raises an error when the request may not be sent."""

_gates: ContextVar[tuple[Gate, ...]] = ContextVar("batonflow_gates", default=())


def current_gates() -> tuple[Gate, ...]:
    """Return the gates in front of a request made here, the outermost first."""
    return _gates.get()


@contextmanager
def request_gates(*added: Gate, instead: bool = False) -> Generator[None, None, None]:
    """Put gates in front of every request inside the block, including tasks and runs started there.

    Only models with a ``_stream`` of their own are gated, which all models of this package have.

    Args:
        added: The gates.
        instead: Whether they replace the gates around the block.
    """
    token = _gates.set(added if instead else (*_gates.get(), *added))
    try:
        yield
    finally:
        _gates.reset(token)


def checked_stream(events: AsyncGenerator[StreamEvent, None], model: str) -> AsyncGenerator[StreamEvent, None]:
    """Return the events of a ``_stream`` after a check of their type.

    Args:
        events: The result of ``_stream``.
        model: The name of the model's class.

    Raises:
        TypeError: The result is not an asynchronous generator.
    """
    if not hasattr(events, "aclose"):
        if asyncio.iscoroutine(events):
            events.close()
        raise TypeError(f"{model}._stream is not an asynchronous generator: write it with `yield`")
    return events

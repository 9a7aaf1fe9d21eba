"""Messages, the responses of models, and types that signatures share."""

import base64
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from batonflow import llms
from batonflow.llms.blocks import ContentBlock, TextBlock, Watchable, WatchedList
from batonflow.llms.lazy_fields import KwargsWithCalls, LazyFields, assembled
from batonflow.llms.usage import Usage
from batonflow.values.names import IN_PARTS

if TYPE_CHECKING:
    from batonflow.llms.watched import Watch

__all__ = [
    "ChatMessage",
    "ChatResponse",
    "ChatResponseAsyncGen",
    "ChatResponseGen",
    "CompletionResponse",
    "CompletionResponseAsyncGen",
    "CompletionResponseGen",
    "LLMMetadata",
    "LogProb",
    "MessageRole",
    "Messages",
    "Model",
    "PydanticProgramMode",
    "TokenAsyncGen",
    "TokenGen",
    "messages_to_prompt",
]


class MessageRole(str, Enum):  # noqa: UP042 - str(role) is "MessageRole.USER" for the programs this must run
    """The author of a message. It compares equal to its name: ``message.role == "user"``."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"
    CHATBOT = "chatbot"
    MODEL = "model"


# The items that a dict contains. Calls that a subclass makes on demand are left out, as the blocks contain them.
_items: Any = getattr(dict, "items")  # noqa: B009 - dict.items would have an unknown type


def _plain(value: Any) -> Any:
    """Return ``value`` with models dumped and bytes encoded, at any depth."""
    if type(value) is str:
        return value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in _items(value)}
    if isinstance(value, list):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _comes_back(value: Any, is_plain: Callable[[Any], bool]) -> bool:
    return not value or isinstance(value, KwargsWithCalls) or is_plain(dict(_items(value)))


class ChatMessage(Watchable):
    """One message of a conversation.

    Args:
        content: The text, or a list of blocks.
        role: The author; by default the user.
        blocks: The same as a list for ``content``.
        additional_kwargs: Data that only some vendors use, such as the ``tool_call_id`` of a tool message.

    Raises:
        TypeError: ``content`` is neither text nor a list.

    Example:
        >>> ChatMessage("Hello").role == "user"
        True
    """

    # A subclass of dict holds tool calls, which the serializer below writes.
    __batonflow_fits__: ClassVar[Mapping[str, Any]] = {"additional_kwargs": _comes_back}
    __batonflow_is_part__: ClassVar[bool] = True

    role: MessageRole = MessageRole.USER
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    blocks: list[ContentBlock] = Field(default_factory=list[ContentBlock])

    def __init__(self, /, content: Any = None, **data: Any) -> None:
        if isinstance(content, str):
            data["blocks"] = [TextBlock(text=content)]
        elif isinstance(content, list):
            data["blocks"] = content
        elif content is not None:
            raise TypeError(f"content is text or a list of blocks, not {type(content).__name__}")
        super().__init__(**data)
        self._watch_blocks()
        # Pydantic would turn the entries of a response into a plain dict, without the calls that are made on demand.
        given = data.get("additional_kwargs")
        if isinstance(given, KwargsWithCalls):
            self.additional_kwargs = given.beside(self.blocks)

    def _watch_blocks(self) -> None:
        """Put the blocks into a list that can be watched, before anything else holds the list."""
        values = cast("dict[str, Any]", self.__dict__)
        if type(values["blocks"]) is list:
            values["blocks"] = WatchedList(cast("list[Any]", values["blocks"]))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "blocks":
            self._watch_blocks()

    @staticmethod
    def of_text(text: str, role: MessageRole = MessageRole.USER) -> "ChatMessage":
        """Return a message with one text, without validation.

        Args:
            text: The text.
            role: The author.
        """
        blocks = WatchedList([assembled(TextBlock, {"block_type": "text", "text": text})])
        return assembled(ChatMessage, {"role": role, "additional_kwargs": {}, "blocks": blocks})

    @property
    def content(self) -> str | None:
        """The text blocks joined by newlines; None without text. Settable with at most one block, a text."""
        texts = [block.text for block in self.blocks if isinstance(block, TextBlock)]
        # A message with one empty block has empty text, not None: programs tell the two apart.
        return "\n".join(texts) or ("" if len(texts) == 1 else None)

    @content.setter
    def content(self, content: str) -> None:
        if len(self.blocks) > 1 or (self.blocks and not isinstance(self.blocks[0], TextBlock)):
            raise ValueError("the message has several blocks, or one that is not text: set message.blocks instead")
        self.blocks = [TextBlock(text=content)]

    def __str__(self) -> str:
        return f"{self.role.value}: {self.content}"

    @classmethod
    def from_str(cls, content: str, role: MessageRole | str = MessageRole.USER, **kwargs: Any) -> Self:
        """Return a message with one text block."""
        return cls(role=MessageRole(role), blocks=[TextBlock(text=content)], **kwargs)

    def __batonflow_watch__(self) -> "Watch | None":
        """Watch this message for changes in place. None if it, or a part of it, is of a class that cannot tell."""
        return llms.watched.watch(self) if type(self) is ChatMessage else None

    @field_serializer("additional_kwargs")
    def _dump_additional(self, value: dict[str, Any]) -> Any:
        return _plain(value) if value else {}


Messages = Annotated[list[ChatMessage], IN_PARTS]
"""A list of messages. Records write each of them once. Fields of events and models may have this type."""


class LogProb(BaseModel):
    """A token and the logarithm of its probability."""

    token: str = ""
    logprob: float = 0.0
    bytes: list[int] = Field(default_factory=list[int])


class ChatResponse(LazyFields):
    """A response of a model; in a stream, the response so far.

    Args:
        message: The message (so far).
        raw: The vendor's own object.
        delta: The new text of this chunk; None when not streamed.
        logprobs: Log probabilities, on request.
        additional_kwargs: ``thinking_delta``, and further data of a model.
        usage: Tokens and cost, in the last chunk; None when the vendor does not send them.
        stop_reason: The reason of the end, in the last chunk: ``stop``, ``length``, ``tool_calls``, ``content_filter``,
            ``refusal``, ``pause`` or the vendor's own word.
        model: The model that answered, with the vendor's name for it.
        vendor: The vendor: ``"openai"``, ``"anthropic"``.
        request_id: The vendor's id of the request, for its support.

    A stream has one response for each chunk, and makes its message on demand.
    """

    message: ChatMessage
    raw: Any = None
    delta: str | None = None
    logprobs: list[list[LogProb]] | None = None
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    usage: Usage | None = None
    stop_reason: str | None = None
    model: str | None = None
    vendor: str | None = None
    request_id: str | None = None

    @classmethod
    def piece(
        cls,
        make: Callable[[Any], dict[str, Any]],
        delta: str,
        raw: Any,
        additional_kwargs: dict[str, Any],
        mark: Any = None,
    ) -> Self:
        """Return a response of a stream; ``make(mark)["message"]`` makes its message on demand."""
        return cls.partial(
            make,
            {
                "raw": raw,
                "delta": delta,
                "logprobs": None,
                "additional_kwargs": additional_kwargs,
                "usage": None,
                "stop_reason": None,
                "model": None,
                "vendor": None,
                "request_id": None,
                "_mark": mark,
            },
            ALL_BUT_MESSAGE,
        )

    def __str__(self) -> str:
        return str(self.message)


ALL_FIELDS = set(ChatResponse.model_fields)
"""The field names of a whole response: one set that all share."""

ALL_BUT_MESSAGE = ALL_FIELDS - {"message"}
"""The field names of a response without a message yet: one set that all share."""

ChatResponseGen = Generator[ChatResponse, None, None]
ChatResponseAsyncGen = AsyncGenerator[ChatResponse, None]


class CompletionResponse(BaseModel):
    """A completion of a prompt.

    Args:
        text: The completion; in a stream, the text so far.
        additional_kwargs: Further data of a model.
        raw: The vendor's own object.
        logprobs: Log probabilities, on request.
        delta: The new text of this chunk.
    """

    text: str
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    raw: Any = None
    logprobs: list[list[LogProb]] | None = None
    delta: str | None = None

    def __str__(self) -> str:
        return self.text


CompletionResponseGen = Generator[CompletionResponse, None, None]
CompletionResponseAsyncGen = AsyncGenerator[CompletionResponse, None]


class LLMMetadata(BaseModel):
    """The properties of a model.

    Args:
        context_window: Tokens of input and output in one request.
        num_output: The maximum of output tokens.
        is_chat_model: Whether it takes messages, and not only a prompt.
        is_function_calling_model: Whether it takes tools.
        model_name: Its name.
        system_role: The role of its system prompts.
    """

    model_config = ConfigDict(protected_namespaces=(), arbitrary_types_allowed=True)

    context_window: int = 3900
    num_output: int = 256
    is_chat_model: bool = False
    is_function_calling_model: bool = False
    model_name: str = "unknown"
    system_role: MessageRole = MessageRole.SYSTEM


def messages_to_prompt(messages: "list[ChatMessage]") -> str:
    """Return a conversation as text for models that complete, with an open line for the answer."""
    lines: list[str] = []
    for message in messages:
        lines.append(f"{message.role.value}: {message.content}")
        if message.additional_kwargs:
            lines.append(str(message.additional_kwargs))
    return "\n".join([*lines, f"{MessageRole.ASSISTANT.value}: "])


Model = TypeVar("Model", bound=BaseModel)
"""The class of a structured answer."""

TokenGen = Generator[str, None, None]
TokenAsyncGen = AsyncGenerator[str, None]


class PydanticProgramMode(str, Enum):  # noqa: UP042 - like MessageRole, for the programs this must run
    """The way to a structured answer.

    ``DEFAULT`` is the best way that the model has. ``NATIVE``: the vendor enforces the schema. ``FUNCTION``, also under
    its older name ``OPENAI``: the answer is the arguments of a tool call. ``LLM``: the schema is in the prompt. The
    other ways are not supported.
    """

    DEFAULT = "default"
    NATIVE = "native"
    FUNCTION = "function"
    OPENAI = "openai"
    LLM = "llm"
    GUIDANCE = "guidance"
    LM_FORMAT_ENFORCER = "lm-format-enforcer"

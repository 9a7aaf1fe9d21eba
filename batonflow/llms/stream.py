"""Requests to models, and the gates in front of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms.answer import BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.messages import ChatMessage, ChatResponse
from batonflow.llms.tool_protocol import ToolSpec

__all__ = [
    "AnswerSource",
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
    "answers_from",
    "answers_here",
    "checked_stream",
    "current_gates",
    "estimated_tokens",
    "request_gates",
    "runs_without_keys",
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


class AnswerSource(Protocol):
    """The answers to all requests of a run, in place of the answers of its models.

    Attributes:
        needs_keys: Whether it sends requests to vendors.
    """

    needs_keys: bool

    def __call__(
        self, llm: Any, request: ChatRequest, events: AsyncGenerator[StreamEvent, None]
    ) -> tuple[Any, ChatRequest, AsyncGenerator[StreamEvent, None]]:
        """Return the model that answers, the request that it gets, and its events.

        Args:
            llm: The model that the program asks.
            request: Its request.
            events: The events of its answer, which has not begun.
        """
        ...


_answer_source: ContextVar[AnswerSource | None] = ContextVar("batonflow_answer_source", default=None)


@contextmanager
def answers_from(source: AnswerSource) -> Generator[None, None, None]:
    """Let ``source`` answer every request inside the block, including tasks and runs started there.

    Only models with a ``_stream`` of their own are answered for, as only their calls are recorded.

    Args:
        source: Gives the answers.
    """
    token = _answer_source.set(source)
    try:
        yield
    finally:
        _answer_source.reset(token)


def answers_here() -> AnswerSource | None:
    """Return the source of the answers to requests made here; None for the models themselves."""
    return _answer_source.get()


def runs_without_keys() -> bool:
    """Return whether all requests made here are answered without a vendor."""
    source = answers_here()
    return source is not None and not source.needs_keys


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

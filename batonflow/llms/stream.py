"""Requests to models, the gates in front of them, and calls as data for records and spans."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from batonflow.clock import current_source
from batonflow.instrumentation.context import model_caller, model_calls
from batonflow.instrumentation.redaction import redacted
from batonflow.llms.answer import Answer, BlockDone, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.messages import ChatMessage, ChatResponse
from batonflow.llms.tool_protocol import ToolSpec
from batonflow.llms.usage import Usage, with_cost

__all__ = [
    "AnswerSource",
    "BlockDone",
    "ChatRequest",
    "Finish",
    "Gate",
    "ModelCall",
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
    "recorded_call",
    "request_as_call",
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


# --- calls as data: in the records of runs, and in spans --------------------------------------------------------------

# Options that may contain keys.
_HEADERS = frozenset({"extra_headers", "extra_query"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call of a model, recorded in the run without secrets, behind the span of a request.

    A store that does not keep parts has neither messages nor ``tool_specs`` nor the answer.

    Attributes:
        agent: The agent that asked; empty in other workflows.
        purpose: ``"turn"`` for an agent's next step, ``"summary"``, ``"structured"``, ``"answer"`` for a last answer
            without tools, ``"knowledge"``, ``"tool"`` for a call inside a tool; empty outside of agents.
        model: The model that answered, or that was asked if there is no answer.
        vendor: Its vendor.
        options: The options of the request and the model, such as ``temperature`` and ``tool_choice``, without secrets.
        tools: The names of the tools that the model could call.
        messages: The conversation that the model saw.
        tool_specs: The tools with their descriptions and schemas.
        answer: The message of the model; None without any part of one.
        finish: The reason for the end of the answer; None without a whole answer.
        usage: Tokens, and the cost at the price of the day; None if the vendor does not send them.
        request_id: The vendor's id of the request.
        attempts: The number of requests that were sent, with the retries of the vendor's SDK.
        began: The time of the request, in wall-clock seconds.
        first: Seconds until the first piece of the answer; None without one.
        took: Seconds until the end.
        error: The class and the text of the error; None without one.

    Example:
        >>> [call.usage for call in (await store.replay("tides-1")).model_calls]
    """

    model: str
    vendor: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    agent: str = ""
    purpose: str = ""
    tools: Sequence[str] = ()
    messages: Sequence[ChatMessage] = ()
    tool_specs: Sequence[ToolSpec] = ()
    answer: ChatMessage | None = None
    finish: str | None = None
    usage: Usage | None = None
    request_id: str | None = None
    attempts: int = 1
    began: float = 0.0
    first: float | None = None
    took: float = 0.0
    error: str | None = None

    def answered(self, response: ChatResponse, first: float | None) -> Self:
        """Return the call with its answer.

        Args:
            response: The last chunk of the response.
            first: Seconds until the first piece.
        """
        return replace(
            self,
            model=response.model or self.model,
            vendor=response.vendor or self.vendor,
            answer=response.message,
            finish=response.stop_reason,
            usage=response.usage,
            request_id=response.request_id,
            first=first,
        )

    def as_data(self) -> dict[str, Any]:
        """Return the call as data for records, without the conversation and the fields that are not known."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _CONVERSATION}
        found["attempts"] = None if self.attempts == 1 else self.attempts
        found["usage"] = None if self.usage is None else self.usage.model_dump(exclude_defaults=True)
        return {name: value for name, value in found.items() if value not in (None, {}, (), "")}

    def conversation(self) -> dict[str, list[Any]]:
        """Return the messages, the answer and the tools as data, for a record that refers to them."""
        found: dict[str, list[Any]] = {
            "messages": list(self.messages),
            "answer": [] if self.answer is None else [self.answer],
            "tool_specs": [tool.model_dump(mode="json") for tool in self.tool_specs],
        }
        return {name: items for name, items in found.items() if items}

    @classmethod
    def from_data(cls, data: Mapping[str, Any], read: Callable[[Any], Any] | None = None) -> Self:
        """Return the call that a record holds; fields of newer versions are ignored.

        Args:
            data: The data.
            read: Returns a value of the record.
        """
        known: dict[str, Any] = {name: value for name, value in data.items() if name in cls.__slots__}
        if "usage" in known:
            known["usage"] = Usage(**known["usage"])
        for name in _CONVERSATION & known.keys():
            known[name] = () if read is None else read(known[name])
        if "answer" in known:
            known["answer"] = next(iter(known["answer"]), None)
        if "tool_specs" in known:
            known["tool_specs"] = [ToolSpec(**tool) for tool in known["tool_specs"]]
        return cls(**known)


_CONVERSATION = frozenset({"messages", "tool_specs", "answer"})


def recorded_call(
    events: AsyncGenerator[StreamEvent, None], llm: Any, request: ChatRequest
) -> AsyncGenerator[StreamEvent, None]:
    """Return the events of an answer. If the running step records calls, the call is recorded at its end.

    Args:
        events: The events.
        llm: The model.
        request: The request.
    """
    if (source := answers_here()) is not None:
        llm, request, events = source(llm, request, events)
    note = model_calls.get()
    return events if note is None else _recorded(events, llm, request, note)


def request_as_call(llm: Any, request: ChatRequest) -> ModelCall:
    """Return a request as a call without an answer.

    Args:
        llm: The model.
        request: The request.
    """
    agent, purpose = model_caller.get()
    return ModelCall(
        model=llm.metadata.model_name,
        vendor=getattr(llm, "vendor", None) or llm.class_name(),
        agent=agent,
        purpose=purpose,
        messages=list(request.messages),
        tool_specs=request.tools,
        options=_options(llm, request),
        tools=[tool.name for tool in request.tools],
    )


async def _recorded(
    events: AsyncGenerator[StreamEvent, None], llm: Any, request: ChatRequest, note: Callable[[ModelCall], None]
) -> AsyncGenerator[StreamEvent, None]:
    source = current_source()
    began, start = source.now(), source.monotonic()
    first: float | None = None
    finish: Finish | None = None
    error: str | None = None
    attempts = 1
    said: list[StreamEvent] = []
    call = request_as_call(llm, request)
    try:
        async with aclosing(events):
            async for event in events:
                if first is None:
                    first = source.monotonic() - start
                if isinstance(event, Finish):
                    finish, attempts = event, event.attempts
                else:
                    said.append(event)
                yield event
    except GeneratorExit:  # The reader stopped early. That is not an error of the call.
        raise
    except BaseException as err:
        error, attempts = redacted(f"{type(err).__name__}: {err}"), getattr(err, "attempts", 1)
        raise
    finally:
        usage = None if finish is None else finish.usage
        note(
            replace(
                call,
                model=(finish and finish.model) or call.model,
                vendor=(finish and finish.vendor) or call.vendor,
                answer=_answer_of(said, finish),
                finish=None if finish is None else finish.reason,
                usage=None if usage is None else with_cost(usage, llm.cost_of),
                request_id=None if finish is None else finish.request_id,
                attempts=attempts,
                began=began,
                first=first,
                took=source.monotonic() - start,
                error=error,
            )
        )


def _answer_of(events: Sequence[StreamEvent], finish: Finish | None) -> ChatMessage | None:
    """Return the message of the events of an answer; None without events."""
    if not events:
        return None
    answer = Answer()
    for part, group in groupby(events, lambda event: event.part if isinstance(event, TextDelta) else None):
        if part is None:
            for event in group:
                answer.add(event)
        else:  # one piece instead of thousands
            text = "".join(event.text for event in group if isinstance(event, TextDelta))
            answer.text(TextDelta(text=text, part=part))
    answer.settle()
    message = answer.whole()
    if finish is not None:
        message.additional_kwargs.update(finish.message_kwargs)
    return message


def _options(llm: Any, request: ChatRequest) -> dict[str, Any]:
    """Return the options that a request was sent with, as JSON data."""
    schema = request.output_schema
    given = {
        **{name: getattr(llm, name, None) for name in ("temperature", "max_tokens")},
        **{name: value for name, value in request.options.items() if name not in _HEADERS},
        "tool_choice": request.tool_choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "output_schema": None if schema is None else schema.name,
    }
    return redacted({name: value for name, value in given.items() if value is not None})

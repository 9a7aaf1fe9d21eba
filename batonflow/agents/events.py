"""Events of an agent's run: its inputs, answers, tool calls and results."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeForm, override

from batonflow import agents as kinds
from batonflow.agents.run_output import OutputMissingError, TextOutput
from batonflow.llms import ChatMessage, ChatResponse, Usage
from batonflow.llms.answer import Answer
from batonflow.llms.lazy_fields import LazyFields
from batonflow.llms.messages import Messages
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.tools import ToolOutput
from batonflow.user_warnings import warn_user
from batonflow.values.problems import in_words
from batonflow.workflow_core.events import Event, StartEvent
from batonflow.workflow_core.typed import OutT

__all__ = [
    "START_FIELDS",
    "AgentInput",
    "AgentOutput",
    "AgentResult",
    "AgentSetup",
    "AgentStream",
    "AgentStreamStructuredOutput",
    "AgentWorkflowStartEvent",
    "PydanticConversionWarning",
    "ToolCall",
    "ToolCallResult",
    "ToolProgress",
    "raw_of",
]

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")


def raw_of(response: ChatResponse) -> Any:
    """Return the vendor's object as plain data, as far as possible."""
    raw = response.raw
    return raw.model_dump() if isinstance(raw, BaseModel) else raw


class PydanticConversionWarning(UserWarning):
    """A structured answer does not fit the requested model."""


def _as_model(data: dict[str, Any] | None, model: type[ModelT]) -> ModelT | None:
    if data is None:
        return None
    # The dump of a model has the field names, even if the vendor got aliases.
    own = {name: value for name, value in data.items() if name not in model.model_computed_fields}
    is_dump = model.model_config.get("extra") == "allow" and model.model_fields.keys() <= own.keys()
    with suppress(ValidationError):
        return model.model_validate(own, extra=None if is_dump else "forbid", by_alias=False, by_name=True)
    try:
        return model.model_validate(data, by_alias=True, by_name=True)
    except ValidationError as error:
        warn_user(f"The answer does not fit {model.__name__}: {error}", PydanticConversionWarning)
        return None


_MESSAGE_HAS = frozenset({"content", *ChatMessage.model_fields})


def _as_message(name: str, given: Any) -> ChatMessage:
    if not isinstance(given, dict) or _MESSAGE_HAS.isdisjoint(cast("dict[Any, Any]", given)):
        raise ValueError(f"{name} is not a ChatMessage but {given!r}")
    try:
        return ChatMessage.model_validate(given)
    except ValidationError as error:
        raise ValueError(f"{name} is not a ChatMessage: {in_words(error)}") from error


HANDOFF_TOOL = "handoff"
"""The name of the tool with which an agent hands over."""

START_FIELDS = ("user_msg", "chat_history", "max_iterations", "early_stopping_method")
"""The fields of a start event that are recorded, and that a command line may give."""


_OPTIONAL = (*START_FIELDS, "memory")


class AgentWorkflowStartEvent(StartEvent):
    """The start of an agent: ``user_msg``, ``chat_history``, ``memory`` and options, as dynamic data."""

    __batonflow_takes__ = START_FIELDS

    @classmethod
    @override
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe only the message, because the other fields are for programs."""
        schema = handler(core_schema)
        if cls is AgentWorkflowStartEvent:
            schema["description"] = "The message that an agent answers."
            schema["properties"] = {
                "user_msg": {"type": "string", "title": "Message", "description": "The text of the user."},
                "max_iterations": {
                    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                    "title": "Max iterations",
                    "description": "The largest number of answers of models.",
                    "default": None,
                },
            }
            schema["required"] = ["user_msg"]
        return schema

    def __init__(self, **data: Any) -> None:
        user_msg, history = data.get("user_msg"), data.get("chat_history")
        if isinstance(user_msg, dict):
            data["user_msg"] = _as_message("user_msg", user_msg)
        elif user_msg is not None and not isinstance(user_msg, str | ChatMessage):
            raise ValueError(f"user_msg is a text or a ChatMessage, not {user_msg!r}")
        # Memories of other libraries have other base classes.
        memory = data.get("memory")
        if memory is not None and (isinstance(memory, type) or not hasattr(memory, "aput")):
            raise ValueError(f"memory is a BaseMemory, as ChatMemoryBuffer.from_defaults(), not {memory!r}")
        if history is not None:
            if not isinstance(history, Iterable) or isinstance(history, str | bytes | Mapping | BaseModel):
                raise ValueError(f"chat_history is a list of ChatMessage, not {history!r}")
            data["chat_history"] = [
                item if isinstance(item, ChatMessage) else _as_message(f"chat_history[{number}]", item)
                for number, item in enumerate(cast("Iterable[Any]", history))
            ]
        super().__init__(**data)

    @override
    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in _OPTIONAL:
                return None
            raise

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The memory is not part of the input.
        dumped = handler(self)
        return {name: dumped[name] for name in START_FIELDS if name in dumped}


class AgentInput(Event):
    """The messages for an agent."""

    input: Messages
    current_agent_name: str


class AgentSetup(Event):
    """The messages for an agent, with the system prompt and the state."""

    input: Messages
    current_agent_name: str


class AgentStream(LazyFields, Event):
    """A piece of an answer. The earlier parts are computed at first access.

    Attributes:
        delta: The new text.
        response: The text so far.
        tool_calls: The complete calls so far.
        raw: The vendor's object; it is not written into snapshots.
        thinking_delta: New thinking, apart from the text.
    """

    delta: str
    response: str
    current_agent_name: str
    tool_calls: list[ToolSelection] = Field(default_factory=list[ToolSelection])
    raw: Any = Field(default=None, exclude=True)
    thinking_delta: str | None = None

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Return an event with the content of several pieces of an answer, for records."""
        last = pieces[-1]
        return cls(
            delta="".join(piece.delta for piece in pieces),
            response=last.response,
            current_agent_name=last.current_agent_name,
            tool_calls=last.tool_calls,
            thinking_delta="".join(piece.thinking_delta or "" for piece in pieces) or None,
        )

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of new characters of text and of thinking."""
        return len(self.delta), len(self.thinking_delta or "")

    def without(self, text: int, thinking: int) -> Self:
        """Return the event without the first new characters of text and thinking, which a reader already has."""
        left = (self.thinking_delta or "")[thinking:]
        return self.model_copy(update={"delta": self.delta[text:], "thinking_delta": left or None})

    @classmethod
    def of(
        cls,
        chunk: ChatResponse,
        agent: str,
        calls: Callable[[ChatResponse], Sequence[ToolSelection]] | None = None,
        so_far: "TextSoFar | None" = None,
        new: tuple[str, str | None] | None = None,
    ) -> Self:
        """Return the event for a piece of a model's answer.

        Args:
            chunk: The piece.
            agent: The name of the agent.
            calls: Returns the complete tool calls so far; by default those of the message.
            so_far: The earlier text of this answer.
            new: The new text and thinking, in place of the piece's own; only together with ``calls``.
        """
        piece = chunk.__dict__
        now: dict[str, Any] = {
            "delta": piece["delta"] or "",
            "current_agent_name": agent,
            "thinking_delta": piece["additional_kwargs"].get("thinking_delta"),
        }
        source: Any = chunk.__pydantic_private__  # the same as chunk.source, but faster
        if calls is None and type(source) is Answer and piece["raw"] is None and "message" not in piece:
            now["_mark"] = piece["_mark"]
            return cls.partial(source, now, _OF_A_PIECE)

        if new is not None:
            now["delta"], now["thinking_delta"] = new
        # Not an inner function, which would slow down all calls.
        rest = functools.partial(_rest_of, chunk, calls)
        if source is not None:
            return cls.partial(rest, now, _OF_A_PIECE)
        # Other models may change the message later, so its present state is copied.
        now.update(rest())
        # Unusual values are validated.
        if so_far is None or now["tool_calls"] or not isinstance(now["thinking_delta"], str | None):
            return cls(**now)
        mark = so_far.mark(now["response"], piece["delta"] or "")
        if mark is None:
            return cls(**now)
        del now["response"]
        now["_mark"] = mark
        return cls.partial(so_far.pieces, now, _OF_A_MESSAGE)

    @classmethod
    def of_piece(
        cls, answer: Answer, mark: int, agent: str, text: str, thinking: str | None = None, raw: Any = None
    ) -> Self:
        """Return the event for a piece of an answer: of text, of thinking, or of a tool call.

        Args:
            answer: The answer; it may have grown since.
            mark: The mark of the answer with the piece.
            agent: The name of the agent.
            text: The new text.
            thinking: The new thinking.
            raw: The vendor's object.
        """
        now = {"delta": text, "current_agent_name": agent, "thinking_delta": thinking, "_mark": mark}
        make = answer if raw is None else functools.partial(_rest_with, answer, raw)
        return cls.partial(make, now, _OF_A_PIECE)

    @override
    def _rest(self, make: Callable[[Any], dict[str, Any]], mark: Any) -> dict[str, Any]:
        return _rest_with(make, None, mark) if isinstance(make, Answer) else make(mark)

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # First the fields, then dynamic data, as in all events.
        self.settle()
        return Event._dump(self, handler)  # pyright: ignore[reportPrivateUsage]


def _rest_of(
    chunk: ChatResponse, calls: Callable[[ChatResponse], Sequence[ToolSelection]] | None, _: Any = None
) -> dict[str, Any]:
    """Return the fields of the event other than the new text."""
    found = tool_selections(chunk.message) if calls is None else calls(chunk)
    return {"response": chunk.message.content or "", "tool_calls": list(found), "raw": raw_of(chunk)}


def _rest_with(answer: Answer, raw: Any, mark: int) -> dict[str, Any]:
    """Return the same fields for a piece that is known by its mark."""
    message = answer.at(mark)
    raw = raw.model_dump() if isinstance(raw, BaseModel) else raw
    return {"response": message.content or "", "tool_calls": tool_selections(message), "raw": raw}


_OF_A_PIECE = {"delta", "current_agent_name", "thinking_delta"}
_OF_A_MESSAGE = {*_OF_A_PIECE, "tool_calls", "raw"}

# The characters at both ends of a text that identify it. A comparison of the whole text for each piece would take
# quadratic time.
_KNOWN_BY = 512


class _Pieces(list[str]):
    """The pieces of a text up to a number, joined at access."""

    def __call__(self, mark: int) -> dict[str, Any]:
        return {"response": "".join(self[:mark])}


class TextSoFar:
    """The text of an answer after each of its pieces, shared by all of its events.

    Otherwise each event would keep its own copy of the text.

    Attributes:
        pieces: Returns the text for a result of :meth:`mark`.
    """

    def __init__(self) -> None:
        self.pieces = _Pieces()
        self._length = 0
        self._head = self._tail = ""

    def mark(self, content: str, delta: str) -> int | None:
        """Return a mark for ``content``; None if it is not the earlier text followed by ``delta``.

        Args:
            content: The present text.
            delta: The new text.
        """
        before, length = self._length, len(content)
        known = content.startswith(self._head) and content.startswith(self._tail, before - len(self._tail))
        if known and length == before:
            return len(self.pieces)
        grown = known and length == before + len(delta) and content.endswith(delta)
        self._length, self._head, self._tail = length, content[:_KNOWN_BY], content[-_KNOWN_BY:]
        if not grown:
            # A new list, because events hold the old one.
            self.pieces = _Pieces([content])
            return None
        self.pieces.append(delta)
        return len(self.pieces)


class AgentStreamStructuredOutput(Event):
    """The structured answer."""

    output: dict[str, Any]

    def get_pydantic_model(self, model: type[ModelT]) -> ModelT | None:
        """Return the answer as a model; None, with a warning, if it does not fit."""
        return _as_model(self.output, model)

    def __str__(self) -> str:
        return json.dumps(self.output, indent=4)


class ToolCall(Event):
    """A tool call of the model."""

    tool_name: str
    tool_kwargs: dict[str, Any]
    tool_id: str


class ToolProgress(Event):
    """A value that a running tool has yielded.

    Attributes:
        tool_name: The tool.
        tool_id: The call.
        value: The value. Yielded events are streamed unchanged.
    """

    tool_name: str
    tool_id: str
    value: Any


class ToolCallResult(Event):
    """The result of a tool call."""

    __batonflow_is_part__: ClassVar[bool] = True

    tool_name: str
    tool_kwargs: dict[str, Any]
    tool_id: str
    tool_output: ToolOutput
    return_direct: bool

    @classmethod
    def of(cls, call: ToolCall, arguments: Mapping[str, Any], output: Any, *, return_direct: bool) -> Self:
        """Return the result of a call.

        Args:
            call: The call of the model.
            arguments: The arguments of the call.
            output: The output of the tool.
            return_direct: Whether the result ends the run as the answer.

        Raises:
            ValidationError: ``output`` is not a :class:`ToolOutput`.
        """
        # Tools of other libraries may return anything.
        make = cls.made if isinstance(output, ToolOutput) else cls
        return make(
            tool_name=call.tool_name,
            tool_kwargs=dict(arguments),
            tool_id=call.tool_id,
            tool_output=output,
            return_direct=return_direct,
        )


class AgentOutput(Event):
    """An answer of an agent.

    Attributes:
        response: The message.
        structured_response: The answer as data, if a model was requested.
        current_agent_name: The name of the agent; the loop fills it in.
        tool_calls: The calls of this answer; on the last output of a run, the results of all calls.
        raw: The vendor's object; it is not written into snapshots.
        retry_messages: Messages for the model before it tries again.
        usage: Tokens and cost of this answer; in the last output of a run, of the whole run. None if not reported.
        usage_by_agent: The usage by agent, in the last output of a run.
    """

    # The declared output of the run, which is not recorded: the loop and the handler put it here.
    __slots__ = ("_declared", "_seconds", "_value")

    response: ChatMessage
    structured_response: dict[str, Any] | None = None
    current_agent_name: str = ""
    raw: Any = Field(default=None, exclude=True)
    tool_calls: list[ToolSelection | ToolCallResult] = Field(default_factory=list[ToolSelection | ToolCallResult])
    retry_messages: Messages = Field(default_factory=list[ChatMessage])
    usage: Usage | None = None
    usage_by_agent: dict[str, Usage] = Field(default_factory=dict[str, Usage])

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return [] if value is None else value

    @classmethod
    def of(cls, response: ChatMessage, calls: Sequence[ToolSelection], agent: str, raw: Any = None) -> Self:
        """Return the output for an answer.

        Args:
            response: The answer.
            calls: The calls of the answer.
            agent: The name of the agent.
            raw: The vendor's object.
        """
        if type(response) is not ChatMessage or not {ToolSelection}.issuperset(map(type, calls)):
            # For models with their own form.
            return cls(response=response, tool_calls=list(calls), raw=raw, current_agent_name=agent)
        return cls.made(
            response=response,
            structured_response=None,
            current_agent_name=agent,
            raw=raw,
            tool_calls=list(calls),
            retry_messages=[],
            usage=None,
            usage_by_agent={},
        )

    def get_pydantic_model(self, model: type[ModelT]) -> ModelT | None:
        """Return the structured answer as a model; None, with a warning, if it does not fit."""
        return _as_model(self.structured_response, model)

    def __class_getitem__(cls, item: Any) -> Any:
        # Only type checkers know several types of results.
        return super().__class_getitem__(item) if Generic in cls.__mro__ else cls

    @property
    def output(self) -> Any:
        """The output of the run: the value of its ``output_type``, the instance of its ``output_cls``, or the text.

        Raises:
            OutputMissingError: A guard has blocked the answer, the steps ran out, or this is not the result of a run.
            OutputUnfitError: The answer does not fit the ``output_cls``.
        """
        declared: TextOutput | None = getattr(self, "_declared", None)
        if declared is None:
            raise OutputMissingError(
                "This output did not come from awaiting a run, so its declared type is not known here: read it with "
                "output_as(type)"
            )
        return declared.value_of(self)

    def output_as(self, output_type: TypeForm[T]) -> T:
        """Return the output as a type: from ``structured_response``, or from the text if that is JSON.

        Args:
            output_type: The type, as for ``output_type`` of an agent.

        Raises:
            OutputMissingError: A guard has blocked the answer, or the steps ran out.
            OutputUnfitError: The answer does not fit.

        Example:
            >>> output.output_as(list[int])
            [1, 2, 3]
        """
        return kinds.TypedOutput((output_type,)).value_of(self)

    def declare(self, declared: TextOutput) -> None:
        """Let ``output`` read this answer as the run has declared; a declaration that is there stays."""
        if getattr(self, "_declared", None) is None:
            object.__setattr__(self, "_declared", declared)

    def keep_seconds(self, seconds: float) -> None:
        """Keep the time of the run, for notebooks."""
        object.__setattr__(self, "_seconds", seconds)

    def keep_value(self, value: Any) -> None:
        """Let ``output`` give this very value, which a function of the user has returned."""
        object.__setattr__(self, "_value", value)

    @property
    def blocked(self) -> str | None:
        """The reason for a missing output: that of a guard, or the limit reached. None if there is an output."""
        if self.get("missing") is not None:
            return str(self.get("missing"))
        return str(self) if self.get("blocked") in ("input", "output") else None

    def __str__(self) -> str:
        return self.response.content or ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return kinds.output_bundle(self)


if TYPE_CHECKING:

    class AgentResult(AgentOutput, Generic[OutT]):
        """The result of an agent's run, with the type of its output."""

        tool_calls: list[Any] = Field(
            default_factory=list[Any]
        )  # nearly always results; programs for LlamaIndex read them without a check

        @property
        def output(self) -> OutT:
            """The output of the run."""
            ...

else:
    AgentResult = AgentOutput

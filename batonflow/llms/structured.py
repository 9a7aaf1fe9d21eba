"""Structured output: answers as instances of a pydantic model.

There are three ways: the vendor enforces the JSON schema, the answer is the arguments of a tool call, or the schema
is in the prompt. The answer is always validated here, and validation errors are sent back to the model.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, cast

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import to_json

from batonflow.instrumentation import events, get_dispatcher
from batonflow.llms._bridge import closed_after
from batonflow.llms.blocks import TextBlock
from batonflow.llms.errors import LLMConfigurationError, NoToolCallError, RefusalError, StructuredOutputError
from batonflow.llms.json_text import ArrivingObject, PartialModel, objects_in, partial_of
from batonflow.llms.messages import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    LLMMetadata,
    MessageRole,
    Model,
    PydanticProgramMode,
)
from batonflow.llms.stream import OutputSchema, StreamEvent, ToolCallDelta, Watch
from batonflow.llms.strict_schema import strict_schema
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.llms.usage import Usage

__all__ = [
    "Ask",
    "Form",
    "FormTool",
    "Outcome",
    "UnfitError",
    "Way",
    "ask_until_it_fits",
    "checked_as_json",
    "last_output",
    "outputs",
    "stream_pieces",
]

Way = Literal["native", "function", "llm"]
"""The way to a structured answer, in the words of ``PydanticProgramMode``."""

Ask = Callable[[list[ChatMessage]], AsyncGenerator[PartialModel | ChatResponse, None]]
"""A function that sends a conversation and yields partial answers when streamed, and last the response."""

T = TypeVar("T")

_LONGEST_NAME = 64
_LONGEST_VALUE = 100
_LONGEST_ANSWER = 2000
_MOST_PROBLEMS = 20
_REFUSED = ("refusal", "content_filter")


@dataclass(frozen=True)
class FormTool:
    """A tool that carries a structured answer in its arguments, and is never called.

    Args:
        name: The name of the form.
        description: The description for the model.
        fn_schema: The class of the arguments.
        parameters: Their JSON schema.
    """

    name: str
    description: str
    fn_schema: type[BaseModel]
    parameters: dict[str, Any]

    @property
    def metadata(self) -> Self:
        """The tool itself, which has all attributes of metadata."""
        return self

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return self.parameters

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:  # noqa: ARG002 - the contract's
        """Return the tool in the form of OpenAI's API."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class UnfitError(Exception):
    """An answer does not fit; the message is sent to the model."""

    def __init__(self, problems: str, answer: str) -> None:
        super().__init__(problems)
        self.answer = answer


class Form(Generic[Model]):
    """The form of a structured answer.

    Args:
        output_cls: The class of the answer.

    Raises:
        TypeError: ``output_cls`` is not a pydantic model class.
    """

    def __init__(self, output_cls: type[Model]) -> None:
        given: Any = output_cls
        if not (isinstance(given, type) and issubclass(given, BaseModel)):
            raise TypeError(
                f"the output class is {output_cls!r}, and must be a subclass of pydantic's BaseModel; for a bare list "
                "or value write RootModel[...]"
            )
        self.output_cls = output_cls
        schema = output_cls.model_json_schema()
        self.title = str(schema.get("title", output_cls.__name__))
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", self.title)[:_LONGEST_NAME]
        self.description = str(schema.get("description") or "")
        self._bare = issubclass(output_cls, RootModel)
        self._take_schema(_in_object(schema) if self._bare else schema)

    def _take_schema(self, schema: dict[str, Any]) -> None:
        # All ways require an object.
        self.parameters = _without_reference(schema)

    @cached_property
    def native(self) -> OutputSchema | None:
        """The schema for vendors that enforce it, None when it has no strict form."""
        strict = strict_schema(self.parameters, nullable=False)
        if strict is None or strict.get("type") != "object":
            return None
        return OutputSchema(name=self.name, parameters=strict, description=self.description)

    @cached_property
    def tool(self) -> FormTool:
        """The form as a tool."""
        description = self.description or f"Gives the answer as {self.title}."
        return FormTool(self.name, description, self.output_cls, self.parameters)

    def with_schema(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return ``messages`` with the schema in the last message."""
        schema = json.dumps(self.parameters, ensure_ascii=False)
        instruction = TextBlock(
            text="Answer with one JSON object that fits the following JSON schema. Do not repeat the schema, and write "
            f"nothing but the object.\n\n{schema}"
        )
        if messages and messages[-1].role is MessageRole.USER:
            last = messages[-1].model_copy(update={"blocks": [*messages[-1].blocks, instruction]})
            return [*messages[:-1], last]
        return [*messages, ChatMessage(blocks=[instruction])]

    def partial(self, value: dict[str, Any]) -> PartialModel:
        """Return the partial answer in ``value``."""
        return partial_of(self.output_cls, value)

    def parse_value(self, value: dict[str, Any]) -> Model:
        """Return the instance for a JSON value.

        Raises:
            UnfitError: The value does not fit.
        """
        inner = value["root"] if self._bare and "root" in value else value
        return checked_as_json(inner, self.output_cls.model_validate, self.output_cls.model_validate_json)

    def parse_text(self, text: str) -> Model:
        """Return the instance in a text: the first fitting object with most names of the form.

        Raises:
            UnfitError: There is no fitting object.
        """
        names = set(self.parameters.get("properties", ()))
        found = list(objects_in(text))
        if not found:
            raise UnfitError("- there is no JSON object in it, or it cannot be read", text)
        most = max(len(names & one.keys()) for one in found)
        unfit: UnfitError | None = None
        for value in found:
            if len(names & value.keys()) == most:
                try:
                    return self.parse_value(value)
                except UnfitError as err:
                    unfit = unfit or err
        assert unfit is not None  # at least one object has the most names
        raise unfit

    def answer_call(self, calls: Sequence[ToolSelection]) -> ToolSelection | None:
        """Return the call with the answer: the first call of the form's tool, or the first call."""
        return next((call for call in calls if call.tool_name == self.name), calls[0] if calls else None)


def checked_as_json(value: Any, validate: Callable[[Any], T], validate_json: Callable[[bytes], T]) -> T:
    """Return the instance for a JSON value.

    Args:
        value: The value.
        validate: Validates a value that cannot be written as JSON.
        validate_json: Validates JSON.

    Raises:
        UnfitError: The value does not fit.
    """
    try:
        written = to_json(value)
    except ValueError:
        # Lone surrogates, or objects of any type from test doubles.
        written = None
    try:
        # Validated as JSON, because a strict model takes a date from JSON text but not from a Python string.
        return validate(value) if written is None else validate_json(written)
    except ValidationError as err:
        raise UnfitError(_problems(err), repr(value) if written is None else written.decode()) from err


def _in_object(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key not in {"$defs", "title", "description"}}
    made: dict[str, Any] = {"type": "object", "properties": {"root": inner}, "required": ["root"]}
    return {**made, **{key: schema[key] for key in ("title", "description", "$defs") if key in schema}}


def _without_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a recursive model as an object instead of a reference to itself."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    definitions = cast("dict[str, Any]", schema.get("$defs", {}))
    return {**definitions[name], "$defs": definitions} if name in definitions else schema


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    lines = [_problem(one) for one in found[:_MOST_PROBLEMS]]
    if len(found) > _MOST_PROBLEMS:
        lines.append(f"- and {len(found) - _MOST_PROBLEMS} more")
    return "\n".join(lines)


def _problem(error: Any) -> str:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    given = (
        "" if error["type"] == "missing" or not path else f" (given: {_short(repr(error['input']), _LONGEST_VALUE)})"
    )
    return f"- {path}: {error['msg']}{given}" if path else f"- {error['msg']}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


@dataclass(frozen=True)
class Outcome(Generic[Model]):
    """A structured answer.

    Args:
        output: The instance.
        response: Its response.
        usage: Tokens and cost of all attempts, None when the vendor does not send them.
    """

    output: Model
    response: ChatResponse
    usage: Usage | None


async def ask_until_it_fits(
    form: Form[Model],
    way: Way,
    messages: Sequence[ChatMessage],
    ask: Ask,
    calls_in: Callable[[ChatResponse], Sequence[ToolSelection]],
    *,
    retries: int,
    model: str,
) -> AsyncGenerator[PartialModel | Outcome[Model], None]:
    """Ask the model until its answer fits; yield the partial answers of ``ask``, and last the outcome.

    Args:
        form: The form of the answer.
        way: The way to the answer.
        messages: The conversation.
        ask: Sends a conversation.
        calls_in: Returns the calls of a response.
        retries: The number of retries after an answer that does not fit.
        model: The name of the model, for errors.

    Raises:
        RefusalError: The model refuses to answer, or the vendor's filter stopped the answer.
        NoToolCallError: The model answered with text instead of a tool call, and the text has no object.
        StructuredOutputError: The answer does not fit after all retries, or was cut at its limit of length.
    """
    conversation = form.with_schema(messages) if way == "llm" else list(messages)
    usage: Usage | None = None
    unfit: UnfitError | None = None
    for attempt in range(retries + 1):
        response = ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT))
        async with aclosing(ask(conversation)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResponse):
                    response = piece
                else:
                    yield piece
        if response.usage is not None:
            usage = response.usage if usage is None else usage + response.usage
        calls = calls_in(response) if way == "function" else ()
        if response.stop_reason in _REFUSED:
            said = _short(response.message.content or "nothing", _LONGEST_ANSWER)
            raise RefusalError(
                f"the model declines to answer as {form.title} ({response.stop_reason}): {said}", model=model
            )
        try:
            output = _read(form, way, response, calls)
            if calls and response.stop_reason == "length":  # a missing field may have a default
                raise UnfitError("the call is not whole", calls[-1].invalid_arguments or str(calls[-1].tool_kwargs))
        except UnfitError as err:
            unfit = err
            _check_whole(form, response, unfit, model)
            if attempt == retries and _is_words(way, response, calls):
                raise NoToolCallError(
                    f"the model was to call {form.name}, and answered with text: {response.message.content!r}. If it "
                    'cannot call tools, set pydantic_program_mode="llm"',
                    model=model,
                ) from None
            conversation = [*conversation, *_correction(form, way, response, calls, unfit)]
            continue
        yield Outcome(output, response, usage)
        return
    assert unfit is not None  # there was at least one attempt
    attempts = "1 attempt" if retries == 0 else f"{retries + 1} attempts"
    raise StructuredOutputError(
        f"the answer does not fit {form.title} after {attempts}:\n{unfit}\n"
        f"It was: {_short(unfit.answer, _LONGEST_ANSWER)}",
        model=model,
    ) from unfit.__cause__


def _read(form: Form[Model], way: Way, response: ChatResponse, calls: Sequence[ToolSelection]) -> Model:
    call = form.answer_call(calls) if way == "function" else None
    if call is None:
        # Some servers write the arguments as text instead of a call.
        return form.parse_text(response.message.content or "")
    return (
        form.parse_value(call.tool_kwargs)
        if call.invalid_arguments is None
        else form.parse_text(call.invalid_arguments)
    )


def _is_words(way: Way, response: ChatResponse, calls: Sequence[ToolSelection]) -> bool:
    """Return whether a required call is missing and the text is not an attempt to write its arguments."""
    return way == "function" and not calls and not (response.message.content or "").lstrip().startswith("{")


def _check_whole(form: Form[Any], response: ChatResponse, unfit: UnfitError, model: str) -> None:
    """Raise an error for an answer that was cut at its limit of length."""
    if response.stop_reason == "length":
        raise StructuredOutputError(
            f"the answer was cut at its limit of length before {form.title} was whole: raise max_tokens, or ask for "
            f"less. It was: {_short(unfit.answer, _LONGEST_ANSWER)}",
            model=model,
        ) from unfit.__cause__


def _correction(
    form: Form[Any], way: Way, response: ChatResponse, calls: Sequence[ToolSelection], unfit: UnfitError
) -> list[ChatMessage]:
    """Return the messages that follow: the answer, and its errors."""
    said = [response.message] if response.message.blocks or calls else []
    if way != "function":
        text = f"This does not fit the schema:\n{unfit}\nAnswer again with the whole JSON object, corrected."
        return [*said, ChatMessage(text)]
    if _is_words(way, response, calls) and "{" not in (response.message.content or ""):
        return [*said, ChatMessage(f"This is no answer here: call {form.name} with it.")]
    if not calls:  # the object was written as text
        text = f"This does not fit the schema:\n{unfit}\nCall {form.name} with all of it, corrected."
        return [*said, ChatMessage(text)]
    answer_call = form.answer_call(calls)
    wrong = f"The arguments do not fit the schema:\n{unfit}\nCall {form.name} again with all of them, corrected."
    other = f"Not looked at: one call of {form.name} is wanted."
    return [
        *said,
        *(
            ChatMessage(
                wrong if call is answer_call else other,
                role=MessageRole.TOOL,
                additional_kwargs={"tool_call_id": call.tool_id, "is_error": True},
            )
            for call in calls
        ),
    ]


# The name of the module with the methods, where handlers look for it.
_dispatcher = get_dispatcher("batonflow.llms.predicting")


class StructuredModel(Protocol):
    """The members of a model that structured output needs."""

    pydantic_program_mode: Any
    structured_retries: int

    @property
    def metadata(self) -> LLMMetadata: ...

    @property
    def native_output_schema(self) -> bool: ...

    async def achat(self, messages: Sequence[ChatMessage], /, **kwargs: Any) -> ChatResponse: ...

    async def astream_chat(self, messages: Sequence[ChatMessage], /, **kwargs: Any) -> ChatResponseAsyncGen: ...


_ValueSoFar = Callable[[ChatResponse], dict[str, Any] | None]
_WatchedCalls = Callable[[list[ChatMessage], dict[str, Any], Watch], ChatResponseAsyncGen | None]


async def stream_pieces(
    llm: StructuredModel,
    output_cls: type[Model],
    messages: Sequence[ChatMessage],
    options: dict[str, Any],
    watched_calls: _WatchedCalls,
    *,
    stream: bool,
    marks_end: bool,
    template: Any = None,
    args: dict[str, Any] | None = None,
) -> AsyncGenerator[PartialModel | Outcome[Model], None]:
    """Yield partial models if streamed, then the outcome of a structured answer.

    Args:
        llm: The model.
        output_cls: The class of the answer.
        messages: The conversation.
        options: Options of the call.
        watched_calls: Opens a response with tools whose stream events can be watched; returns None without one.
        stream: Whether to yield partial models.
        marks_end: Whether the last chunk of a stream is only a mark without content.
        template: The prompt, for traces.
        args: The values of the prompt, for traces.
    """
    form = Form(output_cls)
    way = _way(llm, form)
    asking = _Requests(llm, form, way, options, watched_calls, marks_end)
    if _dispatcher.enabled:
        _dispatcher.event(
            events.llm.LLMStructuredPredictStartEvent(output_cls=output_cls, template=template, template_args=args)
        )
    found = ask_until_it_fits(
        form,
        way,
        messages,
        asking.pieces if stream else asking.whole,
        asking.calls_in,
        retries=llm.structured_retries,
        model=llm.metadata.model_name,
    )
    async with aclosing(found):
        async for piece in found:
            if _dispatcher.enabled:
                _dispatcher.event(
                    events.llm.LLMStructuredPredictEndEvent(output=piece.output)
                    if isinstance(piece, Outcome)
                    else events.llm.LLMStructuredPredictInProgressEvent(output=piece)
                )
            yield piece


async def last_output(pieces: AsyncGenerator[PartialModel | Outcome[Model], None]) -> Model:
    """Return the output of the outcome."""
    outcome: Outcome[Model] | None = None
    async for piece in pieces:
        if isinstance(piece, Outcome):
            outcome = piece
    assert outcome is not None  # it ends with an outcome or an error
    return outcome.output


async def outputs(
    pieces: AsyncGenerator[PartialModel | Outcome[Model], None],
) -> AsyncGenerator[Model | PartialModel, None]:
    """Yield the partial models and the output."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece.output if isinstance(piece, Outcome) else piece


class _Requests:
    """The requests to a model in the chosen way."""

    def __init__(
        self,
        llm: StructuredModel,
        form: Form[Any],
        way: Way,
        options: dict[str, Any],
        watched_calls: _WatchedCalls,
        marks_end: bool,
    ) -> None:
        self._llm = llm
        self._watched_calls = watched_calls
        self._marks_end = marks_end
        self._form = form
        self._way: Way = way
        self._options = options
        if way == "native":
            self._options = {**options, "output_schema": form.native}
        elif way == "function":
            self._options = {**options, "tools": [form.tool], "tool_required": True}

    def calls_in(self, response: ChatResponse) -> Sequence[ToolSelection]:
        """Return the tool calls of a response."""
        override: Any = getattr(self._llm, "get_tool_calls_from_response", None)
        if override is None:
            return tool_selections(response.message)
        return cast("Sequence[ToolSelection]", override(response, error_on_no_tool_call=False))

    async def whole(self, messages: list[ChatMessage]) -> AsyncGenerator[PartialModel | ChatResponse, None]:
        """Yield the whole response."""
        if self._way == "function":
            yield await cast("Any", self._llm).achat_with_tools(chat_history=messages, **self._options)
        else:
            yield await self._llm.achat(messages, **self._options)

    async def pieces(self, messages: list[ChatMessage]) -> AsyncGenerator[PartialModel | ChatResponse, None]:
        """Yield partial models, and last the response."""
        responses, so_far, marks_end = await self._opened(messages)
        response, waiting = ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT)), None
        async with closed_after(responses):
            async for response in responses:
                if waiting is not None:
                    yield waiting
                value = so_far(response)
                waiting = None if value is None else self._form.partial(value)
                # Without an end mark the last chunk may be the whole answer, which is not shown as a partial model.
                if waiting is not None and marks_end:
                    yield waiting
                    waiting = None
        yield response

    async def _opened(self, messages: list[ChatMessage]) -> tuple[ChatResponseAsyncGen, _ValueSoFar, bool]:
        """Open the stream. Return it with a function for the object so far, and whether it marks its end."""
        growing = ArrivingObject()
        if self._way != "function":
            responses = await self._llm.astream_chat(messages, **self._options)
            return responses, lambda response: growing.add(response.delta or "").next_value(), self._marks_end
        watched = self._watched_calls(messages, self._options, _arguments_into(growing))
        if watched is not None:
            return watched, lambda _: growing.next_value(), True
        with_tools = cast("Any", self._llm).astream_chat_with_tools
        return await with_tools(chat_history=messages, **self._options), self._arguments_so_far(), False

    def _arguments_so_far(self) -> _ValueSoFar:
        last: dict[str, Any] = {}

        def so_far(response: ChatResponse) -> dict[str, Any] | None:
            nonlocal last
            call = self._form.answer_call(self.calls_in(response))
            if call is None or call.tool_kwargs == last:
                return None
            last = call.tool_kwargs
            return last

        return so_far


def _way(llm: StructuredModel, form: Form[Any]) -> Way:
    """Return the way of ``pydantic_program_mode``, by default the best way of the model."""
    given = llm.pydantic_program_mode
    try:
        # Programs may use an enum of their own with the same values.
        mode = PydanticProgramMode(getattr(given, "value", given) or "default")
    except ValueError:
        mode = None
    takes_tools = llm.metadata.is_function_calling_model and hasattr(llm, "achat_with_tools")
    native = llm.native_output_schema and form.native is not None
    match mode:
        case PydanticProgramMode.DEFAULT:
            return "native" if native else "function" if takes_tools else "llm"
        case PydanticProgramMode.NATIVE if native:
            return "native"
        case PydanticProgramMode.FUNCTION | PydanticProgramMode.OPENAI if takes_tools:
            return "function"
        case PydanticProgramMode.LLM:
            return "llm"
        case PydanticProgramMode.NATIVE if llm.native_output_schema:
            reason = f"the schema of {form.title} has no strict form (free keys, for instance)"
        case PydanticProgramMode.NATIVE:
            reason = "the vendor cannot enforce a schema"
        case PydanticProgramMode.FUNCTION | PydanticProgramMode.OPENAI:
            reason = "the model does not take tools"
        case _:
            reason = "this mode is not supported"
    raise LLMConfigurationError(
        f"pydantic_program_mode is {getattr(given, 'value', given)!r}, but {reason}; leave it at 'default' for the "
        "best way there is, or set one of native, function, llm",
        model=llm.metadata.model_name,
    )


def _arguments_into(growing: ArrivingObject) -> Watch:
    """Return a watcher that adds the arguments of the first call to ``growing``."""
    first: int | None = None

    def watch(event: StreamEvent) -> None:
        nonlocal first
        if isinstance(event, ToolCallDelta):
            first = event.index if first is None else first
            if event.index == first:
                growing.add(event.arguments)

    return watch

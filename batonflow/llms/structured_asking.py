"""Asks a model for an answer in a form, by the best way that it has."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from batonflow.instrumentation import get_dispatcher
from batonflow.lazy import at_first_use
from batonflow.llms.closing import closed_after
from batonflow.llms.errors import LLMConfigurationError
from batonflow.llms.messages import ChatMessage, ChatResponse, ChatResponseAsyncGen, MessageRole
from batonflow.llms.partial import GrowingObject, PartialModel
from batonflow.llms.predicting import Predicting, Watch
from batonflow.llms.stream import StreamEvent, ToolCallDelta
from batonflow.llms.structured import Form, Outcome, Way, ask_until_it_fits
from batonflow.llms.tool_protocol import ToolSelection, tool_selections
from batonflow.llms.types import Model, PydanticProgramMode

__all__ = ["last_output", "outputs", "pieces"]

# Of the module that is asked.
_dispatcher = get_dispatcher("batonflow.llms.predicting")

# Nobody needs the events of traces before there is somebody to tell.
_EVENTS = "batonflow.instrumentation.events.llm"
LLMStructuredPredictEndEvent = at_first_use(_EVENTS, "LLMStructuredPredictEndEvent")
LLMStructuredPredictInProgressEvent = at_first_use(_EVENTS, "LLMStructuredPredictInProgressEvent")
LLMStructuredPredictStartEvent = at_first_use(_EVENTS, "LLMStructuredPredictStartEvent")

_SoFar = Callable[[ChatResponse], dict[str, Any] | None]
_WatchedCalls = Callable[[list[ChatMessage], dict[str, Any], Watch], ChatResponseAsyncGen | None]


async def pieces(
    llm: Predicting,
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
    """The answer to ``messages`` in the form of ``output_cls``: partial models if streamed, then the outcome.

    Args:
        llm: Who is asked.
        output_cls: What the answer is to be an instance of.
        messages: The conversation.
        options: Of the call.
        watched_calls: Opens an answer with tools whose stream can be watched; gives None when it cannot.
        stream: Whether partial models are wanted.
        marks_end: Whether the end of an answer is told apart from its last piece.
        template: The prompt, for traces.
        args: Its values, for traces.
    """
    form = Form(output_cls)
    way = _way(llm, form)
    asking = _Asking(llm, form, way, options, watched_calls, marks_end)
    if _dispatcher.enabled:
        _dispatcher.event(LLMStructuredPredictStartEvent(output_cls=output_cls, template=template, template_args=args))
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
                    LLMStructuredPredictEndEvent(output=piece.output)
                    if isinstance(piece, Outcome)
                    else LLMStructuredPredictInProgressEvent(output=piece)
                )
            yield piece


async def last_output(pieces: AsyncGenerator[PartialModel | Outcome[Model], None]) -> Model:
    """What an answer ends with."""
    outcome: Outcome[Model] | None = None
    async for piece in pieces:
        if isinstance(piece, Outcome):
            outcome = piece
    assert outcome is not None  # it ends with an outcome or an error
    return outcome.output


async def outputs(
    pieces: AsyncGenerator[PartialModel | Outcome[Model], None],
) -> AsyncGenerator[Model | PartialModel, None]:
    """What pieces of an answer hold."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece.output if isinstance(piece, Outcome) else piece


class _Asking:
    """Asks a model for an answer in a form, by the way chosen."""

    def __init__(
        self,
        llm: Predicting,
        form: Form[Any],
        way: Way,
        options: dict[str, Any],
        watched_calls: Callable[[list[ChatMessage], dict[str, Any], Watch], ChatResponseAsyncGen | None],
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
        """The calls in a response."""
        own: Any = getattr(self._llm, "get_tool_calls_from_response", None)
        if own is None:
            return tool_selections(response.message)
        return cast("Sequence[ToolSelection]", own(response, error_on_no_tool_call=False))

    async def whole(self, messages: list[ChatMessage]) -> AsyncGenerator[PartialModel | ChatResponse, None]:
        """The response."""
        if self._way == "function":
            yield await cast("Any", self._llm).achat_with_tools(chat_history=messages, **self._options)
        else:
            yield await self._llm.achat(messages, **self._options)

    async def pieces(self, messages: list[ChatMessage]) -> AsyncGenerator[PartialModel | ChatResponse, None]:
        """Partial models, and last the response."""
        responses, so_far, marks_end = await self._opened(messages)
        response, waiting = ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT)), None
        async with closed_after(responses):
            async for response in responses:
                if waiting is not None:
                    yield waiting
                value = so_far(response)
                waiting = None if value is None else self._form.partial(value)
                # Where no end is marked the last piece may be the whole answer, of which there is no part to show.
                if waiting is not None and marks_end:
                    yield waiting
                    waiting = None
        yield response

    async def _opened(self, messages: list[ChatMessage]) -> tuple[ChatResponseAsyncGen, _SoFar, bool]:
        """The answer in pieces, what tells the object so far if a piece shows more of it, and whether the end shows."""
        growing = GrowingObject()
        if self._way != "function":
            responses = await self._llm.astream_chat(messages, **self._options)
            return responses, lambda response: growing.add(response.delta or "").news(), self._marks_end
        watched = self._watched_calls(messages, self._options, _arguments_into(growing))
        if watched is not None:
            return watched, lambda _: growing.news(), True
        with_tools = cast("Any", self._llm).astream_chat_with_tools
        return await with_tools(chat_history=messages, **self._options), self._arguments_so_far(), False

    def _arguments_so_far(self) -> _SoFar:
        shown: dict[str, Any] = {}

        def so_far(response: ChatResponse) -> dict[str, Any] | None:
            nonlocal shown
            call = self._form.chosen(self.calls_in(response))
            if call is None or call.tool_kwargs == shown:
                return None
            shown = call.tool_kwargs
            return shown

        return so_far


def _way(llm: Predicting, form: Form[Any]) -> Way:
    """The best way to ``form``, or the one that ``pydantic_program_mode`` says."""
    given = llm.pydantic_program_mode
    try:
        # Programs have enums of their own with the same words.
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
            reason = "the model cannot be held to a schema"
        case PydanticProgramMode.FUNCTION | PydanticProgramMode.OPENAI:
            reason = "the model does not take tools"
        case _:
            reason = "there is no such way here"
    raise LLMConfigurationError(
        f"pydantic_program_mode is {getattr(given, 'value', given)!r}, but {reason}; leave it at 'default' for the "
        "best way there is, or set one of native, function, llm",
        model=llm.metadata.model_name,
    )


def _arguments_into(growing: GrowingObject) -> Watch:
    """Puts the arguments of the first call into ``growing``."""
    first: int | None = None

    def watch(event: StreamEvent) -> None:
        nonlocal first
        if isinstance(event, ToolCallDelta):
            first = event.index if first is None else first
            if event.index == first:
                growing.add(event.arguments)

    return watch

"""Spans and events of model calls: the start, each chunk of the response, and the end.

Methods of a model call one another: ``achat`` may derive from ``astream_chat``, and an override of ``chat`` calls the
overridden method. Every method can report, but only the outermost call does.
"""

import inspect
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from inspect import Parameter, Signature
from typing import Any, NamedTuple, TypeVar, cast

from batonflow.clock import current_source
from batonflow.instrumentation import active_span_id, events, get_dispatcher
from batonflow.instrumentation.context import undo
from batonflow.instrumentation.events.base import BaseEvent, ExceptionEvent
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import genai
from batonflow.llms._bridge import closed_after
from batonflow.llms.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.messages import ChatMessage, ChatResponse, ChatResponseAsyncGen, MessageRole
from batonflow.llms.stream import ChatRequest, ModelCall, request_as_call
from batonflow.llms.tool_protocol import ToolSpec

__all__ = [
    "CHAT",
    "COMPLETION",
    "CallKind",
    "TracedCall",
    "answer_tags",
    "dispatcher",
    "is_traced",
    "llm_chat_callback",
    "llm_completion_callback",
    "open_untraced",
    "request_tags",
    "trace_responses",
    "traced_method",
    "without_header_options",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

# The name of the module that defines the methods, which handlers look for.
dispatcher = get_dispatcher("batonflow.llms.base")

# Options that are not reported, because they may contain keys.
_MAY_HOLD_KEYS = ("extra_headers", "extra_query")

_END: Any = object()


class CallKind(NamedTuple):
    """A kind of call to a model, with the events that report it.

    Args:
        argument: The argument that holds the input of the model; the events have a field of the same name.
        prefix: The common prefix of the event classes.
    """

    argument: str
    prefix: str

    def event(self, stage: str, **values: Any) -> BaseEvent:
        """Return the event of a stage of the call: ``Start``, ``InProgress`` or ``End``."""
        return getattr(events.llm, f"{self.prefix}{stage}Event")(**values)


CHAT = CallKind("messages", "LLMChat")
COMPLETION = CallKind("prompt", "LLMCompletion")

# The calls that contain the running code. The models are kept as objects, because the id of a deleted model may be
# reused.
_calls: ContextVar[tuple[tuple[Any, CallKind], ...]] = ContextVar("batonflow_traced_calls", default=())


def without_header_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call without the ones that may contain keys."""
    return {name: value for name, value in options.items() if name not in _MAY_HOLD_KEYS}


def is_traced(llm: Any, kind: CallKind) -> bool:
    """Return whether the running code is inside a reported call of this kind to this model."""
    return any(one is llm and of is kind for one, of in _calls.get())


@contextmanager
def _inside(llm: Any, kind: CallKind) -> Generator[None, None, None]:
    token = _calls.set((*_calls.get(), (llm, kind)))
    try:
        yield
    finally:
        undo(token)


async def _each_inside(llm: Any, kind: CallKind, items: AsyncIterable[_T]) -> AsyncGenerator[_T, None]:
    """Yield the items inside the call; the consumer's work between items stays outside it."""
    source = aiter(items)
    async with closed_after(source):
        while True:
            with _inside(llm, kind):
                item = await anext(source, _END)
            if item is _END:
                return
            yield item


async def open_untraced(
    llm: Any, kind: CallKind, opened: Callable[[], Awaitable[AsyncIterator[_T]]]
) -> AsyncGenerator[_T, None]:
    """Open a stream of a model without reporting the call again.

    Args:
        llm: The model.
        kind: The kind of the call.
        opened: Opens the stream.
    """
    with _inside(llm, kind):
        items = await opened()
    return _each_inside(llm, kind, items)


class TracedCall:
    """A call that is reported to handlers; creating it reports the start.

    Args:
        kind: The kind of the call.
        llm: The model.
        given: The messages or the prompt.
        options: The other arguments of the call.
        span_id: The span of the events; by default the active one.
    """

    __slots__ = ("_about", "_kind", "_llm")

    def __init__(
        self, kind: CallKind, llm: Any, given: Any, options: Mapping[str, Any], span_id: str | None = None
    ) -> None:
        self._kind = kind
        self._llm = llm
        # The span is fixed at the start, because chunks may be consumed in another span.
        self._about = {kind.argument: given, "span_id": span_id or active_span_id.get()}
        reported_options = without_header_options(options)
        dispatcher.event(
            kind.event("Start", **self._about, additional_kwargs=reported_options, model_dict=llm.to_payload())
        )

    def report_chunk(self, response: Any) -> None:
        """Report a chunk of the response."""
        if dispatcher.tells_pieces:
            dispatcher.event(self._kind.event("InProgress", **self._about, response=response))

    def report_end(self, response: Any) -> None:
        """Report the end of the call, with the response or its last chunk."""
        dispatcher.event(self._kind.event("End", **self._about, response=response))

    def report_failure(self, err: BaseException) -> None:
        """Report that the call failed or stopped early."""
        dispatcher.event(ExceptionEvent(exception=err, span_id=self._about["span_id"]))

    def run(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` and report its result: a response, a stream, or an awaitable of either."""
        with self._reporting_failures(), _inside(self._llm, self._kind):
            result = function()
        return self._report(result)

    def _report(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            return self._report_awaitable(result)
        if isinstance(result, AsyncIterable):
            return self._report_stream(cast("AsyncIterable[Any]", result))
        if isinstance(result, Iterator):
            return self._report_iterator(cast("Iterator[Any]", result))
        self.report_end(result)
        return result

    async def _report_awaitable(self, result: Awaitable[Any]) -> Any:
        with self._reporting_failures(), _inside(self._llm, self._kind):
            made = await result
        return self._report(made)

    async def _report_stream(self, items: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
        last = None
        with self._reporting_failures():
            async with aclosing(_each_inside(self._llm, self._kind, items)) as responses:
                async for last in responses:
                    self.report_chunk(last)
                    yield last
        self.report_end(last)

    def _report_iterator(self, items: Iterator[Any]) -> Generator[Any, None, None]:
        last = None
        with self._reporting_failures():
            try:
                while True:
                    with _inside(self._llm, self._kind):
                        item = next(items, _END)
                    if item is _END:
                        break
                    last = item
                    self.report_chunk(last)
                    yield last
            finally:
                if isinstance(items, Generator):
                    items.close()
        self.report_end(last)

    @contextmanager
    def _reporting_failures(self) -> Generator[None, None, None]:
        try:
            yield
        except BaseException as err:
            self.report_failure(err)
            raise


def traced_method(kind: CallKind, function: _F) -> _F:
    """Return a method of a model with every call reported. Without handlers the method is called directly.

    Args:
        kind: The kind of the calls.
        function: A function or generator function, sync or async.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(llm: Any, *args: Any, **kwargs: Any) -> Any:
            if not dispatcher.enabled:
                return await function(llm, *args, **kwargs)
            call = _start_call(kind, llm, args, kwargs)
            made = partial(function, llm, *args, **kwargs)
            return await (made() if call is None else call.run(made))

        return cast("_F", awaited)

    @wraps(function)
    def called(llm: Any, *args: Any, **kwargs: Any) -> Any:
        if not dispatcher.enabled:
            return function(llm, *args, **kwargs)
        call = _start_call(kind, llm, args, kwargs)
        made = partial(function, llm, *args, **kwargs)
        return made() if call is None else call.run(made)

    return cast("_F", called)


def _start_call(kind: CallKind, llm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall | None:
    """Return the new call, or None inside a reported call."""
    if is_traced(llm, kind):
        return None
    given = args[0] if args else kwargs.get(kind.argument)
    if kind is COMPLETION:
        given = str(given)
    else:
        # The method itself raises the error for an argument of a wrong type.
        given = list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]
    return TracedCall(kind, llm, given, {name: value for name, value in kwargs.items() if name != kind.argument})


# The signature of achat and similar methods, also for models with other signatures.
_OF_CHAT = Signature([
    Parameter("messages", Parameter.POSITIONAL_OR_KEYWORD),
    Parameter("kwargs", Parameter.VAR_KEYWORD),
])  # fmt: skip


async def trace_responses(
    responses: ChatResponseAsyncGen, llm: Any, request: ChatRequest, kwargs: dict[str, Any], asked: str
) -> ChatResponseAsyncGen:
    """Yield the responses inside a span, and report the call unless it is part of a reported one.

    Args:
        responses: The responses of the model's stream.
        llm: The model.
        request: The request.
        kwargs: The other arguments of the call.
        asked: The called method of the model.
    """
    source = current_source()
    began, first_chunk = source.monotonic(), None
    given = _OF_CHAT.bind(request.messages, **without_header_options(kwargs)) if dispatcher.tells_arguments else None
    asked_call = request_as_call(llm, request)
    name = f"{type(llm).__name__}.{asked}"
    span_id = dispatcher.open_span(name, instance=llm, bound_args=given, tags=request_tags(asked_call))
    call = None if is_traced(llm, CHAT) else TracedCall(CHAT, llm, list(request.messages), kwargs, span_id)
    # A call that returns the whole response reports no chunks.
    in_pieces = call if asked in {"astream_chat", "stream_chat"} else None
    response: ChatResponse | None = None
    try:
        async with aclosing(responses):
            async for response in responses:
                if first_chunk is None:
                    first_chunk = source.monotonic() - began
                if in_pieces is not None:
                    in_pieces.report_chunk(response)
                yield response
    except BaseException as err:
        if call is not None:
            call.report_failure(err)
        if isinstance(err, GeneratorExit):
            # The consumer stopped early, which is not an error.
            dispatcher.close_span(span_id, response, llm, given)
        else:
            dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
            dispatcher.fail_span(span_id, err, llm, given)
        raise
    if response is not None:
        dispatcher.tag_span(span_id, answer_tags(asked_call.answered(response, first_chunk)))
    if call is not None:
        call.report_end(response)
    dispatcher.close_span(span_id, response, llm, given)


_REQUEST_OPTIONS = {
    "max_tokens": genai.REQUEST_MAX_TOKENS,
    "temperature": genai.REQUEST_TEMPERATURE,
    "top_p": genai.REQUEST_TOP_P,
    "top_k": genai.REQUEST_TOP_K,
    "seed": genai.REQUEST_SEED,
    "frequency_penalty": genai.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": genai.REQUEST_PRESENCE_PENALTY,
}


def request_tags(call: ModelCall) -> dict[str, Any]:
    """Return the tags for the start of a model's span.

    Args:
        call: The request, as a call without an answer.
    """
    tags: dict[str, Any] = {
        "model": call.model,
        genai.OPERATION: "chat",
        genai.PROVIDER: call.vendor,
        genai.REQUEST_MODEL: call.model,
    }
    for option, name in _REQUEST_OPTIONS.items():
        if isinstance(given := call.options.get(option), int | float):
            tags[name] = given
    if genai.captures_content():
        tags[genai.INPUT_MESSAGES] = json.dumps([redacted(_message_parts(message)) for message in call.messages])
        system = [message for message in call.messages if message.role == MessageRole.SYSTEM]
        if system:
            parts = [part for message in system for part in _message_parts(message)["parts"]]
            tags[genai.SYSTEM_INSTRUCTIONS] = json.dumps(redacted(parts))
        if call.tool_specs:
            tags[genai.TOOL_DEFINITIONS] = json.dumps([redacted(_tool_definition(tool)) for tool in call.tool_specs])
    return tags


def answer_tags(call: ModelCall) -> dict[str, Any]:
    """Return the tags for the end of a model's span.

    Args:
        call: The call with its answer.
    """
    found: dict[str, Any] = {
        genai.RESPONSE_MODEL: call.model,
        genai.RESPONSE_ID: call.request_id,
        genai.FINISH_REASONS: None if call.finish is None else [call.finish],
        genai.TIME_TO_FIRST_CHUNK: call.first,
    }
    usage = call.usage
    if usage is not None:
        found |= {
            genai.INPUT_TOKENS: usage.input_tokens,
            genai.OUTPUT_TOKENS: usage.output_tokens,
            genai.CACHED_TOKENS: usage.cached_tokens or None,
            genai.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
            genai.REASONING_TOKENS: usage.reasoning_tokens or None,
            genai.COST: usage.cost,
        }
    if genai.captures_content() and call.answer is not None:
        said = {**_message_parts(call.answer), "finish_reason": call.finish or ""}
        found[genai.OUTPUT_MESSAGES] = json.dumps([redacted(said)])
    return {name: value for name, value in found.items() if value is not None}


def _message_parts(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the form of the conventions."""
    parts = [_part(block) for block in message.blocks]
    if message.role == MessageRole.TOOL:
        call = message.additional_kwargs.get("tool_call_id")
        parts = [{"type": "tool_call_response", "id": call, "response": message.content or ""}]
    return {"role": message.role.value, "parts": parts}


def _tool_definition(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _part(block: ContentBlock) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "content": text}
        case ThinkingBlock(content=thought):
            return {"type": "reasoning", "content": thought or ""}
        case ToolCallBlock(tool_call_id=number, tool_name=name, tool_kwargs=arguments):
            return {"type": "tool_call", "id": number, "name": name, "arguments": arguments}
        case _:  # only the type of images and other media, not the data
            return {"type": block.block_type}


def llm_chat_callback() -> Callable[[_F], _F]:
    """Decorate ``chat``, ``achat``, ``stream_chat`` or ``astream_chat`` so that handlers receive each call.

    Handlers receive LLMChatStartEvent, LLMChatInProgressEvent for each chunk of a stream, and LLMChatEndEvent, or
    ExceptionEvent when the call fails or its stream is left early. Calls of the method to its own model are not
    reported again. Without handlers a call costs a truth test.

    Example:
        >>> class Mine(LLM):
        ...     @llm_chat_callback()
        ...     def chat(self, messages, **kwargs): ...
    """
    return partial(traced_method, CHAT)


def llm_completion_callback() -> Callable[[_F], _F]:
    """Decorate ``complete``, ``acomplete``, ``stream_complete`` or ``astream_complete``.

    Handlers receive LLMCompletionStartEvent, LLMCompletionInProgressEvent, LLMCompletionEndEvent and ExceptionEvent.

    Example:
        >>> class Mine(CustomLLM):
        ...     @llm_completion_callback()
        ...     def complete(self, prompt, formatted=False, **kwargs): ...
    """
    return partial(traced_method, COMPLETION)

"""Tells handlers of the calls of models: that one begins, each piece of its answer, and how it ends.

Methods of a model ask one another: ``achat`` may be made of ``astream_chat``, an override of ``chat`` calls the one
that it overrides. Any of them may be what a program calls, so any of them can tell, and only the outermost does.
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
from batonflow.llms.stream import ChatRequest, ToolSpec

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

# By the name of the module in which calls are made, where handlers look for it.
dispatcher = get_dispatcher("batonflow.llms.base")

# Options of a call that listeners are not told.
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

# The calls that the running code is a part of. The models themselves are kept: the id of one that is gone may be
# another's.
_calls: ContextVar[tuple[tuple[Any, CallKind], ...]] = ContextVar("batonflow_told_calls", default=())


def without_header_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call but for those that may hold keys."""
    return {name: value for name, value in options.items() if name not in _MAY_HOLD_KEYS}


def is_traced(llm: Any, kind: CallKind) -> bool:
    """Whether the running code is a part of a call of that kind to that model, which is told of already."""
    return any(one is llm and of is kind for one, of in _calls.get())


@contextmanager
def _part_of(llm: Any, kind: CallKind) -> Generator[None, None, None]:
    token = _calls.set((*_calls.get(), (llm, kind)))
    try:
        yield
    finally:
        undo(token)


async def _each_part_of(llm: Any, kind: CallKind, items: AsyncIterable[_T]) -> AsyncGenerator[_T, None]:
    """The items, each of which is made as a part of the call; what is done with it is none."""
    source = aiter(items)
    async with closed_after(source):
        while True:
            with _part_of(llm, kind):
                item = await anext(source, _END)
            if item is _END:
                return
            yield item


async def open_untraced(
    llm: Any, kind: CallKind, opened: Callable[[], Awaitable[AsyncIterator[_T]]]
) -> AsyncGenerator[_T, None]:
    """Open a stream of a model of which somebody else tells.

    Args:
        llm: The model.
        kind: What it is asked for.
        opened: Opens the stream.
    """
    with _part_of(llm, kind):
        items = await opened()
    return _each_part_of(llm, kind, items)


class TracedCall:
    """A call that is told of, from its beginning.

    Args:
        kind: What the model is asked for.
        llm: The model.
        given: The messages or the prompt.
        options: The other arguments of the call.
        span_id: The span that the events belong to; the active one by default.
    """

    __slots__ = ("_about", "_kind", "_llm")

    def __init__(
        self, kind: CallKind, llm: Any, given: Any, options: Mapping[str, Any], span_id: str | None = None
    ) -> None:
        self._kind = kind
        self._llm = llm
        # Of the beginning, as what comes later may be read in another span.
        self._about = {kind.argument: given, "span_id": span_id or active_span_id.get()}
        options_shown = without_header_options(options)
        dispatcher.event(
            kind.event("Start", **self._about, additional_kwargs=options_shown, model_dict=llm.to_payload())
        )

    def piece(self, response: Any) -> None:
        """A piece of the answer has come."""
        if dispatcher.tells_pieces:
            dispatcher.event(self._kind.event("InProgress", **self._about, response=response))

    def end(self, response: Any) -> None:
        """The answer is whole; ``response`` is it, or the last piece of it."""
        dispatcher.event(self._kind.event("End", **self._about, response=response))

    def failed(self, err: BaseException) -> None:
        """There will be no answer, or no more of it."""
        dispatcher.event(ExceptionEvent(exception=err, span_id=self._about["span_id"]))

    def answered(self, function: Callable[[], Any]) -> Any:
        """What ``function`` gives, which makes the answer: whole, in pieces, or to be awaited for either."""
        with self._failures(), _part_of(self._llm, self._kind):
            result = function()
        return self._followed(result)

    def _followed(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            return self._awaited(result)
        if isinstance(result, AsyncIterable):
            return self._pieces(cast("AsyncIterable[Any]", result))
        if isinstance(result, Iterator):
            return self._pieces_sync(cast("Iterator[Any]", result))
        self.end(result)
        return result

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        with self._failures(), _part_of(self._llm, self._kind):
            made = await result
        return self._followed(made)

    async def _pieces(self, items: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
        last = None
        with self._failures():
            async with aclosing(_each_part_of(self._llm, self._kind, items)) as responses:
                async for last in responses:
                    self.piece(last)
                    yield last
        self.end(last)

    def _pieces_sync(self, items: Iterator[Any]) -> Generator[Any, None, None]:
        last = None
        with self._failures():
            try:
                while True:
                    with _part_of(self._llm, self._kind):
                        item = next(items, _END)
                    if item is _END:
                        break
                    last = item
                    self.piece(last)
                    yield last
            finally:
                if isinstance(items, Generator):
                    items.close()
        self.end(last)

    @contextmanager
    def _failures(self) -> Generator[None, None, None]:
        try:
            yield
        except BaseException as err:
            self.failed(err)
            raise


def traced_method(kind: CallKind, function: _F) -> _F:
    """``function``, a method of a model, told of as a call of that kind. With nobody listening it is called as it is.

    Args:
        kind: What the method is called for.
        function: Plain or asynchronous, a generator or not.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(llm: Any, *args: Any, **kwargs: Any) -> Any:
            if not dispatcher.enabled:
                return await function(llm, *args, **kwargs)
            call = _begun(kind, llm, args, kwargs)
            made = partial(function, llm, *args, **kwargs)
            return await (made() if call is None else call.answered(made))

        return cast("_F", awaited)

    @wraps(function)
    def called(llm: Any, *args: Any, **kwargs: Any) -> Any:
        if not dispatcher.enabled:
            return function(llm, *args, **kwargs)
        call = _begun(kind, llm, args, kwargs)
        made = partial(function, llm, *args, **kwargs)
        return made() if call is None else call.answered(made)

    return cast("_F", called)


def _begun(kind: CallKind, llm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall | None:
    """The call that a method was called for; None for a part of one."""
    if is_traced(llm, kind):
        return None
    given = args[0] if args else kwargs.get(kind.argument)
    if kind is COMPLETION:
        given = str(given)
    else:
        # What is no conversation is the method's to refuse.
        given = list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]
    return TracedCall(kind, llm, given, {name: value for name, value in kwargs.items() if name != kind.argument})


# Of achat and its like, whatever a model asks besides of those who call its own.
_OF_CHAT = Signature([
    Parameter("messages", Parameter.POSITIONAL_OR_KEYWORD),
    Parameter("kwargs", Parameter.VAR_KEYWORD),
])  # fmt: skip


async def trace_responses(
    responses: ChatResponseAsyncGen, llm: Any, model: str, request: ChatRequest, kwargs: dict[str, Any], asked: str
) -> ChatResponseAsyncGen:
    """The responses, with a span around them, and told of unless a call is that they are a part of.

    Args:
        responses: What the model's stream adds up to.
        llm: The model.
        model: Its name.
        request: What it is asked.
        kwargs: The other arguments of the call.
        asked: The method of the model that is made of them.
    """
    source = current_source()
    began, first_chunk = source.monotonic(), None
    given = _OF_CHAT.bind(request.messages, **without_header_options(kwargs)) if dispatcher.tells_arguments else None
    name, tags = f"{type(llm).__name__}.{asked}", request_tags(llm, model, request)
    span_id = dispatcher.open_span(name, instance=llm, bound_args=given, tags=tags)
    call = None if is_traced(llm, CHAT) else TracedCall(CHAT, llm, list(request.messages), kwargs, span_id)
    # Of an answer that is asked for as a whole there are no pieces to tell of.
    in_pieces = call if asked in {"astream_chat", "stream_chat"} else None
    response: ChatResponse | None = None
    try:
        async with aclosing(responses):
            async for response in responses:
                if first_chunk is None:
                    first_chunk = source.monotonic() - began
                if in_pieces is not None:
                    in_pieces.piece(response)
                yield response
    except BaseException as err:
        if call is not None:
            call.failed(err)
        if isinstance(err, GeneratorExit):
            # Whoever reads has had enough; nothing went wrong.
            dispatcher.close_span(span_id, response, llm, given)
        else:
            dispatcher.tag_span(span_id, {genai.ERROR_TYPE: type(err).__name__})
            dispatcher.fail_span(span_id, err, llm, given)
        raise
    if response is not None:
        dispatcher.tag_span(span_id, answer_tags(response, first_chunk))
    if call is not None:
        call.end(response)
    dispatcher.close_span(span_id, response, llm, given)


def request_tags(llm: Any, model: str, request: ChatRequest) -> dict[str, Any]:
    """Tags for the beginning of a model's span.

    Args:
        llm: The model.
        model: Its name.
        request: What it is asked.
    """
    tags: dict[str, Any] = {
        "model": model,
        genai.OPERATION: "chat",
        genai.PROVIDER: getattr(llm, "vendor", None) or llm.class_name(),
        genai.REQUEST_MODEL: model,
    }
    for name, option in ((genai.REQUEST_MAX_TOKENS, "max_tokens"), (genai.REQUEST_TEMPERATURE, "temperature")):
        given = request.options.get(option, getattr(llm, option, None))
        if isinstance(given, int | float):
            tags[name] = given
    if genai.captures_content():
        tags[genai.INPUT_MESSAGES] = json.dumps([redacted(_in_parts(message)) for message in request.messages])
        system = [message for message in request.messages if message.role == MessageRole.SYSTEM]
        if system:
            parts = [part for message in system for part in _in_parts(message)["parts"]]
            tags[genai.SYSTEM_INSTRUCTIONS] = json.dumps(redacted(parts))
        if request.tools:
            tags[genai.TOOL_DEFINITIONS] = json.dumps([redacted(_defined(tool)) for tool in request.tools])
    return tags


def answer_tags(response: ChatResponse, first_chunk: float | None) -> dict[str, Any]:
    """Tags for the end of a model's span.

    Args:
        response: The last piece of the answer.
        first_chunk: Seconds until its first piece.
    """
    found: dict[str, Any] = {
        genai.RESPONSE_MODEL: response.model,
        genai.RESPONSE_ID: response.request_id,
        genai.FINISH_REASONS: None if response.stop_reason is None else [response.stop_reason],
        genai.TIME_TO_FIRST_CHUNK: first_chunk,
    }
    usage = response.usage
    if usage is not None:
        found |= {
            genai.INPUT_TOKENS: usage.input_tokens,
            genai.OUTPUT_TOKENS: usage.output_tokens,
            genai.CACHED_TOKENS: usage.cached_tokens or None,
            genai.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
            genai.REASONING_TOKENS: usage.reasoning_tokens or None,
            genai.COST: usage.cost,
        }
    if genai.captures_content():
        said = {**_in_parts(response.message), "finish_reason": response.stop_reason or ""}
        found[genai.OUTPUT_MESSAGES] = json.dumps([redacted(said)])
    return {name: value for name, value in found.items() if value is not None}


def _in_parts(message: ChatMessage) -> dict[str, Any]:
    """A message in the form of the conventions."""
    parts = [_part(block) for block in message.blocks]
    if message.role == MessageRole.TOOL:
        call = message.additional_kwargs.get("tool_call_id")
        parts = [{"type": "tool_call_response", "id": call, "response": message.content or ""}]
    return {"role": message.role.value, "parts": parts}


def _defined(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _part(block: ContentBlock) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "content": text}
        case ThinkingBlock(content=thought):
            return {"type": "reasoning", "content": thought or ""}
        case ToolCallBlock(tool_call_id=number, tool_name=name, tool_kwargs=arguments):
            return {"type": "tool_call", "id": number, "name": name, "arguments": arguments}
        case _:  # pictures and the like: that they were there, not what is in them
            return {"type": block.block_type}


def llm_chat_callback() -> Callable[[_F], _F]:
    """A decorator for ``chat``, ``achat``, ``stream_chat`` and ``astream_chat`` that tells handlers of each call.

    They hear LLMChatStartEvent, LLMChatInProgressEvent for each piece of an answer that is streamed, and
    LLMChatEndEvent, or ExceptionEvent when there is no answer or it is left before its end. What the method calls of
    its own model is a part of the call, and is not told again. With nobody listening it costs a truth test.

    Example:
        >>> class Mine(LLM):
        ...     @llm_chat_callback()
        ...     def chat(self, messages, **kwargs): ...
    """
    return partial(traced_method, CHAT)


def llm_completion_callback() -> Callable[[_F], _F]:
    """The same for ``complete``, ``acomplete``, ``stream_complete`` and ``astream_complete``.

    They hear LLMCompletionStartEvent, LLMCompletionInProgressEvent, LLMCompletionEndEvent and ExceptionEvent.

    Example:
        >>> class Mine(CustomLLM):
        ...     @llm_completion_callback()
        ...     def complete(self, prompt, formatted=False, **kwargs): ...
    """
    return partial(traced_method, COMPLETION)

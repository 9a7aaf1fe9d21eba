"""The base class of models, and the derivation of its many methods from one implemented method.

An adapter implements ``_stream(request)``, an asynchronous generator of stream events. A model written for LlamaIndex
implements one of the public methods instead. All other methods derive from it: ``chat``, ``achat``, ``stream_chat``,
``astream_chat``, ``complete``, ``acomplete``, ``stream_complete``, ``astream_complete``.
"""

import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from types import MethodType
from typing import Any, ClassVar, TypeVar, cast

from batonflow.llms._bridge import closed_after, iterate_in_thread, iterate_sync, run_sync
from batonflow.llms.answer import fold
from batonflow.llms.blocks import TextBlock, ToolCallBlock
from batonflow.llms.call_tracing import CHAT, COMPLETION, is_traced, open_untraced, trace_responses, traced_method
from batonflow.llms.call_tracing import dispatcher as _dispatcher
from batonflow.llms.errors import LLMError
from batonflow.llms.lazy_fields import assembled
from batonflow.llms.messages import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    messages_to_prompt,
)
from batonflow.llms.predicting import Predicting
from batonflow.llms.stream import (
    BlockDone,
    ChatRequest,
    Finish,
    Gate,
    Settle,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Watch,
    checked_stream,
    current_gates,
    recorded_call,
)
from batonflow.llms.tool_protocol import tool_selections, tool_specs
from batonflow.llms.usage import Priced
from batonflow.threads import in_thread

__all__ = ["LLM", "CustomLLM", "events_of", "is_same_method"]


_T = TypeVar("_T")

_NATIVE = "_stream"
_CHAT = ("astream_chat", "achat", "stream_chat", "chat")
_STREAMED_COMPLETION = ("astream_complete", "stream_complete", "acomplete", "complete")
_WHOLE_COMPLETION = ("acomplete", "complete", "astream_complete", "stream_complete")
_WITH_TOOLS = ("astream_chat_with_tools", "achat_with_tools", "stream_chat_with_tools", "chat_with_tools")


def _defines(cls: type[Any], names: Iterable[str]) -> bool:
    # A field may also shadow a method, as in test doubles.
    attributes, fields = vars(cls), vars(cls).get("__annotations__", {})
    return any(name in attributes or name in fields for name in names)


def _lineage(cls: type["LLM"]) -> list[type["LLM"]]:
    return [one for one in cls.__mro__ if one is not LLM and issubclass(one, LLM)]


def _origin(cls: type["LLM"], method: str, family: Sequence[str], other_family: Sequence[str]) -> str | None:
    """Return the method of ``family`` that the base's ``method`` derives from; None for the other family.

    A subclass that overrides ``method`` reaches the base's version through ``super()`` only. The base's version then
    derives from the classes above that override, because otherwise the two would call each other forever.
    """
    lineage = _lineage(cls)
    overriding = [number for number, one in enumerate(lineage) if _defines(one, [method])]
    searched = [lineage[overriding[-1] + 1 :] if overriding else lineage]
    if not any(_defines(one, other_family) for one in lineage):
        searched.append(lineage)
    for classes in searched:
        if _NATIVE in family and any(_defines(one, [_NATIVE]) for one in classes):
            return _NATIVE
        for one in classes:
            for name in family:
                if name not in {method, _NATIVE} and _defines(one, [name]):
                    return name
    return None


def is_same_method(method: Any, function: Any) -> bool:
    """Return whether a bound method is exactly ``function``, neither overridden nor wrapped."""
    # A wrapper may copy the attributes of the method it wraps, so the type is compared too.
    return type(method) is MethodType and method.__func__ is function


async def _final(items: AsyncGenerator[_T, None]) -> _T | None:
    """Return the last item, None when there are no items."""
    last: _T | None = None
    try:
        async for item in items:
            last = item
    except LLMError as err:
        # Nothing was yielded yet, so a retry repeats nothing.
        err.shown = False
        raise
    return last


def _final_sync(items: Iterator[_T]) -> _T | None:
    last: _T | None = None
    for item in items:
        last = item
    return last


class LLM(Priced, Predicting):
    """A language model.

    Subclasses implement :attr:`metadata` and one of ``_stream``, ``astream_chat``, ``achat``, ``stream_chat``,
    ``chat``, ``astream_complete``, ``acomplete``, ``stream_complete``, ``complete``. The other methods derive from the
    first of these that is implemented. The definition of a subclass without any of them raises a TypeError.

    Prompts, structured output and single tool calls are in :class:`~batonflow.llms.predicting.Predicting`.

    Args:
        callback_manager: Accepted and kept; use instrumentation instead.
        rate_limiter: Accepted and kept.
        price: The price in US dollars: a :class:`~batonflow.llms.Price`, or a function of the usage of one request.

    Example:
        >>> class Echo(LLM):
        ...     @property
        ...     def metadata(self) -> LLMMetadata:
        ...         return LLMMetadata(model_name="echo")
        ...     async def achat(self, messages, **kwargs):
        ...         return ChatResponse(message=messages[-1])
        >>> Echo().chat([ChatMessage("hello")]).message.content
        'hello'
    """

    callback_manager: Any = None
    rate_limiter: Any = None

    _origins: ClassVar[dict[str, str | None]] = {}
    _completes: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        chat, completion = (_NATIVE, *_CHAT), _WHOLE_COMPLETION
        origins: dict[str, str | None] = {name: _origin(cls, name, chat, completion) for name in _CHAT}
        for name in ("acomplete", "complete"):
            origins[name] = _origin(cls, name, _WHOLE_COMPLETION, chat)
        for name in ("astream_complete", "stream_complete"):
            origins[name] = _origin(cls, name, _STREAMED_COMPLETION, chat)
        cls._origins = origins
        cls._completes = any(_defines(one, completion) for one in _lineage(cls))
        if cls.__abstractmethods__:
            return
        if not any(_defines(one, (*chat, *completion, *_WITH_TOOLS)) for one in _lineage(cls)):
            raise TypeError(
                f"{cls.__name__} must define metadata and one of {', '.join((*chat, *_STREAMED_COMPLETION))}"
            )

    @property
    @abstractmethod
    def metadata(self) -> LLMMetadata:
        """The properties of the model."""

    def to_payload(self) -> dict[str, Any]:
        """Return the description of the model in traces, without keys."""
        return {"class_name": self.class_name(), **self.metadata.model_dump(mode="json")}

    async def aclose(self) -> None:
        """Close the connections; the model opens new ones when it is used again."""

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        run_sync(self.aclose())

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """Yield the stream events of the response to ``request``, ending with ``Finish``.

        Adapters implement this method. For other models it derives from the method they implement, so that a wrapper
        around a model needs this method only.
        """
        options: dict[str, Any] = dict(request.options)
        for name in ("tool_choice", "output_schema"):
            if getattr(request, name) is not None:
                options[name] = getattr(request, name)
        with_tools = getattr(self, "astream_chat_with_tools", None) if request.tools else None
        if with_tools is not None:
            parallel = request.parallel_tool_calls is not False
            opened = partial(
                with_tools,
                tools=request.tools,
                chat_history=request.messages,
                allow_parallel_tool_calls=parallel,
                **options,
            )
        else:
            opened = partial(self.astream_chat, request.messages, **options)
        # The caller of _stream reports the call.
        responses = await (open_untraced(self, CHAT, opened) if _dispatcher.enabled else opened())
        written, last = "", ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT))
        async with closed_after(responses):
            async for last in responses:
                thought = last.additional_kwargs.get("thinking_delta")
                if thought:
                    yield ThinkingDelta(text=thought, raw=last.raw)
                if last.delta:
                    written += last.delta
                    yield TextDelta(text=last.delta, raw=last.raw)
        for event in events_of(last, written):
            yield event

    def _request(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> ChatRequest:
        options = dict(kwargs)
        return assembled(
            ChatRequest,
            {
                "messages": _conversation(messages),
                "tools": tool_specs(options.pop("tools", None)),
                "tool_choice": options.pop("tool_choice", None),
                "parallel_tool_calls": options.pop("parallel_tool_calls", None),
                "output_schema": options.pop("output_schema", None),
                "stream": options.pop("stream", None),
                "options": options,
            },
        )

    @property
    def native_output_schema(self) -> bool:
        """Return whether ``_stream`` uses ``request.output_schema``: the vendor enforces a JSON schema."""
        return False

    @property
    def takes_stream_option(self) -> bool:
        """Return whether ``achat`` accepts ``stream=False``; models of other authors may not know the option."""
        return self._origins["achat"] == _NATIVE and is_same_method(self.achat, _ACHAT)

    def _no_way(self, method: str) -> LLMError:
        return LLMError(f"{type(self).__name__} cannot {method}: it defines no method that {method} could derive from")

    def _from_completion(self, completion: CompletionResponse) -> ChatResponse:
        return ChatResponse(
            message=ChatMessage(role=MessageRole.ASSISTANT, content=completion.text),
            raw=completion.raw,
            delta=completion.delta,
            logprobs=completion.logprobs,
            additional_kwargs=completion.additional_kwargs,
        )

    def _prompt(self, messages: Sequence[ChatMessage]) -> str:
        return cast("str", (self.messages_to_prompt or messages_to_prompt)(list(messages)))

    @property
    def _watchable_stream(self) -> bool:
        return self._origins["astream_chat"] == _NATIVE and is_same_method(self.astream_chat, _ASTREAM)

    def _watched_chat(
        self, messages: Sequence[ChatMessage], kwargs: dict[str, Any], watch: Watch
    ) -> ChatResponseAsyncGen:
        return self._native(messages, kwargs, watch)

    def _native(
        self,
        messages: Sequence[ChatMessage],
        kwargs: dict[str, Any],
        watch: Watch | None = None,
        asked: str = "astream_chat",
    ) -> ChatResponseAsyncGen:
        """Return the responses of the adapter's stream, traced if there are handlers."""
        name = self.metadata.model_name
        request = self._request(messages, kwargs)
        events = recorded_call(checked_stream(self._stream(request), type(self).__name__), self, request)
        if watch is not None:
            events = _watched(events, watch)
        responses = fold(events, vendor=self.class_name(), model=name, cost_of=self.cost_of)
        if current_gates():
            responses = _gated(responses, [(gate, self, request) for gate in current_gates()])
        # Each generator in this chain costs as much per chunk as the rest of the work.
        return trace_responses(responses, self, request, kwargs, asked) if _dispatcher.enabled else responses

    def _traces_call(self, method: str) -> bool:
        """Return whether the base's version of ``method`` reports the call to handlers."""
        # A call that goes straight to the stream is reported there, with its span.
        return self._origins[method] != _NATIVE and not is_traced(self, CHAT if method in _CHAT else COMPLETION)

    async def _achunks(self, asked: str, messages: Sequence[ChatMessage], kwargs: Any) -> ChatResponseAsyncGen:
        """Yield the response in chunks, from the method that the base's ``asked`` derives from."""
        match self._origins[asked]:
            case "_stream":
                source = self._native(messages, kwargs, None, asked)
            case "astream_chat":
                source = await self.astream_chat(messages, **kwargs)
            case "stream_chat":
                source = iterate_in_thread(self.stream_chat(messages, **kwargs))
            case "achat":
                yield _whole(await self.achat(messages, **kwargs))
                return
            case "chat":
                yield _whole(await in_thread(self.chat, messages, **kwargs))
                return
            case _:
                if not self._completes:
                    raise self._no_way(asked)
                completions = await self.astream_complete(self._prompt(messages), formatted=True, **kwargs)
                async with closed_after(completions):
                    async for completion in completions:
                        yield self._from_completion(completion)
                return
        async with closed_after(source):
            async for response in source:
                yield response

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Send a conversation and return the whole response.

        Args:
            messages: The conversation.
            **kwargs: ``tools``, ``tool_choice``, ``parallel_tool_calls``, and the vendor's own options.

        Raises:
            LLMError: One of its subclasses (see ``batonflow.llms.errors``).

        Example:
            >>> response = await llm.achat([ChatMessage("Hello")])
            >>> print(response.message.content)
        """
        if _dispatcher.enabled and self._traces_call("achat"):
            return await _TRACED["achat"](self, messages, **kwargs)
        if self._origins["achat"] is None and self._completes:
            return self._from_completion(await self.acomplete(self._prompt(messages), formatted=True, **kwargs))
        return _last(await _final(self._achunks("achat", messages, kwargs)))

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Send a conversation and stream the response. Await the call, then iterate.

        Args:
            messages: The conversation.
            **kwargs: ``tools``, ``tool_choice``, ``parallel_tool_calls``, and the vendor's own options.

        Returns:
                TypeError: ``messages`` is not a list of messages, or an item of ``tools`` is not a tool.
                raised during the iteration.

        Raises:
            TypeError: ``messages`` is not a list of messages, or an item of ``tools`` is not a tool.

        Example:
            >>> async for response in await llm.astream_chat([ChatMessage("Hello")]):
            ...     print(response.delta, end="")
        """
        if self._origins["astream_chat"] == _NATIVE:
            return self._native(messages, kwargs)
        if _dispatcher.enabled and self._traces_call("astream_chat"):
            return await _TRACED["astream_chat"](self, messages, **kwargs)
        return self._achunks("astream_chat", messages, kwargs)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The synchronous form of :meth:`achat`."""
        if _dispatcher.enabled and self._traces_call("chat"):
            return _TRACED["chat"](self, messages, **kwargs)
        origin = self._origins["chat"]
        if origin == "stream_chat":
            return _last(_final_sync(self.stream_chat(messages, **kwargs)))
        if origin is None and self._completes:
            return self._from_completion(self.complete(self._prompt(messages), formatted=True, **kwargs))
        return _last(run_sync(_final(self._achunks("chat", messages, kwargs))))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The synchronous form of :meth:`astream_chat`; the call returns the generator at once."""
        if _dispatcher.enabled and self._traces_call("stream_chat"):
            yield from _TRACED["stream_chat"](self, messages, **kwargs)
            return
        origin = self._origins["stream_chat"]
        if origin == "chat":
            yield _whole(self.chat(messages, **kwargs))
        elif origin is None and self._completes:
            for completion in self.stream_complete(self._prompt(messages), formatted=True, **kwargs):
                yield self._from_completion(completion)
        else:
            yield from iterate_sync(self._achunks("stream_chat", messages, kwargs))

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Complete a prompt. A chat model answers it as the user's message.

        Args:
            prompt: The text.
            formatted: Whether ``completion_to_prompt`` has been applied already.
            **kwargs: The vendor's own options.
        """
        if _dispatcher.enabled and self._traces_call("acomplete"):
            return await _TRACED["acomplete"](self, prompt, formatted, **kwargs)
        match self._origins["acomplete"]:
            case "complete":
                return await in_thread(self.complete, prompt, formatted, **kwargs)
            case "astream_complete":
                return _completed(await _final(await self.astream_complete(prompt, formatted, **kwargs)))
            case "stream_complete":
                return _completed(await _final(iterate_in_thread(self.stream_complete(prompt, formatted, **kwargs))))
            case _:
                return _to_completion(await self.achat([ChatMessage(prompt)], **kwargs))

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """Complete a prompt and stream the completion. Await the call, then iterate."""
        if _dispatcher.enabled and self._traces_call("astream_complete"):
            return await _TRACED["astream_complete"](self, prompt, formatted, **kwargs)
        return self._acompletions(prompt, formatted, kwargs)

    async def _acompletions(self, prompt: str, formatted: bool, kwargs: Any) -> CompletionResponseAsyncGen:
        match self._origins["astream_complete"]:
            case "stream_complete":
                async with aclosing(
                    iterate_in_thread(self.stream_complete(prompt, formatted, **kwargs))
                ) as completions:
                    async for completion in completions:
                        yield completion
            case "acomplete":
                yield _whole_completion(await self.acomplete(prompt, formatted, **kwargs))
            case "complete":
                yield _whole_completion(await in_thread(self.complete, prompt, formatted, **kwargs))
            case _:
                responses = await self.astream_chat([ChatMessage(prompt)], **kwargs)
                async with closed_after(responses):
                    async for response in responses:
                        yield _to_completion(response)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The synchronous form of :meth:`acomplete`."""
        if _dispatcher.enabled and self._traces_call("complete"):
            return _TRACED["complete"](self, prompt, formatted, **kwargs)
        match self._origins["complete"]:
            case "stream_complete":
                return _completed(_final_sync(self.stream_complete(prompt, formatted, **kwargs)))
            case "acomplete":
                return run_sync(self.acomplete(prompt, formatted, **kwargs))
            case "astream_complete":
                return _completed(run_sync(_final(run_sync(self.astream_complete(prompt, formatted, **kwargs)))))
            case _:
                return _to_completion(self.chat([ChatMessage(prompt)], **kwargs))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The synchronous form of :meth:`astream_complete`; the call returns the generator at once."""
        if _dispatcher.enabled and self._traces_call("stream_complete"):
            yield from _TRACED["stream_complete"](self, prompt, formatted, **kwargs)
            return
        match self._origins["stream_complete"]:
            case "complete":
                yield _whole_completion(self.complete(prompt, formatted, **kwargs))
            case "acomplete":
                yield _whole_completion(run_sync(self.acomplete(prompt, formatted, **kwargs)))
            case "astream_complete":
                yield from iterate_sync(run_sync(self.astream_complete(prompt, formatted, **kwargs)))
            case _:
                for response in self.stream_chat([ChatMessage(prompt)], **kwargs):
                    yield _to_completion(response)


_ASTREAM, _ACHAT = LLM.astream_chat, LLM.achat

# The methods of the class stay as they are, so that a call without handlers costs one test.
_TRACED: dict[str, Any] = {
    **{name: traced_method(CHAT, getattr(LLM, name)) for name in _CHAT},
    **{name: traced_method(COMPLETION, getattr(LLM, name)) for name in _WHOLE_COMPLETION},
}


async def _watched(events: AsyncGenerator[StreamEvent, None], watch: Watch) -> AsyncGenerator[StreamEvent, None]:
    async with aclosing(events):
        async for event in events:
            watch(event)
            yield event


async def _gated(
    responses: ChatResponseAsyncGen, before: Sequence[tuple[Gate, LLM, ChatRequest]]
) -> ChatResponseAsyncGen:
    """Yield the responses after every gate has admitted the request."""
    settling: list[Settle] = []
    last: ChatResponse | None = None
    try:
        for gate, llm, request in before:
            settling.append(gate(llm, request))
        async with aclosing(responses):
            async for last in responses:
                yield last
    finally:
        for settle in settling:
            settle(last)


def events_of(last: ChatResponse, written: str = "") -> Iterator[StreamEvent]:
    """Yield the events of a whole response.

    Args:
        last: The response, or the last one of a stream.
        written: The text of the deltas before it, which are not repeated.
    """
    content = last.message.content or ""
    rest = content.removeprefix(written) if content.startswith(written) else ""
    if rest:
        yield TextDelta(text=rest, raw=last.raw)
    for block in last.message.blocks:
        if not isinstance(block, TextBlock | ToolCallBlock):
            yield BlockDone(block=block)
    calls = tool_selections(last.message)
    for number, call in enumerate(calls):
        arguments = call.invalid_arguments or json.dumps(call.tool_kwargs)
        yield ToolCallDelta(index=number, id=call.tool_id, name=call.tool_name, arguments=arguments)
    yield Finish(
        reason=last.stop_reason or ("tool_calls" if calls else "stop"),
        usage=last.usage,
        model=last.model,
        vendor=last.vendor,
        request_id=last.request_id,
        additional_kwargs=_without(last.additional_kwargs, "thinking_delta"),
        message_kwargs=_without(last.message.additional_kwargs, "tool_calls"),
        raw=last.raw,
    )


def _without(kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a copy without ``name``, which other events carry."""
    return {key: value for key, value in kwargs.items() if key != name}


def _conversation(messages: Any) -> list[ChatMessage]:
    """Return ``messages`` as a new list; raise TypeError for other types."""
    if isinstance(messages, str | ChatMessage):
        raise TypeError(f"messages is a list of ChatMessage, not a {type(messages).__name__}: write [ChatMessage(...)]")
    conversation = list(cast("Iterable[Any]", messages))
    # The usual case first, because a long conversation is checked at every call.
    if list(map(type, conversation)).count(ChatMessage) == len(conversation):
        return conversation
    for number, one in enumerate(conversation):
        if not isinstance(one, ChatMessage):
            raise TypeError(
                f"messages[{number}] is a {type(one).__name__}, not a ChatMessage: write ChatMessage(text, role=...)"
            )
    return conversation


def _whole(response: ChatResponse) -> ChatResponse:
    """Return a whole response as the only chunk of a stream."""
    if response.delta is not None:
        return response
    return response.model_copy(update={"delta": response.message.content or ""})


def _last(response: ChatResponse | None) -> ChatResponse:
    if response is None:
        # An empty stream is an empty message.
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT))
    return response.model_copy(update={"delta": None})


def _to_completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "",
        raw=response.raw,
        delta=response.delta,
        logprobs=response.logprobs,
        additional_kwargs=response.additional_kwargs,
    )


def _whole_completion(completion: CompletionResponse) -> CompletionResponse:
    return completion if completion.delta is not None else completion.model_copy(update={"delta": completion.text})


def _completed(completion: CompletionResponse | None) -> CompletionResponse:
    return CompletionResponse(text="") if completion is None else completion.model_copy(update={"delta": None})


class CustomLLM(LLM):
    """A base for models that complete: subclasses implement ``metadata``, ``complete`` and ``stream_complete``."""

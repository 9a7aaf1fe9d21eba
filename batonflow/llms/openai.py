"""OpenAI's chat completions, also of compatible servers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from batonflow.llms._vendor import load
from batonflow.llms.blocks import (
    AudioBlock,
    CachePoint,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    VideoBlock,
    expand_citable,
    in_words,
)
from batonflow.llms.chat_answers import EXTRAS_FROM, REASONING, REASONING_FROM, ChatReader, failed_tool_use
from batonflow.llms.lazy_fields import arguments_text
from batonflow.llms.messages import ChatMessage, MessageRole
from batonflow.llms.openai_sdk import OpenAISDKModel
from batonflow.llms.sdk_model import unsupported
from batonflow.llms.stream import ChatRequest, StreamEvent
from batonflow.llms.tool_protocol import chosen_tool, tool_call_blocks, wire_id, wire_name

__all__ = ["OpenAI", "cache_breakpoint", "openai_messages"]

_ROLES = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "developer",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}

# OpenAI's own servers refuse longer ids. Other servers get their ids back unchanged.
_LONGEST_ID = 40

_NOTHING: dict[str, Any] = {}

# Seconds for a server to continue after its stop reason: to send the token counts, and then to close the stream.
_COUNTS_TIME = 2.0
_END_TIME = 0.5

# The cache lifetimes that OpenAI offers; for others its default applies.
_CACHE_LIFETIMES = ("30m", "12h")


class OpenAI(OpenAISDKModel):
    """A model behind OpenAI's chat completions.

    Args:
        model: The model's name.
        reasoning_effort: The effort of thinking: ``none``, ``low``, ``medium``, ``high`` and so on.
        data: Options of every SDK model (see ``SDKModel``).

    Raises:
        MissingKeyError: Neither ``api_key`` nor ``OPENAI_API_KEY`` is set.

    Example:
        >>> llm = OpenAI("gpt-5.6")
        >>> print(llm.complete("Say hello."))
    """

    _reader_hears: ClassVar[bool] = True

    max_tokens_field: str | None = None
    include_usage: bool = True
    reasoning_field: str | None = None
    json_schema: bool | None = None

    # Repeated here, because type checkers derive a constructor with keywords for every pydantic model.
    def __init__(self, model: str = "gpt-5.6", **data: Any) -> None:
        super().__init__(model, **data)

    @property
    def native_output_schema(self) -> bool:
        """Return whether the server enforces JSON schemas: OpenAI's own servers do; for others see ``json_schema``."""
        return self.official if self.json_schema is None else self.json_schema

    def _method(self, client: Any, body: dict[str, Any]) -> Any:  # noqa: ARG002 - the same for every body
        return client.chat.completions.create

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        return _events(stream, self.vendor)

    def _read_whole(self, answer: Any) -> Iterable[StreamEvent]:
        return ChatReader(self.vendor).whole(answer)

    def _whole_class(self, sdk: Any, body: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the same for every body
        return sdk.types.chat.ChatCompletion

    def _instead(self, err: Any, request: ChatRequest) -> Sequence[StreamEvent]:
        return failed_tool_use(getattr(err, "body", None), request.tools)

    @property
    def _limit(self) -> str:
        return self.max_tokens_field or ("max_completion_tokens" if self.official else "max_tokens")

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        if "max_tokens" in options:
            options[self._limit] = options.pop("max_tokens")
        return options

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": openai_messages(request.messages, self.reasoning_field, self.official, self.vendor),
            "stream_options": {"include_usage": True} if self.include_usage else None,
            "temperature": self.temperature,
            self._limit: self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
        }
        schema = request.output_schema
        if schema is not None:
            named = {"name": schema.name, "schema": schema.parameters, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        if request.tools:
            body["tools"] = [self._function(one) for one in request.tools]
            body["tool_choice"] = _tool_choice(request)
            # True is the default, and models without parallel calls refuse the option.
            body["parallel_tool_calls"] = False if request.parallel_tool_calls is False else None
        return body

    def _function(self, tool: Any) -> dict[str, Any]:
        schema, strict = self._tool_schema(tool)
        function = {"name": tool.name, "description": tool.description, "parameters": schema}
        return {"type": "function", "function": {**function, "strict": True} if strict else function}


def _tool_choice(request: ChatRequest) -> Any:
    name = chosen_tool(request.tool_choice, request.tools)
    return request.tool_choice if name is None else {"type": "function", "function": {"name": name}}


async def _events(stream: Any, vendor: str) -> AsyncGenerator[StreamEvent, None]:
    reader, chunk, begun, is_last = ChatReader(vendor), None, False, None
    chunks, heard = aiter(stream), stream.silence.heard
    async for chunk in chunks:
        events = reader.events(chunk)
        if events or reader.reason is not None or chunk.usage is not None:
            heard()
        for event in events:
            yield event
        # Some servers send a reason with every chunk or with the first one, so a reason does not mark the end.
        if reader.reason is not None and is_last is None:
            is_last = begun
        if is_last:
            break
        begun = begun or bool(events)
    last, counted = chunk, False
    while is_last and chunk is not None:
        counted = counted or chunk.usage is not None
        chunk = await _within(_END_TIME if counted else _COUNTS_TIME, chunks)
        if chunk is not None:
            last = chunk
            for event in reader.events(chunk):
                yield event
    for event in reader.ending(last, done=stream.body.done):
        yield event


async def _within(seconds: float, chunks: AsyncIterator[Any]) -> Any:
    """Return the next chunk after the stop reason, None when it does not arrive in time.

    Some servers keep the connection open without sending more. The response is complete at this point.
    """
    try:
        async with asyncio.timeout(seconds):
            return await anext(chunks, None)
    except (TimeoutError, load("openai", "openai").APIConnectionError, load("httpx2", "openai").HTTPError):
        return None


def openai_messages(
    messages: Sequence[ChatMessage], reasoning_field: str | None = None, official: bool = True, vendor: str = "openai"
) -> list[dict[str, Any]]:
    """Return a conversation in the form of OpenAI's chat completions.

    Args:
        messages: The conversation.
        reasoning_field: The field in which the server wants thoughts back; None when it does not.
        official: Whether the server is OpenAI's own, which knows cache points and refuses long ids.
        vendor: The vendor of the server; thoughts of other vendors are left out.

    Raises:
        LLMRequestError: A message contains a block that the API does not take.
    """
    converted: list[dict[str, Any]] = []
    media: list[dict[str, Any]] = []
    for message in messages:
        if _ROLES[message.role] != "tool" and media:
            converted.append({"role": "user", "content": media})
            media = []
        converted.append(_message(message, reasoning_field, official, vendor))
        if _ROLES[message.role] == "tool":
            media.extend(_media_of_tool(message, official))
    return [*converted, {"role": "user", "content": media}] if media else converted


def _media_of_tool(message: ChatMessage, official: bool) -> list[dict[str, Any]]:
    """Return a tool's media as a user message after all results of the turn. The API takes no media in results."""
    media = _parts([block for block in expand_citable(message.blocks) if isinstance(block, MediaBlock)], official)
    call_id = _call_id(message.additional_kwargs.get("tool_call_id"), official)
    return [{"type": "text", "text": f"The tool call {call_id} also returned this:"}, *media] if media else []


def _message(message: ChatMessage, reasoning_field: str | None, official: bool, vendor: str) -> dict[str, Any]:
    role = _ROLES[message.role]
    if role == "tool":
        call_id = _call_id(message.additional_kwargs.get("tool_call_id"), official)
        return {"role": role, "tool_call_id": call_id, "content": _result(message)}
    if role == "assistant":
        return _assistant(message, reasoning_field, official, vendor)
    # Compatible servers may accept plain text only, and receive no cache points.
    plain = TextBlock if official else TextBlock | CachePoint
    if all(isinstance(block, plain) for block in message.blocks):
        return {"role": role, "content": message.content or ""}
    return {"role": role, "content": _parts(message.blocks, official) or ""}


def _result(message: ChatMessage) -> str:
    """Return a tool's result as text; without text, the media that follow are named."""
    if all(isinstance(block, TextBlock) for block in message.blocks):
        return message.content or ""
    readable = [block for block in expand_citable(message.blocks) if not isinstance(block, MediaBlock)]
    return in_words(readable) or in_words(message.blocks)


def _call_id(call_id: str | None, official: bool) -> str:
    return wire_id(call_id, _LONGEST_ID if official else None)


def _assistant(message: ChatMessage, reasoning_field: str | None, official: bool, vendor: str) -> dict[str, Any]:
    kept = message.additional_kwargs
    extras: dict[str, Any] = kept.get("tool_call_extras", _NOTHING)
    if kept.get(EXTRAS_FROM, vendor) != vendor:
        extras = _NOTHING
    calls: list[dict[str, Any]] = []
    for block in tool_call_blocks(message):
        function = {"name": wire_name(block.tool_name), "arguments": arguments_text(block)}
        call = {"id": _call_id(block.tool_call_id, official), "type": "function", "function": function}
        calls.append({**call, **extras.get(block.tool_call_id or "", _NOTHING)})
    converted: dict[str, Any] = {"role": "assistant", "content": message.content or (None if calls else "")}
    if calls:
        converted["tool_calls"] = calls
    if kept.get(REASONING_FROM) == vendor:
        converted[REASONING] = kept.get(REASONING)
    if reasoning_field is not None:
        thoughts = [block for block in message.blocks if isinstance(block, ThinkingBlock) and _is_from(block, vendor)]
        # Servers that want thoughts back require the field in every message with tool calls.
        if thoughts or calls:
            converted[reasoning_field] = "".join(block.content or "" for block in thoughts)
    return converted


def _is_from(thought: ThinkingBlock, vendor: str) -> bool:
    """Return whether a thought may come from this server; thoughts without a vendor may."""
    information = thought.additional_information
    return not thought.is_sealed and "id" not in information and information.get("vendor", vendor) == vendor


def cache_breakpoint(point: CachePoint) -> dict[str, Any]:
    """Return OpenAI's mark for the end of a cached prefix."""
    lifetime = point.cache_control.ttl
    return {"mode": "explicit", "ttl": lifetime} if lifetime in _CACHE_LIFETIMES else {"mode": "explicit"}


def _parts(blocks: Sequence[Any], official: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, CachePoint):
            if parts and official:
                parts[-1]["prompt_cache_breakpoint"] = cache_breakpoint(block)
            continue
        if isinstance(block, CitableBlock):
            parts.extend(_parts(block.content, official))
            continue
        part = _part(block)
        if part is not None:
            parts.append(part)
    return parts


def _part(block: Any) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            url = block.url or block.inline_url()
            return {"type": "image_url", "image_url": {"url": url, "detail": block.detail or "auto"}}
        case AudioBlock():
            data = block.resolve_audio(as_base64=True).read().decode()
            return {"type": "input_audio", "input_audio": {"data": data, "format": block.format or "wav"}}
        case DocumentBlock() if (block.document_mimetype or "").startswith("text/"):
            return {"type": "text", "text": block.resolve_document().read().decode()}
        case DocumentBlock():
            return {"type": "file", "file": {"filename": block.title, "file_data": block.inline_url()}}
        case VideoBlock():
            raise unsupported(block, "OpenAI's chat completions")
        case _:
            return None

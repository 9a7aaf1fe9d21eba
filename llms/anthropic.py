"""Anthropic's messages."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar

from batonflow.llms.blocks import (
    CachePoint,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from batonflow.llms.messages import ChatMessage, MessageRole, Usage
from batonflow.llms.sdk_model import SDKModel
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import tool_selections

__all__ = ["Anthropic"]

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
}

# The SDK's methods do not take these any more, the API does.
_BODY_ONLY = ("temperature", "top_p", "top_k")


class Anthropic(SDKModel):
    """A model of Anthropic's.

    Args:
        model: The model's name.
        max_tokens: How much it writes at most; the API insists on a number.
        thinking: How it thinks: ``{"type": "enabled", "budget_tokens": 2048}`` for instance.
        data: What every model over an SDK takes (see ``SDKModel``).

    Raises:
        LLMConfigurationError: Neither ``api_key`` nor ``ANTHROPIC_API_KEY``.

    Example:
        >>> llm = Anthropic("claude-sonnet-5")
    """

    vendor: ClassVar[str] = "anthropic"
    sdk_name: ClassVar[str] = "anthropic"
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

    thinking: dict[str, Any] | None = None
    context_window: int = 200_000

    def __init__(self, model: str = "claude-sonnet-5", **data: Any) -> None:
        data.setdefault("max_tokens", 4096)
        super().__init__(model, **data)

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        return sdk.AsyncAnthropic(**options)

    async def _open(self, client: Any, arguments: dict[str, Any]) -> Any:
        return await client.messages.create(**arguments)

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        return _events(stream)

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        system, messages = anthropic_messages(request.messages)
        options: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "thinking": self.thinking,
            **self.additional_kwargs,
            **request.options,
        }
        body = dict(options.pop("extra_body", None) or {})
        body |= {name: options.pop(name) for name in _BODY_ONLY if options.get(name) is not None}
        arguments: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True}
        if system:
            arguments["system"] = system
        if body:
            arguments["extra_body"] = body
        arguments |= {name: value for name, value in options.items() if value is not None and name not in _BODY_ONLY}
        if request.tools:
            arguments["tools"] = [
                {"name": one.name, "description": one.description, "input_schema": one.parameters}
                for one in request.tools
            ]
            choice = _tool_choice(request)
            if choice is not None:
                arguments["tool_choice"] = choice
        return arguments


def _tool_choice(request: ChatRequest) -> dict[str, Any] | None:
    choice = request.tool_choice
    if isinstance(choice, dict):
        return choice
    made: dict[str, Any]
    match choice:
        case None | "auto":
            made = {"type": "auto"}
        case "required":
            made = {"type": "any"}
        case "none":
            return {"type": "none"}
        case name:
            made = {"type": "tool", "name": name}
    if request.parallel_tool_calls is False:
        made["disable_parallel_tool_use"] = True
    return None if made == {"type": "auto"} else made


class _Counts:
    """Token counts, which arrive in two parts and leave out of the input what came from the cache."""

    def __init__(self) -> None:
        self._input = self._output = self._read = self._written = self._thought = 0

    def add(self, usage: Any) -> None:
        self._input = usage.input_tokens or self._input
        self._output = usage.output_tokens or self._output
        self._read = usage.cache_read_input_tokens or self._read
        self._written = usage.cache_creation_input_tokens or self._written
        details = getattr(usage, "output_tokens_details", None)
        self._thought = getattr(details, "thinking_tokens", None) or self._thought

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self._input + self._read + self._written,
            output_tokens=self._output,
            cache_read_tokens=self._read,
            cache_write_tokens=self._written,
            reasoning_tokens=self._thought,
        )


async def _events(stream: Any) -> AsyncGenerator[StreamEvent, None]:
    counts, reason, model = _Counts(), "stop", None
    thoughts: dict[int, ThinkingBlock] = {}
    async for event in stream:
        match event.type:
            case "message_start":
                model = event.message.model
                counts.add(event.message.usage)
            case "content_block_start":
                for started in _started(event, thoughts):
                    yield started
            case "content_block_delta":
                for piece in _piece(event, thoughts):
                    yield piece
            case "content_block_stop":
                if event.index in thoughts:
                    yield BlockDone(block=thoughts.pop(event.index), raw=event)
            case "message_delta":
                reason = event.delta.stop_reason or reason
                counts.add(event.usage)
            case "message_stop":
                yield Finish(
                    reason=_REASONS.get(reason, reason),
                    usage=counts.usage(),
                    model=model,
                    request_id=stream.response.headers.get("request-id"),
                    raw=event,
                )
                return
            case _:
                # Kinds that are new since this was written carry nothing an answer needs.
                continue


def _started(event: Any, thoughts: dict[int, ThinkingBlock]) -> list[StreamEvent]:
    block = event.content_block
    match block.type:
        case "text" if block.text:
            return [TextDelta(text=block.text, raw=event)]
        case "thinking":
            thoughts[event.index] = ThinkingBlock(content=block.thinking or "")
        case "redacted_thinking":
            thoughts[event.index] = ThinkingBlock(additional_information={"redacted": block.data})
        case "tool_use":
            arguments = json.dumps(block.input) if block.input else ""
            return [ToolCallDelta(index=event.index, id=block.id, name=block.name, arguments=arguments, raw=event)]
        case _:
            pass
    return []


def _piece(event: Any, thoughts: dict[int, ThinkingBlock]) -> list[StreamEvent]:
    delta = event.delta
    match delta.type:
        case "text_delta":
            return [TextDelta(text=delta.text, raw=event)]
        case "input_json_delta":
            return [ToolCallDelta(index=event.index, arguments=delta.partial_json, raw=event)]
        case "thinking_delta" if event.index in thoughts:
            thought = thoughts[event.index]
            thought.content = (thought.content or "") + delta.thinking
            return [ThinkingDelta(text=delta.thinking, raw=event)]
        case "signature_delta" if event.index in thoughts:
            thoughts[event.index].additional_information["signature"] = delta.signature
        case _:
            pass
    return []


def anthropic_messages(messages: Sequence[ChatMessage]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A conversation in the form of Anthropic's messages: the system's blocks, and the rest in alternating roles."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role in {MessageRole.SYSTEM, MessageRole.DEVELOPER}:
            _append(system, message.blocks)
            continue
        content: list[dict[str, Any]] = []
        if message.role in {MessageRole.TOOL, MessageRole.FUNCTION}:
            role = "user"
            content.append(_tool_result(message))
        elif message.role is MessageRole.USER:
            role = "user"
            _append(content, message.blocks)
        else:
            role = "assistant"
            _append(content, _with_calls(message))
        if turns and turns[-1]["role"] == role:
            # The results of parallel calls must come in one message.
            turns[-1]["content"].extend(content)
        elif content:
            turns.append({"role": role, "content": content})
    return system, turns


def _with_calls(message: ChatMessage) -> list[Any]:
    """The blocks of an assistant's message, with calls kept in the older way as blocks too."""
    selections = tool_selections(message)
    if any(isinstance(block, ToolCallBlock) for block in message.blocks):
        return list(message.blocks)
    older = [
        ToolCallBlock(tool_call_id=one.tool_id, tool_name=one.tool_name, tool_kwargs=one.tool_kwargs)
        for one in selections
    ]
    return [*message.blocks, *older]


def _tool_result(message: ChatMessage) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    _append(content, message.blocks)
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _clean_id(message.additional_kwargs.get("tool_call_id")),
        "content": content,
    }
    if message.additional_kwargs.get("is_error"):
        result["is_error"] = True
    return result


def _clean_id(call_id: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id or "")


def _append(content: list[dict[str, Any]], blocks: Sequence[Any]) -> None:
    for block in blocks:
        if isinstance(block, CachePoint):
            if content:
                content[-1]["cache_control"] = block.cache_control.model_dump()
            continue
        converted = _block(block)
        if converted is not None:
            content.append(converted)


def _block(block: Any) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            # The API refuses empty text.
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case ImageBlock():
            return {"type": "image", "source": _source(block)}
        case DocumentBlock():
            return {"type": "document", "source": _source(block), "title": block.title}
        case CitableBlock():
            parts = [part for part in map(_block, block.content) if part is not None]
            source = {"type": "content", "content": parts}
            return {"type": "document", "source": source, "title": block.title, "citations": {"enabled": True}}
        case ThinkingBlock():
            return _thought(block)
        case ToolCallBlock():
            # The API wants an object; text that was none is shown to the model as what it was.
            given = block.tool_kwargs
            return {
                "type": "tool_use",
                "id": _clean_id(block.tool_call_id),
                "name": block.tool_name,
                "input": given if isinstance(given, dict) else {"invalid_json": given},
            }
        case _:
            return None


def _thought(block: ThinkingBlock) -> dict[str, Any] | None:
    """A thought as it came. Those of other vendors have no signature and cannot go back."""
    information = block.additional_information
    if "redacted" in information:
        return {"type": "redacted_thinking", "data": information["redacted"]}
    if "signature" not in information:
        return None
    return {"type": "thinking", "thinking": block.content or "", "signature": information["signature"]}


def _source(block: ImageBlock | DocumentBlock) -> dict[str, Any]:
    """Where the data of a picture or document is: at an address the API can fetch, or here."""
    if block.url is not None and block.url.startswith(("http://", "https://")):
        return {"type": "url", "url": block.url}
    head, _, data = block.inline_url().partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64")
    if kind.startswith("text/") and isinstance(block, DocumentBlock):
        return {"type": "text", "media_type": "text/plain", "data": block.resolve_document().read().decode()}
    return {"type": "base64", "media_type": kind, "data": data}

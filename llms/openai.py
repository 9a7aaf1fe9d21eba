"""OpenAI's chat completions, and every server that speaks the same protocol."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar

from batonflow.llms.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from batonflow.llms.messages import ChatMessage, MessageRole, Usage
from batonflow.llms.sdk_model import SDKModel
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import tool_selections

__all__ = ["DeepSeek", "OpenAI"]

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

_REASONS = {"function_call": "tool_calls"}


class OpenAI(SDKModel):
    """A model behind OpenAI's chat completions protocol.

    Args:
        model: The model's name.
        reasoning_effort: How much it thinks: ``none``, ``low``, ``medium``, ``high`` and so on.
        max_tokens_field: How the server calls the limit of the answer; OpenAI itself wants ``max_completion_tokens``,
            most others ``max_tokens``.
        include_usage: Whether to ask for token counts; some servers do not know the option.
        data: What every model over an SDK takes (see ``SDKModel``).

    Raises:
        LLMConfigurationError: Neither ``api_key`` nor ``OPENAI_API_KEY``.

    Example:
        >>> llm = OpenAI("gpt-5.6")
        >>> local = OpenAI("qwen3", base_url="http://127.0.0.1:8080/v1", api_key="none")
    """

    vendor: ClassVar[str] = "openai"
    sdk_name: ClassVar[str] = "openai"
    key_variables: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)

    reasoning_effort: str | None = None
    max_tokens_field: str | None = None
    include_usage: bool = True

    def __init__(self, model: str = "gpt-5.6", **data: Any) -> None:
        super().__init__(model, **data)

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        return sdk.AsyncOpenAI(**options)

    async def _open(self, client: Any, arguments: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**arguments)

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        return _events(stream)

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": openai_messages(request.messages),
            "stream": True,
        }
        if self.include_usage:
            arguments["stream_options"] = {"include_usage": True}
        options = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            **self.additional_kwargs,
            **request.options,
        }
        limit = options.pop("max_tokens", None)
        if limit is not None:
            official = self.base_url is None or "api.openai.com" in self.base_url
            options[self.max_tokens_field or ("max_completion_tokens" if official else "max_tokens")] = limit
        arguments |= {name: value for name, value in options.items() if value is not None}
        if request.tools:
            arguments["tools"] = [{"type": "function", "function": one.model_dump()} for one in request.tools]
            choice = request.tool_choice
            if isinstance(choice, str) and choice not in {"auto", "required", "none"}:
                choice = {"type": "function", "function": {"name": choice}}
            if choice is not None:
                arguments["tool_choice"] = choice
            if request.parallel_tool_calls is False:
                # Allowing it is the default, and models that cannot do it refuse the option itself.
                arguments["parallel_tool_calls"] = False
        return arguments


class DeepSeek(OpenAI):
    """A model of DeepSeek's.

    Args:
        model: The model's name.
        data: See ``OpenAI``.

    Raises:
        LLMConfigurationError: Neither ``api_key`` nor ``DEEPSEEK_API_KEY``.

    Example:
        >>> llm = DeepSeek("deepseek-chat")
    """

    vendor: ClassVar[str] = "deepseek"
    key_variables: ClassVar[tuple[str, ...]] = ("DEEPSEEK_API_KEY",)

    def __init__(self, model: str = "deepseek-chat", **data: Any) -> None:
        if "api_base" not in data:
            data.setdefault("base_url", "https://api.deepseek.com")
        super().__init__(model, **data)


class _Calls:
    """Which call a piece belongs to: some servers leave out the index, or number every call 0."""

    def __init__(self) -> None:
        self._ids: list[str | None] = []
        self._slots: dict[int | None, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def slot(self, call: Any) -> int:
        """Position of the call that this piece belongs to."""
        known = self._slots.get(call.index)
        begins = call.function is not None and bool(call.function.name)
        if known is not None and begins:
            # A new name under a number in use: another call, unless it is the same one named again.
            same = call.id == self._ids[known] if call.id else call.index is not None
            known = known if same else None
        if known is None:
            self._ids.append(call.id)
            known = self._slots[call.index] = len(self._ids) - 1
        return known


async def _events(stream: Any) -> AsyncGenerator[StreamEvent, None]:
    reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    thoughts: list[str] = []
    calls = _Calls()
    chunk: Any = None
    async for chunk in stream:
        model = chunk.model or model
        if chunk.usage is not None:
            usage = _usage(chunk.usage)
        # After the last choice comes a chunk with token counts and no choice at all.
        for choice in (chunk.choices or ())[:1]:
            delta = choice.delta
            thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
            if thought:
                thoughts.append(thought)
                yield ThinkingDelta(text=thought, raw=chunk)
            elif thoughts and (delta.content or delta.tool_calls):
                yield BlockDone(block=ThinkingBlock(content="".join(thoughts)), raw=chunk)
                thoughts.clear()
            text = delta.content or getattr(delta, "refusal", None)
            if text:
                yield TextDelta(text=text, raw=chunk)
            for call in delta.tool_calls or ():
                function = call.function
                yield ToolCallDelta(
                    index=calls.slot(call),
                    id=call.id or None,
                    name=(function.name if function is not None else None) or None,
                    arguments=(function.arguments if function is not None else None) or "",
                    extra=_extra(call),
                    raw=chunk,
                )
            reason = choice.finish_reason or reason
    if reason is None:
        return
    if thoughts:
        yield BlockDone(block=ThinkingBlock(content="".join(thoughts)))
    if calls and reason == "stop":
        # What some servers say about an answer that consists of calls.
        reason = "tool_calls"
    yield Finish(
        reason=_REASONS.get(reason, reason),
        usage=usage,
        model=model,
        request_id=stream.response.headers.get("x-request-id"),
        raw=chunk,
    )


def _extra(call: Any) -> dict[str, Any] | None:
    """What a server adds to a call and wants back with it."""
    extra = getattr(call, "extra_content", None)
    return None if extra is None else {"extra_content": extra}


def _usage(usage: Any) -> Usage:
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(read.cached_tokens if read is not None else 0) or 0,
        cache_write_tokens=(getattr(read, "cache_write_tokens", 0) if read is not None else 0) or 0,
        reasoning_tokens=(written.reasoning_tokens if written is not None else 0) or 0,
    )


def openai_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """A conversation in the form of OpenAI's chat completions."""
    return [_message(message) for message in messages]


def _message(message: ChatMessage) -> dict[str, Any]:
    role = _ROLES[message.role]
    if role == "tool":
        return {
            "role": role,
            "tool_call_id": message.additional_kwargs.get("tool_call_id", ""),
            "content": message.content or "",
        }
    if role == "assistant":
        return _assistant(message)
    if all(isinstance(block, TextBlock) for block in message.blocks):
        return {"role": role, "content": message.content or ""}
    parts = [part for part in map(_part, message.blocks) if part is not None]
    return {"role": role, "content": parts}


def _assistant(message: ChatMessage) -> dict[str, Any]:
    extras = message.additional_kwargs.get("tool_call_extras", {})
    texts = {block.tool_call_id: block.tool_kwargs for block in message.blocks if isinstance(block, ToolCallBlock)}
    calls: list[dict[str, Any]] = []
    for one in tool_selections(message):
        given = texts.get(one.tool_id)
        # Arguments that were no JSON go back as the model wrote them, or it could not see its mistake.
        arguments = given if isinstance(given, str) and one.invalid_arguments else json.dumps(one.tool_kwargs)
        call = {"id": one.tool_id, "type": "function", "function": {"name": one.tool_name, "arguments": arguments}}
        calls.append({**call, **extras.get(one.tool_id, {})})
    converted: dict[str, Any] = {"role": "assistant", "content": message.content or (None if calls else "")}
    if calls:
        converted["tool_calls"] = calls
    return converted


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
        case DocumentBlock():
            return {"type": "file", "file": {"filename": block.title, "file_data": block.inline_url()}}
        case _:
            return None

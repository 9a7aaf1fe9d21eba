"""OpenAI's Responses API."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pydantic import Field

from batonflow.llms.blocks import (
    AudioBlock,
    CachePoint,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from batonflow.llms.errors import LLMError
from batonflow.llms.lazy_fields import arguments_text
from batonflow.llms.messages import ChatMessage, MessageRole
from batonflow.llms.openai import cache_breakpoint
from batonflow.llms.openai_sdk import OpenAISDKModel, usage_from_counts
from batonflow.llms.sdk_body import ErrorEvent
from batonflow.llms.sdk_errors import error_class_of, redacted
from batonflow.llms.sdk_model import unsupported
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import chosen_tool, tool_call_blocks, wire_id, wire_name
from batonflow.llms.usage import Usage

__all__ = ["OpenAIResponses", "responses_input"]

_ROLES = {MessageRole.SYSTEM: "system", MessageRole.DEVELOPER: "developer", MessageRole.USER: "user"}

# OpenAI's own servers refuse longer ids of calls.
_LONGEST_ID = 64

# Events that only keep a connection alive.
_KEEPALIVES = ("keepalive", "ping")

# Compatible servers may leave the status out.
_ENDED = ("completed", "incomplete", None)
_INCOMPLETE = {"max_output_tokens": "length"}


class OpenAIResponses(OpenAISDKModel):
    """A model behind OpenAI's Responses API.

    The vendor stores nothing unless ``store`` is set: encrypted thoughts are sent back with the conversation.

    Args:
        model: The model's name.
        reasoning_effort: The effort of thinking: ``none``, ``low``, ``medium``, ``high`` and so on.
        reasoning: Further options of thinking: ``{"summary": "auto"}`` shows a summary of the thoughts.
        store: Whether the vendor stores the response.
        built_in_tools: Tools that the vendor runs: ``[{"type": "web_search"}]``.
        data: Options of every SDK model (see ``SDKModel``).

    Raises:
        MissingKeyError: Neither ``api_key`` nor ``OPENAI_API_KEY`` is set.

    Example:
        >>> llm = OpenAIResponses("gpt-5.6", reasoning={"summary": "auto"})
        >>> print(llm.complete("Say hello."))
    """

    reasoning: dict[str, Any] | None = None
    store: bool = False
    built_in_tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])

    # Repeated here, because type checkers derive a constructor with keywords for every pydantic model.
    def __init__(self, model: str = "gpt-5.6", **data: Any) -> None:
        super().__init__(model, **data)

    @property
    def native_output_schema(self) -> bool:
        """Always True."""
        return True

    def _method(self, client: Any, body: dict[str, Any]) -> Any:  # noqa: ARG002 - the same for every body
        return client.responses.create

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        return self._events(stream)

    def _read_whole(self, answer: Any) -> Iterable[StreamEvent]:
        if answer.status == "failed":
            raise ErrorEvent(answer.error.model_dump() if answer.error is not None else "the response failed")
        return _Reader().whole(answer)

    def _whole_class(self, sdk: Any, body: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the same for every body
        return sdk.types.responses.Response

    def _is_empty(self, chunk: Any) -> bool:
        return chunk.type in _KEEPALIVES

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        if "max_tokens" in options:
            options["max_output_tokens"] = options.pop("max_tokens")
        if "reasoning_effort" in options:
            options["reasoning"] = {**(self.reasoning or {}), "effort": options.pop("reasoning_effort")}
        return options

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        effort = {"effort": self.reasoning_effort} if self.reasoning_effort is not None else {}
        body: dict[str, Any] = {
            "model": self.model,
            "input": responses_input(request.messages, self.official),
            "store": self.store,
            "temperature": self.temperature,
            "max_output_tokens": self.max_tokens,
            "reasoning": {**(self.reasoning or {}), **effort} or None,
        }
        schema = request.output_schema
        if schema is not None:
            named = {"name": schema.name, "schema": schema.parameters, "strict": True}
            body["text"] = {"format": {"type": "json_schema", **named}}
        tools = [*self.built_in_tools, *map(self._function, request.tools)]
        if tools:
            body["tools"] = tools
        if request.tools:
            name = chosen_tool(request.tool_choice, request.tools)
            body["tool_choice"] = request.tool_choice if name is None else {"type": "function", "name": name}
            body["parallel_tool_calls"] = False if request.parallel_tool_calls is False else None
        return body

    def _function(self, tool: Any) -> dict[str, Any]:
        schema, strict = self._tool_schema(tool)
        # The default is True, with which the vendor refuses schemas that have no strict form.
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": schema,
            "strict": strict,
        }

    async def _events(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        reader = _Reader()
        async for event in stream:
            match event.type:
                case "response.completed" | "response.incomplete":
                    yield reader.finish(event.response, event.type == "response.incomplete", event)
                    return
                case "response.failed":
                    error = event.response.error
                    raise self._failure(getattr(error, "code", None), getattr(error, "message", None), stream)
                case "error":
                    raise self._failure(event.code, event.message, stream)
                case _:
                    for one in reader.events(event):
                        yield one

    def _failure(self, code: str | None, message: str | None, stream: Any) -> LLMError:
        """Return the error for a failure reported in the stream, after the HTTP status."""
        text = redacted(message or "the response failed", self._secrets({}))
        kind = error_class_of({"code": code}, text)
        return kind(
            f"{text} [{code}]" if code else text,
            status_code=stream.response.status_code,
            request_id=self._request_id(stream.response.headers),
            vendor=self.vendor,
            model=self.model,
        )


class _Reader:
    """Reader of the events of a stream, in order."""

    def __init__(self) -> None:
        self._written: set[int] = set()
        self._calls = 0
        self._refused = False
        self._phases: list[dict[str, str]] = []
        self._annotations: list[dict[str, Any]] = []

    def events(self, event: Any) -> list[StreamEvent]:
        """Return the stream events of an event."""
        match event.type:
            case "response.output_text.delta":
                self._written.add(event.output_index)
                return [TextDelta(text=event.delta, part=event.output_index, raw=event)]
            case "response.refusal.delta":
                self._refused = True
                self._written.add(event.output_index)
                return [TextDelta(text=event.delta, part=event.output_index, raw=event)]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ThinkingDelta(text=event.delta, raw=event)]
            case "response.function_call_arguments.delta" if event.delta:
                self._written.add(event.output_index)
                return [ToolCallDelta(index=event.output_index, arguments=event.delta, raw=event)]
            case "response.output_item.added" if event.item.type == "function_call":
                self._calls += 1
                item = event.item
                return [ToolCallDelta(index=event.output_index, id=item.call_id or None, name=item.name, raw=event)]
            case "response.output_item.done":
                return self._done(event)
            case _:
                # Other events repeat this data, or carry nothing that a response needs.
                return []

    def _done(self, event: Any) -> list[StreamEvent]:
        item, written = event.item, event.output_index in self._written
        match item.type:
            case "message":
                return self._message(event, written)
            case "reasoning":
                return [BlockDone(block=_thought(item), raw=event)]
            case "function_call":
                # Some servers send the arguments only with the complete item.
                left = "" if written else item.arguments or "{}"
                return [ToolCallDelta(index=event.output_index, arguments=left, raw=event)] if left else []
            case _:
                data = item.model_dump(mode="json", exclude_none=True)
                return [BlockDone(block=NativeBlock(vendor="openai", data=data), raw=event)]

    def _message(self, event: Any, written: bool) -> list[StreamEvent]:
        text = "".join(
            getattr(part, "text", None) or getattr(part, "refusal", None) or "" for part in event.item.content
        )
        for part in event.item.content:
            self._refused = self._refused or part.type == "refusal"
            noted = cast("Iterable[Any]", getattr(part, "annotations", None) or ())
            self._annotations += [note.model_dump(mode="json") for note in noted]
        if event.item.phase:
            self._phases.append({"text": text, "phase": event.item.phase})
        return [] if written or not text else [TextDelta(text=text, part=event.output_index, raw=event)]

    def whole(self, response: Any) -> list[StreamEvent]:
        """Return the events of a whole response; without ``Finish`` when it is incomplete."""
        events: list[StreamEvent] = []
        for number, item in enumerate(response.output):
            if item.type == "function_call":
                self._calls += 1
                begun = ToolCallDelta(index=number, id=item.call_id or None, name=item.name, raw=response)
                events.append(begun)
            done = self._done(SimpleNamespace(item=item, output_index=number))
            for event in done:
                event.raw = response
                if isinstance(event, BlockDone) and isinstance(event.block, ThinkingBlock) and event.block.content:
                    events.append(ThinkingDelta(text=event.block.content, raw=response))
                events.append(event)
        if response.status in _ENDED:
            events.append(self.finish(response, response.status == "incomplete", response))
        return events

    def finish(self, response: Any, is_incomplete: bool, raw: Any) -> Finish:
        """Return the terminal mark."""
        if is_incomplete:
            details = getattr(response.incomplete_details, "reason", None) or "incomplete"
            reason = _INCOMPLETE.get(details, details)
        elif self._refused:
            reason = "refusal"
        else:
            reason = "tool_calls" if self._calls else "stop"
        return Finish(
            reason=reason,
            usage=_usage(response.usage),
            model=response.model,
            raw=raw,
            additional_kwargs={"annotations": self._annotations} if self._annotations else {},
            message_kwargs={"phases": self._phases} if self._phases else {},
        )


def _thought(item: Any) -> ThinkingBlock:
    # The item of response.completed has other encrypted content; this one has to be sent back.
    summary = [part.text for part in item.summary or ()]
    content = [part.text for part in item.content or ()]
    information: dict[str, Any] = {"id": item.id}
    if item.encrypted_content is not None:
        information["encrypted_content"] = item.encrypted_content
    if len(summary) > 1:
        information["summary"] = summary
    if content and not summary:
        information["summary"] = []
    return ThinkingBlock(content="".join(summary or content), additional_information=information)


def _usage(usage: Any) -> Usage | None:
    if usage is None:
        return None
    return usage_from_counts(
        usage.input_tokens, usage.output_tokens, usage.input_tokens_details, usage.output_tokens_details
    )


def responses_input(messages: Sequence[ChatMessage], official: bool = True) -> list[dict[str, Any]]:
    """Return a conversation in the form of OpenAI's Responses API.

    Args:
        messages: The conversation.
        official: Whether the server is OpenAI's own, which refuses long ids.

    Raises:
        LLMRequestError: A message contains a block that the API does not take.
    """
    longest = _LONGEST_ID if official else None
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.role in {MessageRole.TOOL, MessageRole.FUNCTION}:
            call_id = wire_id(message.additional_kwargs.get("tool_call_id"), longest)
            plain = all(isinstance(block, TextBlock) for block in message.blocks)
            output = message.content or "" if plain else _parts(message.blocks)
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        elif message.role in _ROLES:
            plain = all(isinstance(block, TextBlock) for block in message.blocks)
            content = message.content or "" if plain else _parts(message.blocks)
            items.append({"role": _ROLES[message.role], "content": content})
        else:
            items.extend(_assistant_items(message, longest))
    return _without_lone_thoughts(items)


def _without_lone_thoughts(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``items`` without thoughts that no item follows, as in a response cut off while thinking.

    The vendor refuses a thought without the item that followed it.
    """
    kept: list[dict[str, Any]] = []
    said_behind = False
    for item in reversed(items):
        kind = item.get("type")
        if kind != "reasoning":
            said_behind = kind != "function_call_output" and item.get("role", "assistant") == "assistant"
        elif not said_behind:
            continue
        kept.append(item)
    kept.reverse()
    return kept


def _assistant_items(message: ChatMessage, longest: int | None) -> list[dict[str, Any]]:
    """Return the items of an assistant message in their order."""
    phases = {one["text"]: one["phase"] for one in message.additional_kwargs.get("phases", ())}
    calls = iter(tool_call_blocks(message))
    items: list[dict[str, Any]] = []
    for block in message.blocks:
        match block:
            case TextBlock() if block.text:
                item: dict[str, Any] = {"role": "assistant", "content": block.text}
                items.append({**item, "phase": phases[block.text]} if block.text in phases else item)
            case ThinkingBlock() if "encrypted_content" in block.additional_information:
                items.append(_reasoning(block))
            case ToolCallBlock():
                items.append(_call(next(calls), longest))
            case NativeBlock() if block.vendor == "openai":
                items.append(block.data)
            case _:
                # Thoughts of other vendors, and blocks that an assistant message cannot contain.
                continue
    return [*items, *(_call(call, longest) for call in calls)]


def _reasoning(block: ThinkingBlock) -> dict[str, Any]:
    information = block.additional_information
    summary = cast("list[str]", information.get("summary", [block.content] if block.content else []))
    return {
        "type": "reasoning",
        "id": information.get("id", ""),
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": information["encrypted_content"],
    }


def _call(block: ToolCallBlock, longest: int | None) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": wire_id(block.tool_call_id, longest),
        "name": wire_name(block.tool_name),
        "arguments": arguments_text(block),
    }


def _parts(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case CachePoint():
                if parts:
                    parts[-1]["prompt_cache_breakpoint"] = cache_breakpoint(block)
            case TextBlock():
                parts.append({"type": "input_text", "text": block.text})
            case ImageBlock():
                url = block.url or block.inline_url()
                parts.append({"type": "input_image", "image_url": url, "detail": block.detail or "auto"})
            case DocumentBlock() if block.url is not None and block.url.startswith(("http://", "https://")):
                parts.append({"type": "input_file", "file_url": block.url})
            case DocumentBlock():
                parts.append({"type": "input_file", "filename": block.title, "file_data": block.inline_url()})
            case CitableBlock():
                parts.extend(_parts(block.content))
            case AudioBlock() | VideoBlock():
                raise unsupported(block, "OpenAI's Responses")
            case _:
                continue
    return parts

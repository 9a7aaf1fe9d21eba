"""Anthropic's Messages API."""

import json
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from pydantic import Field

from batonflow.llms.blocks import (
    AudioBlock,
    CachePoint,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from batonflow.llms.messages import ChatMessage, MessageRole
from batonflow.llms.sdk_model import SDKModel, unsupported
from batonflow.llms.stream import BlockDone, ChatRequest, Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batonflow.llms.tool_protocol import chosen_tool, parse_arguments, tool_call_blocks, wire_name
from batonflow.llms.usage import Usage

__all__ = ["Anthropic"]

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
}

_MARK, _MOST_MARKS = "cache_control", 4
_UNMARKED = ("thinking", "redacted_thinking")
_SYSTEM = (MessageRole.SYSTEM, MessageRole.DEVELOPER)
_RESULT = (MessageRole.TOOL, MessageRole.FUNCTION)
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


class Anthropic(SDKModel):
    """A model of Anthropic.

    Args:
        model: The model's name.
        max_tokens: The maximum of output tokens, which the API requires.
        thinking: The mode of thinking: ``{"type": "adaptive"}``, or ``{"type": "enabled", "budget_tokens": 2048}``.
        effort: The effort of the model: ``low`` to ``max``.
        built_in_tools: Tools that the vendor runs: ``[{"type": "web_search_20250305", "name": "web_search"}]``.
        data: Options of every SDK model (see ``SDKModel``). ``betas`` in ``additional_kwargs``, or in the options of a
            call, selects the beta endpoint.

    Raises:
        MissingKeyError: Neither ``api_key`` nor ``ANTHROPIC_API_KEY`` nor ``ANTHROPIC_AUTH_TOKEN`` is set.

    Example:
        >>> llm = Anthropic("claude-sonnet-5", thinking={"type": "adaptive"})
        >>> print(llm.complete("Say hello."))
    """

    vendor: ClassVar[str] = "anthropic"
    sdk_name: ClassVar[str] = "anthropic"
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    url_variable: ClassVar[str | None] = "ANTHROPIC_BASE_URL"

    thinking: dict[str, Any] | None = None
    effort: str | None = None
    built_in_tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    context_window: int = 200_000

    def __init__(self, model: str = "claude-sonnet-5", **data: Any) -> None:
        data.setdefault("max_tokens", 4096)
        super().__init__(model, **data)

    @property
    def native_output_schema(self) -> bool:
        """Always True."""
        return True

    def _make_client(self, sdk: Any, options: dict[str, Any]) -> Any:
        if not os.environ.get("ANTHROPIC_API_KEY") and options["api_key"] == os.environ.get("ANTHROPIC_AUTH_TOKEN"):
            # The SDK takes tokens and keys as separate arguments.
            options["auth_token"] = options.pop("api_key")
        return sdk.AsyncAnthropic(**options)

    def _method(self, client: Any, body: dict[str, Any]) -> Any:
        return client.beta.messages.create if "betas" in body else client.messages.create

    def _read(self, stream: Any) -> AsyncGenerator[StreamEvent, None]:
        return _events(stream)

    def _read_whole(self, answer: Any) -> Iterable[StreamEvent]:
        return _Reader().whole(answer)

    def _whole_class(self, sdk: Any, body: Mapping[str, Any]) -> Any:
        return sdk.types.beta.BetaMessage if "betas" in body else sdk.types.Message

    def _is_empty(self, chunk: Any) -> bool:
        return chunk.type == "ping"

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("request-id")

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        system, messages = anthropic_messages(request.messages)
        output: dict[str, Any] = {}
        if self.effort is not None:
            output["effort"] = self.effort
        if request.output_schema is not None:
            output["format"] = {"type": "json_schema", "schema": request.output_schema.parameters}
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": messages,
            "system": system or None,
            "temperature": self.temperature,
            "thinking": self.thinking,
            "output_config": output or None,
        }
        tools = [*self.built_in_tools, *map(self._tool, request.tools)]
        if tools:
            body["tools"] = tools
        if request.tools:
            body["tool_choice"] = _tool_choice(request)
        return body

    def _tool(self, tool: Any) -> dict[str, Any]:
        schema, strict = self._tool_schema(tool)
        made = {"name": tool.name, "description": tool.description, "input_schema": schema}
        return {**made, "strict": True} if strict else made


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
        case _:
            made = {"type": "tool", "name": chosen_tool(choice, request.tools)}
    if request.parallel_tool_calls is False:
        made["disable_parallel_tool_use"] = True
    return None if made == {"type": "auto"} else made


class _Counts:
    """Token counts, which arrive in two events; their input does not include the cache."""

    def __init__(self) -> None:
        self._input = self._output = self._read = self._written = self._thought = 0
        self._has_counts = False

    def add(self, usage: Any) -> None:
        # Compatible servers leave out counts that have not changed.
        if usage is None:
            return
        self._has_counts = True
        self._input = usage.input_tokens or self._input
        # The count at the start is an estimate; the final count may be zero.
        self._output = self._output if usage.output_tokens is None else usage.output_tokens
        self._read = usage.cache_read_input_tokens or self._read
        self._written = usage.cache_creation_input_tokens or self._written
        details = getattr(usage, "output_tokens_details", None)
        self._thought = getattr(details, "thinking_tokens", None) or self._thought

    def usage(self) -> Usage | None:
        if not self._has_counts:
            return None
        return Usage(
            input_tokens=self._input + self._read + self._written,
            output_tokens=self._output,
            cached_tokens=self._read,
            cache_write_tokens=self._written,
            reasoning_tokens=self._thought,
        )


async def _events(stream: Any) -> AsyncGenerator[StreamEvent, None]:
    reader = _Reader()
    async for event in stream:
        for one in reader.events(event):
            yield one
        if event.type == "message_stop":
            return


class _Reader:
    """Reads the events of a stream in order."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._reason = "stop"
        self._details: dict[str, Any] = {}
        self._model: str | None = None
        self._thoughts: dict[int, _Thought] = {}
        self._natives: dict[int, _Native] = {}
        self._without_arguments: set[int] = set()
        self._citations: list[CitationBlock] = []

    def events(self, event: Any) -> list[StreamEvent]:
        """Return the stream events of an event."""
        match event.type:
            case "message_start":
                self._model = event.message.model
                self._counts.add(event.message.usage)
            case "content_block_start":
                return self._started(event)
            case "content_block_delta":
                return self._piece(event)
            case "content_block_stop":
                return self._stopped(event)
            case "message_delta":
                self._end(event.delta, event.usage)
            case "message_stop":
                return self._ending(event)
            case _:
                # Unknown kinds of events carry nothing that a response needs.
                pass
        return []

    def whole(self, message: Any) -> list[StreamEvent]:
        """Return the events of a whole response."""
        self._model = message.model
        events: list[StreamEvent] = []
        for number, block in enumerate(message.content):
            match block.type:
                case "text":
                    self._citations += map(_citation, block.citations or ())
                case "thinking" if block.thinking:
                    events.append(ThinkingDelta(text=block.thinking, raw=message))
                case _:
                    pass
            begun = SimpleNamespace(content_block=block, index=number)
            for event in (*self._started(begun), *self._stopped(begun)):
                event.raw = message
                events.append(event)
        self._end(message, message.usage)
        return [*events, *self._ending(message)]

    def _end(self, message: Any, usage: Any) -> None:
        """Store the stop reason and the token counts."""
        self._reason = message.stop_reason or self._reason
        details = getattr(message, "stop_details", None)
        if details is not None:
            self._details = {"stop_details": details.model_dump(mode="json")}
        self._counts.add(usage)

    def _ending(self, event: Any) -> list[StreamEvent]:
        # Citations are added after the text, so that they do not split a sentence.
        cited: list[StreamEvent] = [BlockDone(block=block, raw=event) for block in self._citations]
        finish = Finish(
            reason=_REASONS.get(self._reason, self._reason),
            usage=self._counts.usage(),
            model=self._model,
            raw=event,
            additional_kwargs=self._details,
        )
        return [*cited, finish]

    def _started(self, event: Any) -> list[StreamEvent]:
        block = event.content_block
        match block.type:
            case "text":
                return [TextDelta(text=block.text, raw=event)] if block.text else []
            case "thinking":
                kept = {"signature": block.signature} if block.signature else {}
                self._thoughts[event.index] = _Thought(block.thinking or "", kept)
            case "redacted_thinking":
                self._thoughts[event.index] = _Thought("", {"data": block.data})
            case "tool_use":
                given: Any = block.input  # an object, but text from some compatible servers
                arguments = given if isinstance(given, str) else json.dumps(given) if given else ""
                if not arguments:
                    self._without_arguments.add(event.index)
                return [ToolCallDelta(index=event.index, id=block.id, name=block.name, arguments=arguments, raw=event)]
            case _:
                self._natives[event.index] = _Native(block.model_dump(mode="json", exclude_none=True))
        return []

    def _piece(self, event: Any) -> list[StreamEvent]:
        delta, index = event.delta, event.index
        match delta.type:
            case "text_delta":
                return [TextDelta(text=delta.text, raw=event)]
            case "input_json_delta" if index in self._natives:
                self._natives[index].pieces.append(delta.partial_json)
            case "input_json_delta" if delta.partial_json:
                self._without_arguments.discard(index)
                return [ToolCallDelta(index=index, arguments=delta.partial_json, raw=event)]
            case "thinking_delta" if index in self._thoughts:
                self._thoughts[index].pieces.append(delta.thinking)
                return [ThinkingDelta(text=delta.thinking, raw=event)]
            case "signature_delta" if index in self._thoughts:
                self._thoughts[index].information["signature"] = delta.signature
            case "citations_delta":
                self._citations.append(_citation(delta.citation))
            case _:
                pass
        return []

    def _stopped(self, event: Any) -> list[StreamEvent]:
        if event.index in self._thoughts:
            return [BlockDone(block=self._thoughts.pop(event.index).block(), raw=event)]
        if event.index in self._natives:
            native = self._natives.pop(event.index).block()
            return [] if native is None else [BlockDone(block=native, raw=event)]
        if event.index in self._without_arguments:
            return [ToolCallDelta(index=event.index, arguments="{}", raw=event)]
        return []


class _Thought:
    """A thought that is arriving."""

    def __init__(self, begin: str, information: dict[str, Any]) -> None:
        # Joined once, because joining at every delta would take quadratic time.
        self.pieces = [begin]
        self.information = information

    def block(self) -> ThinkingBlock:
        return ThinkingBlock(content="".join(self.pieces), additional_information=self.information)


class _Native:
    """A vendor's own block that is arriving."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self.pieces: list[str] = []

    def block(self) -> NativeBlock | None:
        """Return the block; None when it is incomplete, because the vendor would refuse it."""
        text = "".join(self.pieces)
        if text:
            given = parse_arguments(text)
            if given is None:
                return None
            self._data["input"] = given
        return NativeBlock(vendor="anthropic", data=self._data)


def _citation(citation: Any) -> CitationBlock:
    data = citation.model_dump(mode="json", exclude_none=True)
    title = data.get("document_title") or data.get("title") or ""
    return CitationBlock(
        cited_content=TextBlock(text=data.get("cited_text", "")),
        source=data.get("url") or data.get("source") or title,
        title=title,
        additional_location_info={name: value for name, value in data.items() if isinstance(value, int)},
    )


def anthropic_messages(messages: Sequence[ChatMessage]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a conversation in the form of Anthropic's API: the system blocks, and messages in alternating roles.

    Later system messages stay in their place as user messages. Not every model takes a system message there, and moving
    them to the system blocks would change their context and the cached prefix.
    """
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    ids = _CallIds()
    begun = False
    for message in messages:
        if message.role in _SYSTEM and not begun:
            _append(system, message.blocks)
            continue
        begun = True
        content: list[dict[str, Any]] = []
        if message.role in _RESULT:
            role = "user"
            content.append(_tool_result(message, ids))
        elif message.role in _SYSTEM or message.role is MessageRole.USER:
            role = "user"
            _append(content, message.blocks)
        else:
            role = "assistant"
            _append(content, _with_calls(message, ids))
        if not turns or turns[-1]["role"] != role:
            if content:
                turns.append({"role": role, "content": content})
            continue
        # The results of parallel calls must come first in one message.
        last_content = turns[-1]["content"]
        place = _leading_results(last_content) if message.role in _RESULT else len(last_content)
        last_content[place:place] = content
    blocks = [*system, *(one for turn in turns for one in turn["content"])]
    marked = [block for block in _inside(blocks) if _MARK in block]
    for block in marked[:-_MOST_MARKS]:  # the API limits the marks, and the last ones cover the longest prefix
        del block[_MARK]
    return system, turns


def _inside(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the blocks in the order for tool results, contained blocks first."""
    for block in blocks:
        if isinstance(block.get("content"), list):
            yield from _inside(block["content"])
        yield block


def _leading_results(content: Sequence[Mapping[str, Any]]) -> int:
    return next((place for place, one in enumerate(content) if one["type"] != "tool_result"), len(content))


class _CallIds:
    """Unique names for the calls of a request, in the characters that the API accepts.

    Other vendors number the calls of each response from the start. A name depends only on the calls before it, so that
    the names in a growing conversation stay the same and the cache applies.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._tried: dict[str, int] = {}
        self._newest: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """Return a new name for a call."""
        clean = name = _clean_id(call_id)
        while name in self._used:
            number = self._tried[clean] = self._tried.get(clean, 1) + 1
            name = f"{clean}_{number}"
        self._used.add(name)
        self._newest[call_id] = name
        return name

    def of_result(self, call_id: str) -> str:
        """Return the name of the newest call with this id."""
        return self._newest.get(call_id) or _clean_id(call_id)


def _with_calls(message: ChatMessage, ids: _CallIds) -> list[Any]:
    """Return the blocks that an assistant message can contain, with calls in the older form as blocks."""
    made = tool_call_blocks(message)
    for call in made:
        call.tool_call_id = ids.of_call(call.tool_call_id or "")
    calls = iter(made)
    allowed = [block for block in message.blocks if not isinstance(block, MediaBlock | CitableBlock)]
    blocks = [next(calls) if isinstance(block, ToolCallBlock) else block for block in allowed]
    return [*blocks, *calls]


def _tool_result(message: ChatMessage, ids: _CallIds) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    _append(content, message.blocks)
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": ids.of_result(message.additional_kwargs.get("tool_call_id") or ""),
        "content": content,
    }
    # The API refuses is_error beside other content than text and without content, so errors are text.
    if message.additional_kwargs.get("is_error") and content and all(one["type"] == "text" for one in content):
        result["is_error"] = True
    return result


def _clean_id(call_id: str | None) -> str:
    return _NOT_IN_IDS.sub("_", call_id or "")


def _append(content: list[dict[str, Any]], blocks: Sequence[Any]) -> None:
    for block in blocks:
        if isinstance(block, CachePoint):
            # Thoughts cannot carry the mark, so it moves to the block before them.
            marked = next((one for one in reversed(content) if one["type"] not in _UNMARKED), None)
            if marked is not None:
                marked[_MARK] = block.cache_control.model_dump()
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
            # The API requires an object, so other arguments are wrapped in one that shows them.
            given = block.tool_kwargs
            return {
                "type": "tool_use",
                "id": _clean_id(block.tool_call_id),
                "name": wire_name(block.tool_name),
                "input": given if isinstance(given, dict) else {"invalid_json": given},
            }
        case NativeBlock() if block.vendor == "anthropic":
            # A copy, because a cache point may add a mark, and the message belongs to the caller.
            return dict(block.data)
        case AudioBlock() | VideoBlock():
            raise unsupported(block, "Anthropic's messages")
        case _:
            return None


def _thought(block: ThinkingBlock) -> dict[str, Any] | None:
    """Return a thought unchanged; None for thoughts of other vendors, which have no signature."""
    information = block.additional_information
    if "data" in information:
        return {"type": "redacted_thinking", "data": information["data"]}
    if "signature" not in information:
        return None
    return {"type": "thinking", "thinking": block.content or "", "signature": information["signature"]}


def _source(block: ImageBlock | DocumentBlock) -> dict[str, Any]:
    """Return the source of an image or document: a URL that the API fetches, or the data."""
    if block.url is not None and block.url.startswith(("http://", "https://")):
        return {"type": "url", "url": block.url}
    head, _, data = block.inline_url().partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64")
    if kind.startswith("text/") and isinstance(block, DocumentBlock):
        return {"type": "text", "media_type": "text/plain", "data": block.resolve_document().read().decode()}
    return {"type": "base64", "media_type": kind, "data": data}

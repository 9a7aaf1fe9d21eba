"""The APIs of the matrix: how each is asked, what each sends, and what its answers are in our terms.

What an answer should be is told from what the vendor's SDK alone reads of it, never from what an adapter makes of it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import anthropic as anthropic_sdk
import openai as openai_sdk

from batonflow.llms import (
    Anthropic,
    ChatMessage,
    ChatResponse,
    CitationBlock,
    ContentBlock,
    DeepSeek,
    NativeBlock,
    Ollama,
    OpenAI,
    OpenAILike,
    OpenAIResponses,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.content import RedactedThinking, Refusal, Said, Text, Thinking, ToolCall, WebSearch
from tests.llms.wire.readers import How, raw_read_anthropic, raw_read_chat, raw_read_responses

__all__ = [
    "API",
    "APIS",
    "HEADER_VALUE",
    "KEY",
    "MODEL",
    "AnthropicAPI",
    "ChatAPI",
    "Entry",
    "ResponsesAPI",
    "Results",
    "check_answer",
    "parsed",
]

MODEL = "asked-model"
KEY = "recognisable.key.0123456789"
HEADER_VALUE = "recognisable.header.0123456789"


@dataclass(frozen=True)
class Results:
    """What tools answered: texts by the id of the call."""

    texts: dict[str, str]


Entry: TypeAlias = str | Said | Results
"""A part of a conversation: the user's words, a model's answer as the SDK alone read it, results of tools."""


@dataclass(frozen=True, eq=False)
class API(ABC):
    """An API, or a dialect of one.

    Args:
        name: Heading of its column.
        adapter: The adapter under test.
        about: What the column stands for.
        options: For the adapter's constructor.
    """

    name: str
    adapter: type[SDKModel]
    about: str
    options: dict[str, Any] = field(default_factory=dict)

    sdk: ClassVar[ModuleType] = openai_sdk
    wire: ClassVar[ModuleType]
    request_id_header: ClassVar[str] = "x-request-id"
    # Where an address of the vendor's begins, and the path under it.
    base: ClassVar[str] = "/v1"
    route: ClassVar[str]

    @property
    def vendor(self) -> str:
        """Whose it is, as errors and responses say."""
        return self.adapter.vendor

    @property
    def path(self) -> str:
        """Where requests go."""
        return self.base + self.route

    def model(self, url: str, **options: Any) -> SDKModel:
        """An adapter that asks the server at ``url``."""
        settings = {"api_key": KEY, "base_url": url + self.base, "max_retries": 0, "timeout": 20, **self.options}
        return self.adapter(MODEL, **{**settings, **options})

    def stream(self, said: Said) -> bytes:
        """An answer as the vendor streams it."""
        return self.wire.stream(said)

    def unfinished(self, said: Said) -> bytes:
        """The same without its terminal mark."""
        return self.wire.unfinished(said)

    def body(self, said: Said) -> dict[str, Any]:
        """An answer in one piece."""
        return self.wire.body(said)

    def carried(self, said: Said) -> Said:
        """What of ``said`` arrives."""
        return self.wire.carried(said)

    def error(self, name: str) -> Answer:
        """An error in the vendor's form."""
        return self.wire.error(name)

    @abstractmethod
    async def raw(self, url: str, how: How = "stream") -> Said:
        """What the SDK alone reads of the server's answer."""

    @abstractmethod
    def blocks(self, read: Said) -> Iterator[ContentBlock]:
        """What the SDK read, as the blocks of a message."""

    def reason(self, read: Said) -> str:
        """What the SDK read of the end."""
        if any(isinstance(part, Refusal) for part in read.parts):
            return "refusal"
        return read.stop or ""

    def extras(self, read: Said) -> dict[str, Any]:
        """What the response says beside the message."""
        return {}

    def kept(self, read: Said, calls: Sequence[ToolCallBlock]) -> dict[str, Any]:
        """What the message keeps for its vendor beside the blocks."""
        return {}

    @abstractmethod
    def asked(self, system: str, *entries: Entry) -> dict[str, Any]:
        """The whole body of a request with this conversation, and nothing else in it."""

    @abstractmethod
    def tools(self, *tools: dict[str, Any], strict: bool = False) -> dict[str, Any]:
        """What tools add to the body."""

    @abstractmethod
    def argument_piece(self, event: dict[str, Any]) -> tuple[Any, str] | None:
        """The piece of a call's arguments in an event of the stream, and which call it belongs to."""


def parsed(arguments: str) -> dict[str, Any] | str:
    """Arguments as a call holds them."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def compact(arguments: str) -> str:
    """Arguments as they go back."""
    given = parsed(arguments)
    return given if isinstance(given, str) else json.dumps(given, separators=(",", ":"), ensure_ascii=False)


def _call(call: ToolCall) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=parsed(call.arguments))


@dataclass(frozen=True, eq=False)
class ChatAPI(API):
    """OpenAI's chat completions, or a server that speaks them.

    Args:
        dialect: How the server departs from OpenAI's own.
        reasoning_field: Under which name it gets its thoughts back.
    """

    dialect: chat.Dialect = chat.OPENAI
    reasoning_field: str | None = None

    wire: ClassVar[ModuleType] = chat
    route: ClassVar[str] = "/chat/completions"

    @property
    def path(self) -> str:
        return ("/api.openai.com/v1" if self.adapter is OpenAI else "/v1") + self.route

    def model(self, url: str, **options: Any) -> SDKModel:
        if self.adapter is OpenAI:
            # A gateway to OpenAI's own address: there the adapter uses what only the original has.
            options = {"base_url": f"{url}/api.openai.com/v1", **options}
        return super().model(url, **options)

    def stream(self, said: Said) -> bytes:
        return chat.stream(said, self.dialect)

    def unfinished(self, said: Said) -> bytes:
        return chat.unfinished(said, self.dialect)

    def body(self, said: Said) -> dict[str, Any]:
        return chat.body(said, self.dialect)

    def carried(self, said: Said) -> Said:
        return chat.carried(said, self.dialect)

    async def raw(self, url: str, how: How = "stream") -> Said:
        return await raw_read_chat(url, how)

    def blocks(self, read: Said) -> Iterator[ContentBlock]:
        for part in read.parts:
            match part:
                case Thinking(text):
                    yield ThinkingBlock(content=text, additional_information={"vendor": self.vendor})
                case Text(text) | Refusal(text):
                    yield TextBlock(text=text)
                case ToolCall():
                    yield _call(part)

    def kept(self, read: Said, calls: Sequence[ToolCallBlock]) -> dict[str, Any]:
        if not (self.dialect.call_extra and calls):
            return {}
        extras = {call.tool_call_id: self.dialect.call_extra for call in calls}
        return {"tool_call_extras": extras, "tool_call_extras_from": self.vendor}

    def asked(self, system: str, *entries: Entry) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        for entry in entries:
            match entry:
                case str():
                    messages.append({"role": "user", "content": entry})
                case Said():
                    messages.append(self._said(entry))
                case Results(texts):
                    messages += [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in texts.items()]
        return {"model": MODEL, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}

    def _said(self, said: Said) -> dict[str, Any]:
        text = "".join(part.text for part in said.parts if isinstance(part, Text | Refusal))
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if said.calls else "")}
        if said.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": compact(call.arguments)},
                    **self.dialect.call_extra,
                }
                for call in said.calls
            ]
        thoughts = "".join(part.whole for part in said.parts if isinstance(part, Thinking))
        if self.reasoning_field and (thoughts or said.calls):
            message[self.reasoning_field] = thoughts
        return message

    def tools(self, *tools: dict[str, Any], strict: bool = False) -> dict[str, Any]:
        held = {"strict": True} if strict else {}
        return {"tools": [{"type": "function", "function": {**tool, **held}} for tool in tools]}

    def argument_piece(self, event: dict[str, Any]) -> tuple[Any, str] | None:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                return call.get("index"), call["function"]["arguments"]
        return None


@dataclass(frozen=True, eq=False)
class ResponsesAPI(API):
    """OpenAI's Responses."""

    wire: ClassVar[ModuleType] = responses
    route: ClassVar[str] = "/responses"

    async def raw(self, url: str, how: How = "stream") -> Said:
        return await raw_read_responses(url, how)

    def blocks(self, read: Said) -> Iterator[ContentBlock]:
        for number, part in enumerate(read.parts):
            match part:
                case Thinking(text, summary, signature):
                    information: dict[str, Any] = {"id": f"rs_{number}"}
                    if signature:
                        information["encrypted_content"] = signature
                    if len(summary) > 1 or (text and not summary):
                        information["summary"] = list(summary)
                    yield ThinkingBlock(content="".join(summary) or text, additional_information=information)
                case Text(text) | Refusal(text):
                    yield TextBlock(text=text)
                case ToolCall():
                    yield _call(part)
                case WebSearch():
                    yield NativeBlock(vendor="openai", data=self._search(part))

    @staticmethod
    def _search(search: WebSearch) -> dict[str, Any]:
        sources = [{"type": "url", "url": url} for url, _ in search.results]
        action = {"type": "search", "query": search.query, "queries": [search.query], "sources": sources}
        return {"type": "web_search_call", "id": search.id, "status": "completed", "action": action}

    def extras(self, read: Said) -> dict[str, Any]:
        noted = [
            {"type": "url_citation", "url": one.url, "title": one.title, "start_index": 0, "end_index": len(part.text)}
            for part in read.parts
            if isinstance(part, Text)
            for one in part.citations
        ]
        return {"annotations": noted} if noted else {}

    def kept(self, read: Said, calls: Sequence[ToolCallBlock]) -> dict[str, Any]:
        texts = [part.text for part in read.parts if isinstance(part, Text | Refusal)]
        return {"phases": [{"text": text, "phase": "final_answer"} for text in texts]} if texts else {}

    def asked(self, system: str, *entries: Entry) -> dict[str, Any]:
        items: list[dict[str, Any]] = [{"role": "system", "content": system}]
        for entry in entries:
            match entry:
                case str():
                    items.append({"role": "user", "content": entry})
                case Said():
                    items += self._said(entry)
                case Results(texts):
                    made = "function_call_output"
                    items += [{"type": made, "call_id": id_, "output": text} for id_, text in texts.items()]
        return {"model": MODEL, "input": items, "store": False, "stream": True}

    def _said(self, said: Said) -> Iterator[dict[str, Any]]:
        for number, part in enumerate(said.parts):
            match part:
                case Thinking(_, summary, signature) if signature:
                    told = [{"type": "summary_text", "text": text} for text in summary]
                    yield {"type": "reasoning", "id": f"rs_{number}", "summary": told, "encrypted_content": signature}
                case Text(text) | Refusal(text):
                    yield {"role": "assistant", "content": text, "phase": "final_answer"}
                case ToolCall(id_, name, arguments):
                    call = {"type": "function_call", "call_id": id_, "name": name}
                    yield {**call, "arguments": compact(arguments)}
                case WebSearch():
                    yield self._search(part)

    def tools(self, *tools: dict[str, Any], strict: bool = False) -> dict[str, Any]:
        return {"tools": [{"type": "function", **tool, "strict": strict} for tool in tools]}

    def argument_piece(self, event: dict[str, Any]) -> tuple[Any, str] | None:
        if event["type"] == "response.function_call_arguments.delta":
            return event["output_index"], event["delta"]
        return None


@dataclass(frozen=True, eq=False)
class AnthropicAPI(API):
    """Anthropic's messages."""

    sdk: ClassVar[ModuleType] = anthropic_sdk
    wire: ClassVar[ModuleType] = anthropic
    request_id_header: ClassVar[str] = "request-id"
    base: ClassVar[str] = ""
    route: ClassVar[str] = "/v1/messages"

    async def raw(self, url: str, how: How = "stream") -> Said:
        return await raw_read_anthropic(url, how)

    def reason(self, read: Said) -> str:
        return {"stop_sequence": "stop", "context_window": "length"}.get(read.stop or "", super().reason(read))

    def blocks(self, read: Said) -> Iterator[ContentBlock]:
        for part in read.parts:
            match part:
                case Thinking(text, _, signature):
                    yield ThinkingBlock(content=text, additional_information={"signature": signature})
                case RedactedThinking(data):
                    yield ThinkingBlock(content="", additional_information={"data": data})
                case Text(text):
                    yield TextBlock(text=text)
                case ToolCall():
                    yield _call(part)
                case WebSearch():
                    for data in self._search(part):
                        yield NativeBlock(vendor="anthropic", data=data)
        for part in read.parts:
            for one in part.citations if isinstance(part, Text) else ():
                cited = TextBlock(text=one.cited_text)
                yield CitationBlock(cited_content=cited, source=one.url, title=one.title, additional_location_info={})

    @staticmethod
    def _search(search: WebSearch) -> Iterator[dict[str, Any]]:
        caller = {"type": "direct"}
        asked = {"type": "server_tool_use", "id": search.id, "name": "web_search"}
        yield {**asked, "input": {"query": search.query}, "caller": caller}
        found = [
            {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "ZQ=="}
            for url, title in search.results
        ]
        yield {"type": "web_search_tool_result", "tool_use_id": search.id, "content": found, "caller": caller}

    def extras(self, read: Said) -> dict[str, Any]:
        refused = "".join(part.text for part in read.parts if isinstance(part, Refusal))
        details = {"type": "refusal", "category": "general_harms", "explanation": refused}
        return {"stop_details": details} if refused else {}

    def asked(self, system: str, *entries: Entry) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for entry in entries:
            match entry:
                case str():
                    messages.append({"role": "user", "content": [{"type": "text", "text": entry}]})
                case Said():
                    messages.append({"role": "assistant", "content": list(self._said(entry))})
                case Results(texts):
                    results = [
                        {"type": "tool_result", "tool_use_id": id_, "content": [{"type": "text", "text": text}]}
                        for id_, text in texts.items()
                    ]
                    messages.append({"role": "user", "content": results})
        system_blocks = [{"type": "text", "text": system}]
        return {"model": MODEL, "max_tokens": 4096, "system": system_blocks, "messages": messages, "stream": True}

    def _said(self, said: Said) -> Iterator[dict[str, Any]]:
        for part in said.parts:
            match part:
                case Thinking(text, _, signature) if signature:
                    yield {"type": "thinking", "thinking": text, "signature": signature}
                case RedactedThinking(data):
                    yield {"type": "redacted_thinking", "data": data}
                case Text(text):
                    yield {"type": "text", "text": text}
                case ToolCall(id_, name, arguments):
                    given = parsed(arguments)
                    given = {"invalid_json": given} if isinstance(given, str) else given
                    yield {"type": "tool_use", "id": id_, "name": name, "input": given}
                case WebSearch():
                    yield from self._search(part)

    def tools(self, *tools: dict[str, Any], strict: bool = False) -> dict[str, Any]:
        held = {"strict": True} if strict else {}
        made = [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in tools
        ]
        return {"tools": [{**one, **held} for one in made]}

    def argument_piece(self, event: dict[str, Any]) -> tuple[Any, str] | None:
        match event:
            case {"type": "content_block_delta", "index": index, "delta": {"partial_json": piece}}:
                return index, piece
        return None


def check_answer(api: API, response: ChatResponse, read: Said) -> None:
    """Fail unless ``response`` holds what the SDK alone ``read``, block for block."""
    expected = list(api.blocks(read))
    calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
    for wanted, call in zip((one for one in expected if isinstance(one, ToolCallBlock)), calls, strict=False):
        if not wanted.tool_call_id:
            # The server gives none, so the adapter makes one.
            assert (call.tool_call_id or "").startswith("call_")
            wanted.tool_call_id = call.tool_call_id
    assert response.message.blocks == expected
    assert response.message == ChatMessage(role="assistant", content=expected, additional_kwargs=api.kept(read, calls))
    assert len({call.tool_call_id for call in calls}) == len(calls)
    assert response.additional_kwargs == api.extras(read)
    assert response.usage == _usage(read)
    assert (response.stop_reason, response.model, response.vendor) == (api.reason(read), read.model, api.vendor)


def _usage(read: Said) -> Usage | None:
    if read.usage is None:
        return None
    return Usage(
        input_tokens=read.usage.input,
        output_tokens=read.usage.output,
        cached_tokens=read.usage.cached,
        cache_write_tokens=read.usage.cache_write,
        reasoning_tokens=read.usage.reasoning,
    )


def _compatible(name: str, dialect: str, about: str, **more: Any) -> ChatAPI:
    return ChatAPI(name, OpenAILike, about, dialect=chat.DIALECTS[dialect], **more)


APIS: tuple[API, ...] = (
    ChatAPI("Chat", OpenAI, "`OpenAI`: OpenAI's chat completions"),
    ResponsesAPI("Responses", OpenAIResponses, "`OpenAIResponses`: OpenAI's Responses"),
    AnthropicAPI("Anthropic", Anthropic, "`Anthropic`: Anthropic's messages"),
    ChatAPI(
        "DeepSeek",
        DeepSeek,
        "`DeepSeek`: thoughts in `reasoning_content`, which go back; usage with the last piece",
        dialect=chat.DIALECTS["deepseek"],
        reasoning_field="reasoning_content",
    ),
    ChatAPI(
        "Ollama",
        Ollama,
        "`Ollama`: thoughts in `reasoning`, every call whole and numbered 0",
        dialect=chat.DIALECTS["ollama"],
    ),
    _compatible(
        "OpenRouter",
        "openrouter",
        '`OpenAILike(reasoning_field="reasoning")`: thoughts in `reasoning`, which go back; comments between events',
        options={"reasoning_field": "reasoning"},
        reasoning_field="reasoning",
    ),
    _compatible("Gemini", "gemini", "`OpenAILike`: calls without ids, with a signature that goes back"),
    _compatible("unnumbered", "no numbers", "`OpenAILike`: pieces of calls without a number"),
    _compatible("interleaved", "all at once", "`OpenAILike`: parallel calls piece by piece in turn, no `[DONE]`"),
)

"""What the vendors' SDKs alone read, without an adapter of ours in between."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.llms.wire import anthropic, chat
from tests.llms.wire.content import (
    Citation,
    Part,
    RedactedThinking,
    Refusal,
    Said,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
    WebSearch,
    canonical,
)

__all__ = [
    "How",
    "anthropic_client",
    "http_client",
    "openai_client",
    "raw_read_anthropic",
    "raw_read_chat",
    "raw_read_responses",
]

How: TypeAlias = Literal["stream", "body", "helper"]
"""A stream, event by event; the whole body; or a stream that the SDK's own helper puts together."""


def http_client() -> httpx2.AsyncClient:
    """A client for any number of connections without TLS; reading the certificates takes longer than a whole test."""
    return httpx2.AsyncClient(verify=False, limits=httpx2.Limits(max_connections=None))


@asynccontextmanager
async def openai_client(server: str | AsyncOpenAI) -> AsyncIterator[AsyncOpenAI]:
    """The SDK's client for a loopback server's address; a client that is given stays open."""
    if isinstance(server, AsyncOpenAI):
        yield server
        return
    async with AsyncOpenAI(
        api_key="key", base_url=f"{server}/v1", max_retries=0, timeout=20, http_client=http_client()
    ) as client:
        yield client


@asynccontextmanager
async def anthropic_client(server: str | AsyncAnthropic) -> AsyncIterator[AsyncAnthropic]:
    """The SDK's client for a loopback server's address; a client that is given stays open."""
    if isinstance(server, AsyncAnthropic):
        yield server
        return
    async with AsyncAnthropic(
        api_key="key", base_url=server, max_retries=0, timeout=20, http_client=http_client()
    ) as client:
        yield client


async def raw_read_chat(server: str | AsyncOpenAI, how: How = "stream", **request: Any) -> Said:
    """What OpenAI's SDK reads of a chat completion.

    An answer that never said why it ended has no ``stop``, here and in the other readers.

    Args:
        server: The address of the loopback server, or a client of the SDK's.
        how: In which of the SDK's ways.
        request: More arguments of the SDK's method.
    """
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}], **request}
    async with openai_client(server) as client:
        if how == "stream":
            return await _chat_stream(client, asked)
        if how == "body":
            completion: Any = await client.chat.completions.create(**asked)
        else:
            async with client.chat.completions.stream(**asked) as events:
                completion = await events.get_final_completion()
    [choice] = completion.choices
    message = choice.message
    calls = [ToolCall(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()]
    parts = chat.parts_of(_thoughts(message), message.content or "", message.refusal or "", calls)
    return Said(parts, _chat_usage(completion.usage), chat.STOPS_BACK[choice.finish_reason], completion.model)


async def _chat_stream(client: AsyncOpenAI, asked: dict[str, Any]) -> Said:
    thoughts = text = refusal = model = ""
    calls: list[dict[str, str]] = []
    places: dict[Any, dict[str, str]] = {}
    stop, usage = None, None
    async with await client.chat.completions.create(**asked, stream=True) as chunks:
        async for chunk in chunks:
            usage, model = usage or _chat_usage(chunk.usage), chunk.model
            for choice in chunk.choices:
                thoughts += _thoughts(choice.delta)
                text += choice.delta.content or ""
                refusal += choice.delta.refusal or ""
                for piece in choice.delta.tool_calls or ():
                    assert piece.function is not None
                    # Every server names a call once, at its beginning; not every server numbers it.
                    if piece.function.name:
                        begun = {"id": piece.id or "", "name": piece.function.name, "arguments": ""}
                        places[piece.index] = begun
                        calls.append(begun)
                    places[piece.index]["arguments"] += piece.function.arguments or ""
                stop = chat.STOPS_BACK[choice.finish_reason] if choice.finish_reason else stop
    return Said(chat.parts_of(thoughts, text, refusal, [ToolCall(**one) for one in calls]), usage, stop, model)


def _thoughts(message: Any) -> str:
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


def _chat_usage(usage: Any) -> Usage | None:
    if usage is None:
        return None
    read, made = usage.prompt_tokens_details, usage.completion_tokens_details
    counts = (usage.prompt_tokens, read.cached_tokens, read.cache_write_tokens)
    return Usage(*counts, usage.completion_tokens, made.reasoning_tokens)


async def raw_read_responses(server: str | AsyncOpenAI, how: How = "stream", **request: Any) -> Said:
    """What OpenAI's SDK reads of the Responses API.

    A stream is read from the items as they are done; the helper has them as the end of the stream repeats them, and
    there the encrypted thoughts are another text.
    """
    asked: dict[str, Any] = {"model": "m", "input": "?", **request}
    async with openai_client(server) as client:
        if how == "stream":
            items: list[Any] = []
            ended: Any = None
            async with await client.responses.create(**asked, stream=True) as events:
                async for event in events:
                    if event.type == "response.output_item.done":
                        items.append(event.item)
                    elif event.type in {"response.completed", "response.incomplete"}:
                        ended = event.response  # type: ignore[union-attr]
            return _responses_said(items, ended)
        if how == "body":
            response: Any = await client.responses.create(**asked)
        else:
            async with client.responses.stream(**asked) as accumulated:
                response = await accumulated.get_final_response()
    return _responses_said(response.output, response)


def _responses_said(items: Sequence[Any], ended: Any) -> Said:
    parts = [_responses_part(item.to_dict()) for item in items]
    if ended is None:
        return Said(tuple(parts), None, None, "")
    stop: Stop = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
    if ended.status == "incomplete":
        stop = "length" if ended.incomplete_details.reason == "max_output_tokens" else "content_filter"
    usage = None
    if ended.usage is not None:
        read = ended.usage.input_tokens_details
        counts = (ended.usage.input_tokens, read.cached_tokens, read.cache_write_tokens)
        usage = Usage(*counts, ended.usage.output_tokens, ended.usage.output_tokens_details.reasoning_tokens)
    return Said(tuple(parts), usage, stop, ended.model)


def _responses_part(item: dict[str, Any]) -> Part:
    match item:
        case {"type": "message", "content": [{"type": "refusal", "refusal": refusal}]}:
            return Refusal(refusal)
        case {"type": "message", "content": [{"text": text, "annotations": cited}]}:
            return Text(text, tuple(Citation(one["url"], one["title"]) for one in cited))
        case {"type": "reasoning", "summary": summary}:
            text = "".join(one["text"] for one in item.get("content", ()))
            return Thinking(text, tuple(one["text"] for one in summary), item.get("encrypted_content"))
        case {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments}:
            return ToolCall(id_, name, arguments)
        case {"type": "web_search_call", "id": id_, "action": action}:
            return WebSearch(id_, action["query"], tuple((one["url"], "") for one in action["sources"]))
    raise TypeError(f"nothing that was sent: {item}")


async def raw_read_anthropic(server: str | AsyncAnthropic, how: How = "stream", **request: Any) -> Said:
    """What Anthropic's SDK reads."""
    asked: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "?"}], **request}
    async with anthropic_client(server) as client:
        if how == "stream":
            return await _anthropic_stream(client, asked)
        if how == "body":
            message: Any = await client.messages.create(**asked)
        else:
            async with client.messages.stream(**asked) as accumulated:
                message = await accumulated.get_final_message()
    blocks = [block.to_dict() for block in message.content]
    for block in blocks:
        if "input" in block:
            block["input"] = json.dumps(block["input"], ensure_ascii=False)
    return _anthropic_said(blocks, message, message.usage.to_dict(), message.model)


async def _anthropic_stream(client: AsyncAnthropic, asked: dict[str, Any]) -> Said:
    blocks: list[dict[str, Any]] = []
    usage: dict[str, Any] = {}
    end, model = None, ""
    async with await client.messages.create(**asked, stream=True) as events:
        async for event in events:
            match event.type:
                case "message_start":
                    usage, model = event.message.usage.to_dict(), event.message.model
                case "content_block_start":
                    block = event.content_block.to_dict()
                    blocks.append({**block, "input": ""} if "input" in block else block)
                case "content_block_delta":
                    _add(blocks[event.index], event.delta.to_dict())
                case "message_delta":
                    end, usage = event.delta, {**usage, **event.usage.to_dict()}
    return _anthropic_said(blocks, end, usage, model)


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta:
        case {"citation": citation}:
            block["citations"] = [*(block.get("citations") or ()), citation]
        case {"partial_json": piece}:
            block["input"] += piece
        case _:
            [name] = delta.keys() - {"type"}
            block[name] += delta[name]


def _anthropic_said(blocks: list[dict[str, Any]], end: Any, usage: dict[str, Any], model: str) -> Said:
    parts: list[Part] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": text}:
                cited = block.get("citations") or ()
                citations = tuple(Citation(one["url"], one["title"], one["cited_text"]) for one in cited)
                parts.append(Text(text, citations))
            case {"type": "thinking", "thinking": text, "signature": signature}:
                parts.append(Thinking(text, signature=signature))
            case {"type": "redacted_thinking", "data": data}:
                parts.append(RedactedThinking(data))
            case {"type": "tool_use", "id": id_, "name": name, "input": arguments}:
                parts.append(ToolCall(id_, name, canonical(arguments)))
            case {"type": "server_tool_use", "id": id_, "input": arguments}:
                parts.append(WebSearch(id_, json.loads(arguments)["query"]))
            case {"type": "web_search_tool_result", "content": found}:
                search = parts.pop()
                assert isinstance(search, WebSearch)
                results = tuple((one["url"], one["title"]) for one in found)
                parts.append(WebSearch(search.id, search.query, results))
            case _:
                raise TypeError(f"nothing that was sent: {block}")
    if end is not None and end.stop_details is not None:
        parts.append(Refusal(end.stop_details.explanation))
    cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    counts = (usage["input_tokens"] + cached + written, cached, written, usage["output_tokens"])
    reasoning = usage.get("output_tokens_details", {}).get("thinking_tokens", 0)
    return Said(tuple(parts), Usage(*counts, reasoning), anthropic.STOPS_BACK[end.stop_reason] if end else None, model)

"""Anthropic's messages."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.llms.loopback import Answer
from tests.llms.wire.chunking import encoded, failing
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
    deltas,
)

__all__ = ["ERRORS", "STOPS", "STOPS_BACK", "body", "carried", "error", "error_event", "events", "stream", "unfinished"]

STOPS: dict[Stop, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "pause": "pause_turn",
    "context_window": "model_context_window_exceeded",
}
STOPS_BACK: dict[str, Stop] = {word: stop for stop, word in STOPS.items()}
_DIRECT = {"type": "direct"}


def _stop(said: Said) -> str:
    """The API's word for the end; whoever refuses stops for that reason."""
    return "refusal" if _refusal(said) else STOPS[said.stopped]


def _refusal(said: Said) -> str:
    return "".join(part.text for part in said.parts if isinstance(part, Refusal))


def carried(said: Said) -> Said:
    """What is left of ``said`` on this way: thoughts as one text, arguments as objects, a refusal after the rest."""

    def part(one: Part) -> Part | None:
        match one:
            case Thinking():
                return Thinking(one.whole, signature=one.signature or "")
            case ToolCall(id_, name, arguments):
                return ToolCall(id_, name, canonical(arguments))
            case Refusal():
                return None
            case _:
                return one

    left = said.carried(part, STOPS_BACK[_stop(said)], said.usage or Usage())
    refused = _refusal(said)
    return Said((*left.parts, *([Refusal(refused)] if refused else [])), left.usage, left.stop, left.model)


def _input_usage(usage: Usage) -> dict[str, Any]:
    """Here the tokens of the cache are beside the others, not among them."""
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        **_input_usage(usage),
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output,
        "service_tier": "standard",
        "inference_geo": "global",
    }


def _details(usage: Usage) -> dict[str, Any]:
    return {"output_tokens_details": {"thinking_tokens": usage.reasoning}}


def _citation(citation: Citation) -> dict[str, Any]:
    return {
        "type": "web_search_result_location",
        "cited_text": citation.cited_text,
        "url": citation.url,
        "title": citation.title,
        "encrypted_index": "ZW5jcnlwdGVk",
    }


def _block(part: Part) -> dict[str, Any]:
    """A part as it is in the whole message; ``input`` is still text."""
    match part:
        case Text(text, citations):
            return {"type": "text", "text": text, "citations": [_citation(one) for one in citations] or None}
        case Thinking():
            return {"type": "thinking", "thinking": part.whole, "signature": part.signature or ""}
        case RedactedThinking(data):
            return {"type": "redacted_thinking", "data": data}
        case ToolCall(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": arguments, "caller": _DIRECT}
        case WebSearch(id_, query):
            text = encoded({"query": query}).decode()
            return {"type": "server_tool_use", "id": id_, "name": "web_search", "input": text, "caller": _DIRECT}
        case Refusal():
            raise TypeError("a refusal is no block")


def _blocks(said: Said) -> Iterator[dict[str, Any]]:
    for part in said.parts:
        if isinstance(part, Refusal):
            continue
        yield _block(part)
        if isinstance(part, WebSearch):
            found = [
                {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "ZQ==", "page_age": None}
                for url, title in part.results
            ]
            yield {"type": "web_search_tool_result", "tool_use_id": part.id, "content": found, "caller": _DIRECT}


def _stop_details(said: Said) -> dict[str, Any] | None:
    refused = _refusal(said)
    return {"type": "refusal", "category": "general_harms", "explanation": refused} if refused else None


def body(said: Said) -> dict[str, Any]:
    """The answer in one piece.

    Raises:
        ValueError: A call's arguments are no JSON; only a stream can show those.
    """
    content = list(_blocks(said))
    for block in content:
        if "input" in block:
            block["input"] = json.loads(block["input"] or "{}")
    usage = said.usage or Usage()
    return {
        **_message(said),
        "content": content,
        "stop_reason": _stop(said),
        "stop_details": _stop_details(said),
        "usage": {**_usage(usage), **_details(usage)},
    }


def _message(said: Said) -> dict[str, Any]:
    return {
        "id": "msg_wire1",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {**_usage(said.usage or Usage()), "output_tokens": 1},
    }


def _block_events(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    match block:
        case {"type": "text", "text": text, "citations": citations}:
            cited = [{"type": "citations_delta", "citation": one} for one in citations or ()]
            begun = {"type": "text", "text": "", **({"citations": []} if cited else {})}
            return begun, [*cited, *({"type": "text_delta", "text": one} for one in deltas(text))]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            added = [{"type": "thinking_delta", "thinking": one} for one in deltas(text)]
            signed = {"type": "signature_delta", "signature": signature}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*added, signed]
        case {"input": text}:
            # The first piece is always empty.
            pieces = ["", *deltas(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": one} for one in pieces]
        case _:
            return block, []


def events(said: Said) -> list[dict[str, Any]]:
    """The events of the stream."""
    result: list[dict[str, Any]] = [{"type": "message_start", "message": _message(said)}]
    for index, block in enumerate(_blocks(said)):
        begun, added = _block_events(block)
        result.append({"type": "content_block_start", "index": index, "content_block": begun})
        if index == 0:
            result.append({"type": "ping"})
        result += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in added)
        result.append({"type": "content_block_stop", "index": index})
    usage = said.usage or Usage()
    end = {"stop_reason": _stop(said), "stop_sequence": None, "stop_details": _stop_details(said)}
    totals = {**_input_usage(usage), "output_tokens": usage.output, **_details(usage)}
    result.append({"type": "message_delta", "delta": end, "usage": totals})
    result.append({"type": "message_stop"})
    return result


def _lines(some: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (one["type"].encode(), encoded(one)) for one in some)


def stream(said: Said) -> bytes:
    """The answer as a stream."""
    return _lines(events(said))


def unfinished(said: Said) -> bytes:
    """All of the stream before the marks that the answer is whole: the reason for its end, and the end."""
    return _lines(events(said)[:-2])


# Status, kind of error, message and headers.
ERRORS: dict[str, tuple[int, str, str, dict[str, str]]] = {
    "bad request": (400, "invalid_request_error", "max_tokens: must be greater than or equal to 1", {}),
    "context length": (400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum", {}),
    "content filter": (400, "invalid_request_error", "Output blocked by content filtering policy", {}),
    "authentication": (401, "authentication_error", "invalid x-api-key", {}),
    "permission": (403, "permission_error", "This key may not use the model.", {}),
    "not found": (404, "not_found_error", "model: nobody-1", {}),
    "too large": (413, "invalid_request_error", "Request exceeds the maximum size", {}),
    "rate limit": (429, "rate_limit_error", "This would exceed your rate limit.", {"retry_after": "2"}),
    "server": (500, "api_error", "Internal server error", {}),
    "overloaded": (529, "overloaded_error", "Overloaded", {}),
}


def _error(name: str) -> dict[str, Any]:
    _, kind, message, _ = ERRORS[name]
    details = {"details": None, "type": kind, "message": message}
    return {"type": "error", "error": details, "request_id": "req_wire"}


def error(name: str) -> Answer:
    """The answer to a request that fails; ``name`` is one of ``ERRORS``."""
    status, _, _, headers = ERRORS[name]
    return failing(status, _error(name), request_id="req_wire", **headers)


def error_event(name: str) -> bytes:
    """An error in the middle of a stream."""
    return _lines([_error(name)])

"""OpenAI's Responses API."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.llms.loopback import Answer
from tests.llms.wire import chat
from tests.llms.wire.chunking import encoded
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
    deltas,
)

__all__ = [
    "ERRORS",
    "EXTRAS",
    "STOPS",
    "body",
    "carried",
    "error",
    "error_event",
    "events",
    "failed",
    "stream",
    "unfinished",
]

STOPS: dict[Stop, str] = {
    "stop": "completed",
    "tool_calls": "completed",
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "completed",
    "stop_sequence": "completed",
    "pause": "completed",
    "context_window": "max_output_tokens",
}
"""The status, or else the reason for which the answer is incomplete."""

EXTRAS = frozenset({"obfuscation"})
"""What the server sends though the SDK's types do not have it."""


def carried(said: Said) -> Said:
    """What is left of ``said`` on this way: encrypted thoughts without text, the places where searches led."""

    def part(one: Part) -> Part | None:
        match one:
            case RedactedThinking(data):
                return Thinking(signature=data)
            case Text(text, citations):
                return Text(text, tuple(Citation(cited.url, cited.title) for cited in citations))
            case WebSearch(id_, query, results):
                return WebSearch(id_, query, tuple((url, "") for url, _ in results))
            case _:
                return one

    word = STOPS[said.stopped]
    back: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "content_filter"}
    return said.carried(part, back.get(word, "tool_calls" if said.calls else "stop"), said.usage)


def _part(part: Text | Refusal) -> dict[str, Any]:
    """A part of a message's content."""
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    return {
        "type": "output_text",
        "text": part.text,
        "annotations": [_annotation(one, len(part.text)) for one in part.citations],
        "logprobs": [],
    }


def _annotation(citation: Citation, end: int) -> dict[str, Any]:
    return {"type": "url_citation", "url": citation.url, "title": citation.title, "start_index": 0, "end_index": end}


def _item(part: Part, number: int, status: str) -> dict[str, Any]:
    """An item of the output, as it is when it is done."""
    match part:
        case Text() | Refusal():
            kept = {"id": f"msg_{number}", "type": "message", "role": "assistant", "phase": "final_answer"}
            return {**kept, "status": status, "content": [_part(part)]}
        case Thinking(text, summary, signature):
            return {
                "id": f"rs_{number}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": one} for one in summary],
                **({"content": [{"type": "reasoning_text", "text": text}]} if text else {}),
                **({"encrypted_content": signature} if signature else {}),
            }
        case RedactedThinking(data):
            return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": data}
        case ToolCall(id_, name, arguments):
            call = {"id": f"fc_{number}", "type": "function_call", "call_id": id_, "name": name}
            return {**call, "arguments": arguments, "status": status}
        case WebSearch(id_, query, results):
            sources = [{"type": "url", "url": url} for url, _ in results]
            action = {"type": "search", "query": query, "queries": [query], "sources": sources}
            return {"id": id_, "type": "web_search_call", "status": "completed", "action": action}


def _items(said: Said) -> list[dict[str, Any]]:
    """The whole output; where the answer is incomplete, so is its last item."""
    whole = STOPS[said.stopped] == "completed"
    last = len(said.parts) - 1
    return [
        _item(part, number, "completed" if whole or number < last else "incomplete")
        for number, part in enumerate(said.parts)
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _response(said: Said, status: str, output: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_wire1",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": said.model,
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": None},
        "service_tier": "default",
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
        **more,
    }


def body(said: Said) -> dict[str, Any]:
    """The answer in one piece."""
    return _ended(said, _items(said))


def _ended(said: Said, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
    word = STOPS[said.stopped]
    usage = None if said.usage is None else _usage(said.usage)
    if word == "completed":
        return _response(said, word, output, usage=usage, completed_at=1_790_000_009)
    return _response(said, "incomplete", output, usage=usage, incomplete_details={"reason": word})


def _resealed(item: dict[str, Any], word: str) -> dict[str, Any]:
    """The item with another ciphertext: the server encrypts anew each time it shows the same thoughts."""
    return {**item, "encrypted_content": f"{word}-{item['encrypted_content']}"} if "encrypted_content" in item else item


def _message_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, part in enumerate(item["content"]):
        place = {"item_id": item["id"], "content_index": index}
        field = "refusal" if part["type"] == "refusal" else "text"
        kind = "response.refusal" if field == "refusal" else "response.output_text"
        logprobs = {} if field == "refusal" else {"logprobs": []}
        begun = {**part, field: "", **({"annotations": []} if field == "text" else {})}
        yield "response.content_part.added", {**place, "part": begun}
        for delta in deltas(part[field]):
            yield f"{kind}.delta", {**place, "delta": delta, **logprobs, "obfuscation": "9aX"}
        for number, annotation in enumerate(part.get("annotations", ())):
            told = {**place, "annotation_index": number, "annotation": annotation}
            yield "response.output_text.annotation.added", told
        yield f"{kind}.done", {**place, field: part[field], **logprobs}
        yield "response.content_part.done", {**place, "part": part}


def _reasoning_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, part in enumerate(item["summary"]):
        place = {"item_id": item["id"], "summary_index": index}
        yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
        for delta in deltas(part["text"]):
            yield "response.reasoning_summary_text.delta", {**place, "delta": delta, "obfuscation": "t3"}
        yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**place, "part": part}
    for index, part in enumerate(item.get("content", ())):
        place = {"item_id": item["id"], "content_index": index}
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        for delta in deltas(part["text"]):
            yield "response.reasoning_text.delta", {**place, "delta": delta}
        yield "response.reasoning_text.done", {**place, "text": part["text"]}
        yield "response.content_part.done", {**place, "part": part}


def _item_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """How an item comes about."""
    place = {"item_id": item["id"]}
    match item["type"]:
        case "message":
            yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
            yield from _message_events(item)
        case "reasoning":
            begun = {key: value for key, value in item.items() if key != "content"}
            yield "response.output_item.added", {"item": _resealed({**begun, "summary": []}, "added")}
            yield from _reasoning_events(item)
        case "function_call":
            yield "response.output_item.added", {"item": {**item, "status": "in_progress", "arguments": ""}}
            for delta in deltas(item["arguments"]):
                told = {**place, "delta": delta, "obfuscation": "k"}
                yield "response.function_call_arguments.delta", told
            yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
        case _:
            begun = {**item, "status": "in_progress", "action": {"type": "search"}}
            yield "response.output_item.added", {"item": begun}
            for state in ("in_progress", "searching", "completed"):
                yield f"response.web_search_call.{state}", place
    yield "response.output_item.done", {"item": item}


def events(said: Said) -> list[dict[str, Any]]:
    """The events of the stream."""
    begun = _response(said, "in_progress")
    told: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    items = _items(said)
    for index, item in enumerate(items):
        told += ((kind, {"output_index": index, **content}) for kind, content in _item_events(item))
    ended = _ended(said, [_resealed(item, "completed") for item in items])
    told.append((f"response.{ended['status']}", {"response": ended}))
    return [{"type": kind, "sequence_number": number, **content} for number, (kind, content) in enumerate(told)]


def _lines(some: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (one["type"].encode(), encoded(one)) for one in some)


def stream(said: Said) -> bytes:
    """The answer as a stream."""
    return _lines(events(said))


def unfinished(said: Said) -> bytes:
    """All of the stream before the mark that the answer is whole."""
    return _lines(events(said)[:-1])


ERRORS = chat.ERRORS


def error(name: str) -> Answer:
    """The answer to a request that fails; ``name`` is one of ``ERRORS``."""
    return chat.error(name)


def error_event(name: str, *, nested: bool = True) -> bytes:
    """An error in the middle of a stream: as the servers send it, or flat, as it is documented."""
    told = ERRORS[name][1]
    flat = {key: told[key] for key in ("code", "message", "param")}
    return _lines([{"type": "error", "sequence_number": 99, **({"error": told} if nested else flat)}])


def failed(said: Said, code: str = "server_error", message: str = "The model could not finish. 💥") -> bytes:
    """The whole of the stream, and then the news that the answer failed."""
    ended = _response(said, "failed", _items(said), error={"code": code, "message": message})
    return unfinished(said) + _lines([{"type": "response.failed", "sequence_number": 98, "response": ended}])

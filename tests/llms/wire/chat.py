"""OpenAI's chat completions, and the dialects of the servers that speak them too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

from tests.llms.loopback import Answer
from tests.llms.wire.chunking import encoded, failing
from tests.llms.wire.content import Part, Refusal, Said, Stop, Text, Thinking, ToolCall, Usage, deltas

__all__ = [
    "DIALECTS",
    "ERRORS",
    "OPENAI",
    "STOPS",
    "STOPS_BACK",
    "Dialect",
    "body",
    "carried",
    "chunks",
    "error",
    "error_event",
    "parts_of",
    "stream",
    "unfinished",
]

STOPS: dict[Stop, str] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "stop",
    "stop_sequence": "stop",
    "pause": "stop",
    "context_window": "length",
}
STOPS_BACK: dict[str, Stop] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(frozen=True)
class Dialect:
    """How a server departs from OpenAI's own.

    Args:
        thinking: The field that holds thoughts; OpenAI gives none out.
        index: How the chunks of calls are numbered.
        ids: Whether calls have ids; without, the id is "".
        whole_calls: Whether a call comes in one chunk, arguments and all.
        interleaved: Whether calls in parallel are written at the same time.
        call_extra: Fields beside those of OpenAI in each call.
        usage_chunk: Whether usage comes in a chunk of its own without choices, or else in the last of the answer.
        comments: Whether comments keep the connection alive.
        done: Whether the stream ends with ``[DONE]``.
    """

    thinking: str | None = None
    index: Literal["counted", "zero", "missing"] = "counted"
    ids: bool = True
    whole_calls: bool = False
    interleaved: bool = False
    call_extra: dict[str, Any] = field(default_factory=dict)
    usage_chunk: bool = True
    comments: bool = False
    done: bool = True


OPENAI = Dialect()
DIALECTS: dict[str, Dialect] = {
    "openai": OPENAI,
    "deepseek": Dialect(thinking="reasoning_content", usage_chunk=False),
    "openrouter": Dialect(thinking="reasoning", comments=True),
    "gemini": Dialect(
        index="zero",
        ids=False,
        whole_calls=True,
        call_extra={"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}},
        usage_chunk=False,
    ),
    "ollama": Dialect(thinking="reasoning", index="zero", whole_calls=True),
    "no numbers": Dialect(index="missing"),
    "all at once": Dialect(interleaved=True, done=False),
}


def carried(said: Said, dialect: Dialect = OPENAI) -> Said:
    """What is left of ``said`` on this way: one text, one refusal, thoughts as plain text if at all."""
    thoughts = "".join(part.whole for part in said.parts if isinstance(part, Thinking)) if dialect.thinking else ""
    refusal = "".join(part.text for part in said.parts if isinstance(part, Refusal))
    calls = [ToolCall(one.id if dialect.ids else "", one.name, one.arguments) for one in said.calls]
    return Said(parts_of(thoughts, said.text, refusal, calls), said.usage, STOPS_BACK[STOPS[said.stopped]], said.model)


def parts_of(thoughts: str, text: str, refusal: str, calls: Sequence[ToolCall]) -> tuple[Part, ...]:
    first = [Thinking(thoughts)] if thoughts else []
    words = [*([Text(text)] if text else []), *([Refusal(refusal)] if refusal else [])]
    return (*first, *words, *calls)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _call_deltas(call: ToolCall, number: int, dialect: Dialect) -> Iterator[dict[str, Any]]:
    """The pieces of one call: the first names it, the others add to its arguments."""
    index = {"counted": {"index": number}, "zero": {"index": 0}, "missing": {}}[dialect.index]
    identity = {"id": call.id if dialect.ids else "", "type": "function", **dialect.call_extra}
    first = call.arguments if dialect.whole_calls else ""
    yield {**index, **identity, "function": {"name": call.name, "arguments": first}}
    for piece in [] if dialect.whole_calls else deltas(call.arguments):
        yield {**index, "function": {"arguments": piece}}


def _deltas(said: Said, dialect: Dialect) -> Iterator[dict[str, Any]]:
    left = carried(said, dialect)
    yield {"role": "assistant", "content": None if left.calls and not left.text else "", "refusal": None}
    for part in left.parts:
        match part:
            case Thinking(text) if dialect.thinking:
                yield from ({dialect.thinking: piece} for piece in deltas(text))
            case Text(text):
                yield from ({"content": piece} for piece in deltas(text))
            case Refusal(text):
                yield from ({"refusal": piece} for piece in deltas(text))
    calls = [_call_deltas(call, number, dialect) for number, call in enumerate(said.calls)]
    if dialect.interleaved:
        for round_ in zip_longest(*calls):
            yield from ({"tool_calls": [one]} for one in round_ if one is not None)
    else:
        yield from ({"tool_calls": [one]} for call in calls for one in call)


def chunks(said: Said, dialect: Dialect = OPENAI) -> list[dict[str, Any]]:
    """The chunks of the stream."""
    base = {
        "id": "chatcmpl-Wire1",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": said.model,
        "service_tier": "default",
        "system_fingerprint": "fp_wire",
    }
    unset = {} if said.usage is None else {"usage": None}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**base, "choices": [choice], **unset, "obfuscation": "x7Qk"}

    result = [chunk(delta) for delta in _deltas(said, dialect)]
    result.append(chunk({}, STOPS[said.stopped]))
    if said.usage is not None and dialect.usage_chunk:
        result.append({**base, "choices": [], "usage": _usage(said.usage), "obfuscation": "b"})
    elif said.usage is not None:
        result[-1]["usage"] = _usage(said.usage)
    return result


def _lines(some: Sequence[dict[str, Any]], dialect: Dialect) -> bytes:
    comment = b": still here\n\n" if dialect.comments else b""
    return b"".join(comment + b"data: " + encoded(one) + b"\n\n" for one in some)


def stream(said: Said, dialect: Dialect = OPENAI) -> bytes:
    """The answer as a stream."""
    return _lines(chunks(said, dialect), dialect) + (b"data: [DONE]\n\n" if dialect.done else b"")


def unfinished(said: Said, dialect: Dialect = OPENAI) -> bytes:
    """All of the stream before the mark that the answer is whole: the reason for its end."""
    before = [one for one in chunks(said, dialect) if one["choices"] and not one["choices"][0]["finish_reason"]]
    return _lines(before, dialect)


def body(said: Said, dialect: Dialect = OPENAI) -> dict[str, Any]:
    """The answer in one piece."""
    left = carried(said, dialect)
    message: dict[str, Any] = {"role": "assistant", "content": left.text or None, "refusal": None, "annotations": []}
    for part in left.parts:
        match part:
            case Thinking(text) if dialect.thinking:
                message[dialect.thinking] = text
            case Refusal(text):
                message["refusal"] = text
    if left.calls:
        message["tool_calls"] = [
            {**dialect.call_extra, "id": one.id, "type": "function", "function": _function(one)} for one in left.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": STOPS[said.stopped]}
    result: dict[str, Any] = {
        "id": "chatcmpl-Wire1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": said.model,
        "choices": [choice],
        "service_tier": "default",
        "system_fingerprint": "fp_wire",
    }
    return result if said.usage is None else {**result, "usage": _usage(said.usage)}


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}


def _error(message: str, kind: str, code: str | None = None, param: str | None = None, **more: Any) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code, **more}


# Status, error and headers. Those of the Responses API are the same.
ERRORS: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {
    "bad request": (400, _error("Invalid 'temperature': 9 > 2.", "invalid_request_error", "invalid_value", "t"), {}),
    "context length": (
        400,
        _error(
            "The model's maximum context length is 8192 tokens, and the messages have 9001.",
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        ),
        {},
    ),
    "content filter": (
        400,
        _error(
            "The prompt was filtered by the content management policy.",
            "invalid_request_error",
            "content_filter",
            "prompt",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        {},
    ),
    "authentication": (401, _error("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"), {}),
    "permission": (403, _error("This project may not use the model.", "invalid_request_error", "forbidden"), {}),
    "not found": (404, _error("The model does not exist.", "invalid_request_error", "model_not_found"), {}),
    "rate limit": (
        429,
        _error("Rate limit reached; please try again in 2s.", "tokens", "rate_limit_exceeded"),
        {"retry_after": "2", "x_ratelimit_remaining_tokens": "0"},
    ),
    "quota": (429, _error("You exceeded your quota.", "insufficient_quota", "insufficient_quota"), {}),
    "server": (500, _error("The server had an error.", "server_error"), {}),
    "overloaded": (503, _error("The engine is overloaded.", "server_error", "service_unavailable"), {}),
}


def error(name: str) -> Answer:
    """The answer to a request that fails; ``name`` is one of ``ERRORS``."""
    status, told, headers = ERRORS[name]
    return failing(status, {"error": told}, x_request_id="req_wire", **headers)


def error_event(name: str) -> bytes:
    """An error in the middle of a stream."""
    return b"data: " + encoded({"error": ERRORS[name][1]}) + b"\n\n"

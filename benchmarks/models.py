"""What an adapter adds to the vendor's SDK: processor time of every streamed piece of an answer.

Both read the same bytes through the same kind of client; the raw SDK only counts what it reads. Run it with
``make bench-models``; ``--write docs/reference/models.md`` puts the figures into the page.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
from measuring import Watch
from run import heading, write

from batonflow.llms import LLM, Anthropic, ChatMessage, OpenAI, OpenAIResponses

MOST_MICROSECONDS = 15.0
"""What an adapter may add to a piece."""
MOST_GROWTH = 1.5
"""What a piece of a long answer may cost more than one of a short answer."""
SIZES = (1_000, 30_000)
URL = "http://127.0.0.1/v1"


def sse(events: list[dict[str, Any]], last: bytes = b"") -> bytes:
    lines = [
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return "".join(lines).encode() + last


def chat(pieces: list[str], kind: str) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    def called(function: dict[str, str], **rest: str) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": 0, "function": function, **rest}]})

    if kind == "a tool call":
        events = [called({"name": "write", "arguments": ""}, id="1", type="function")]
        events += [called({"arguments": piece}) for piece in pieces]
    else:
        field = "reasoning_content" if kind == "a thought" else "content"
        events = [chunk({field: piece}) for piece in pieces]
    return sse([*events, chunk({}, "tool_calls" if kind == "a tool call" else "stop")], b"data: [DONE]\n\n")


def responses(pieces: list[str], kind: str) -> bytes:
    place: dict[str, Any] = {"item_id": "i", "output_index": 0, "sequence_number": 1}
    events: list[dict[str, Any]] = []
    if kind == "a tool call":
        item = {"type": "function_call", "id": "i", "call_id": "1", "name": "write", "arguments": ""}
        events.append({"type": "response.output_item.added", "item": item, **place})
        events += [{"type": "response.function_call_arguments.delta", "delta": piece, **place} for piece in pieces]
    elif kind == "a thought":
        thought = {"type": "response.reasoning_summary_text.delta", "summary_index": 0, **place}
        events += [{**thought, "delta": piece} for piece in pieces]
    else:
        text = {"type": "response.output_text.delta", "content_index": 0, "logprobs": [], **place}
        events += [{**text, "delta": piece} for piece in pieces]
    whole = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": []}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "usage": None}
    return sse([*events, {"type": "response.completed", "sequence_number": 2, "response": whole}])


BLOCKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "a thought": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"),
    "a tool call": ({"type": "tool_use", "id": "1", "name": "write", "input": {}}, "input_json_delta", "partial_json"),
}


def messages(pieces: list[str], kind: str) -> bytes:
    begun = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    block, delta, name = BLOCKS[kind]
    return sse(
        [
            {"type": "message_start", "message": {**begun, "stop_sequence": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": delta, name: piece}} for piece in pieces),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    )


@dataclass
class Api:
    """An API, as the SDK reads it and as the adapter does."""

    name: str
    bytes_of: Callable[[list[str], str], bytes]
    adapter: Callable[..., LLM]
    raw: Callable[[httpx2.AsyncClient], Any]


async def raw_chat(client: httpx2.AsyncClient) -> AsyncIterator[Any]:
    sdk = openai.AsyncOpenAI(api_key="k", base_url=URL, http_client=client)
    return await sdk.chat.completions.create(model="m", messages=[], stream=True)


async def raw_responses(client: httpx2.AsyncClient) -> AsyncIterator[Any]:
    sdk = openai.AsyncOpenAI(api_key="k", base_url=URL, http_client=client)
    return await sdk.responses.create(model="m", input="x", stream=True)


async def raw_messages(client: httpx2.AsyncClient) -> AsyncIterator[Any]:
    sdk = anthropic.AsyncAnthropic(api_key="k", base_url=URL, http_client=client)
    return await sdk.messages.create(model="m", messages=[], max_tokens=1, stream=True)


APIS = (
    Api("chat completions", chat, OpenAI, raw_chat),
    Api("Responses", responses, OpenAIResponses, raw_responses),
    Api("Anthropic's messages", messages, Anthropic, raw_messages),
)


def pieces(count: int, kind: str) -> list[str]:
    # Braces inside the text, paired and odd ones, are what could make the reading of arguments slow.
    code = ["if (x) { y }  ", "}", "else {  "] * (count // 3)
    return ['{"text": "', *code[: count - 2], '"}'] if kind == "a tool call" else ["word "] * count


async def sample(api: Api, size: int, kind: str, repeats: int) -> tuple[float, float]:
    """Best seconds of a piece: the raw SDK, and the adapter."""
    body = api.bytes_of(pieces(size, kind), kind)
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=body))
    raw, ours = float("inf"), float("inf")
    async with httpx2.AsyncClient(transport=transport) as client:
        llm = api.adapter("m", api_key="none", base_url=URL, http_client=client)
        for _ in range(repeats):
            with Watch() as watch:
                async for _piece in await api.raw(client):
                    pass
            raw = min(raw, watch.cpu / size)
            with Watch() as watch:
                async for _response in await llm.astream_chat([ChatMessage("x")]):
                    pass
            ours = min(ours, watch.cpu / size)
    return raw, ours


async def table(problems: list[str], repeats: int) -> list[str]:
    lines = [
        "| API | pieces of | in the answer | SDK, µs | with the adapter, µs | added, µs | adapter / SDK |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for api in APIS:
        for what in BLOCKS:
            added: list[float] = []
            for size in SIZES:
                raw, ours = await sample(api, size, what, repeats)
                if (ours - raw) * 1e6 > MOST_GROWTH * max([*added, 4.0]):
                    # Too much, or a moment in which the machine had other things to do: the best of twice as many.
                    raw, ours = map(min, (raw, ours), await sample(api, size, what, repeats))
                added.append((ours - raw) * 1e6)
                figures = f"{raw * 1e6:.1f} | {ours * 1e6:.1f} | {added[-1]:.1f} | {ours / raw:.2f}"
                lines.append(f"| {api.name} | {what} | {size:,} | {figures} |")
                print(lines[-1], file=sys.stderr)
            if max(added) > MOST_MICROSECONDS:
                problems.append(f"{api.name}, {what}: {max(added):.1f} µs a piece, the most is {MOST_MICROSECONDS}")
            if added[1] > MOST_GROWTH * max(added[0], 4.0):
                problems.append(f"{api.name}, {what}: grows with the answer, from {added[0]:.1f} to {added[1]:.1f} µs")
    return lines


def main() -> int:
    """Measure, print, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--write", type=Path, help="put the figures into this page")
    options = parser.parse_args()
    problems: list[str] = []
    lines = asyncio.run(table(problems, options.repeats))
    text = "\n".join([heading(None, dirty=False, also=("openai", "anthropic")), "", *lines])
    print(f"\n{text}\n")
    if options.write:
        write(options.write, text)
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

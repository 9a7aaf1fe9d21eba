"""Rows about what models say: texts and calls of tools."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from batonflow.llms import ChatMessage, ChatResponse, ThinkingBlock, ToolCallBlock
from batonflow.llms.sdk_model import SDKModel
from tests.llms.loopback import Answer, Received
from tests.llms.matrix.apis import APIS, KEY, AnthropicAPI, ChatAPI, Results, check_answer, parsed
from tests.llms.matrix.cells import REQUEST_ID, Bench, row
from tests.llms.wire.chunking import as_json, events_of, failing, hanging
from tests.llms.wire.content import SAMPLES, Refusal, Said, Text, Thinking, ToolCall, Usage, WebSearch

__all__ = ["ASK", "NOW", "SHORT", "SYSTEM", "USER", "WEATHER", "answer_all", "with_ids"]

SYSTEM = "Fasse dich kurz. 🤏"
USER = "Wie hoch steht das Wasser in Büsum? 🌊"
ASK = [ChatMessage(SYSTEM, role="system"), ChatMessage(USER)]

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tells the weather of a place, für alle Orte.",
    "parameters": {
        "type": "object",
        "properties": {"where": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["where"],
    },
}
NOW: dict[str, Any] = {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}

# Short ones: where every byte is sent alone, time goes with the length.
SHORT = Said((Text("Ja. 🌊"),))
ONE_CALL = Said(
    (
        Thinking(summary=("**Prüfen** 🔍", "dann"), signature="Z0FBQUFBL3M="),
        ToolCall("call_one_1", "weather", '{"where": "B\\u00fcsum 🌊"}'),
    )
)
PARALLEL_CALLS = Said(
    (
        ToolCall("call_par_1", "weather", '{"where": "Köln 🌊", "days": [1]}'),
        ToolCall("call_par_2", "weather", '{"where": "say \\"hé\\""}'),
    )
)

THOUGHTS = Said((Thinking("Erst übe ich 🤔.", signature="c2lnLTE="), Text("Zweiundvierzig ✅")))
ENDINGS = (
    Said((), usage=Usage(input=3)),
    Said((Text("kurz"),), usage=None),
    Said((Text("Es war ein Bä"),), stop="length"),
    Said((Text("Zuerst"),), stop="content_filter"),
    Said((Refusal("Dabei nicht. 🙅"),)),
)

_SPEAK_CHAT = [api.name for api in APIS if isinstance(api, ChatAPI)]


def answer_all(llm: SDKModel, response: ChatResponse) -> list[ChatMessage]:
    """A tool message for every call."""
    calls = llm.get_tool_calls_from_response(response)
    return [
        ChatMessage(f"result {number} ✓", role="tool", additional_kwargs={"tool_call_id": call.tool_id})
        for number, call in enumerate(calls)
    ]


def with_ids(read: Said, response: ChatResponse) -> Said:
    """What the SDK read, its calls under the ids they have in the response; some servers give none."""
    blocks = iter(block for block in response.message.blocks if isinstance(block, ToolCallBlock))
    parts = [
        part if part not in read.calls else type(part)(next(blocks).tool_call_id or "", part.name, part.arguments)
        for part in read.parts
    ]
    return Said(tuple(parts), read.usage, read.stop, read.model)


@row("text")
async def text(bench: Bench) -> None:
    llm, said = bench.model(), SAMPLES["text"]
    bench.answers(said)
    response = await llm.achat(ASK)
    assert response.delta is None
    assert response.request_id == REQUEST_ID
    assert response.message.content == said.text
    for how in ("stream", "body"):
        read = await bench.raw(how)
        assert read == bench.api.carried(said)
        check_answer(bench.api, response, read)
    [request] = bench.requests
    assert request.path == bench.api.path
    assert KEY in request.headers.get("authorization", "") + request.headers.get("x-api-key", "")
    assert request.body == bench.api.asked(SYSTEM, USER)


@row("text, streamed")
async def text_streamed(bench: Bench) -> None:
    await _arrives(bench, SAMPLES["text"])


def _unstreamed(asked: dict[str, Any]) -> dict[str, Any]:
    """A request for a stream, as one for a whole answer."""
    return {name: value for name, value in asked.items() if name not in {"stream", "stream_options"}}


@row("whole answers", further=True)
async def whole_answers(bench: Bench) -> None:
    llm = bench.model(streaming=False)
    searched = () if bench.api.name in _SPEAK_CHAT else (SAMPLES["searched and cited"],)
    for said in (SAMPLES["text"], THOUGHTS, ONE_CALL, PARALLEL_CALLS, *ENDINGS, *searched):
        bench.answers(said)
        read = await bench.raw("body")
        assert read == bench.api.carried(said)
        responses = [response async for response in await llm.astream_chat(ASK)]
        check_answer(bench.api, responses[-1], read)
        assert responses[-1].request_id == REQUEST_ID
        check_answer(bench.api, await llm.achat(ASK), read)
        said_so_far = "".join(response.delta or "" for response in responses)
        assert said_so_far == (responses[-1].message.content or "")
        thoughts = "".join(response.additional_kwargs.get("thinking_delta", "") for response in responses)
        kept = [block.content or "" for block in responses[-1].message.blocks if isinstance(block, ThinkingBlock)]
        assert thoughts == "".join(kept)
    assert all(body == _unstreamed(bench.api.asked(SYSTEM, USER)) for body in bench.bodies)


@row("streaming refused", further=True)
async def streaming_refused(bench: Bench) -> None:
    refused = {"message": "Your organization must be verified to stream this model.", "param": "stream"}
    told = {"error": {**refused, "type": "invalid_request_error", "code": "unsupported_value"}}
    asked = bench.api.asked(SYSTEM, USER)

    def answer(request: Received) -> Answer:
        return (
            bench.cut(failing(400, told)) if request.body.get("stream") else bench.cut(as_json(bench.api.body(SHORT)))
        )

    for wait in (False, True):
        llm = bench.model()
        bench.server.received.clear()
        bench.server.answers = answer
        for _ in range(2):
            if wait:
                response = await llm.achat(ASK)
            else:
                *_, response = [one async for one in await llm.astream_chat(ASK)]
            assert response.message.content == SHORT.text
        # The refusal is remembered: the second answer took one request.
        assert bench.bodies == [asked, _unstreamed(asked), _unstreamed(asked)]


@row("JSON where a stream was asked for", further=True)
async def json_for_a_stream(bench: Bench) -> None:
    for said in (SHORT, PARALLEL_CALLS):
        llm = bench.model()
        bench.server.received.clear()
        bench.server.answers = lambda _, said=said: bench.cut(as_json(bench.api.body(said)))
        for _ in range(2):
            response = await llm.achat(ASK)
            check_answer(bench.api, response, await bench.raw("body"))
        asked = bench.api.asked(SYSTEM, USER)
        assert bench.bodies == [asked, _unstreamed(asked)]


@row("thoughts, then text", further=True, notes={"Chat": "it gives out no thoughts; the text arrives without them"})
async def thoughts_then_text(bench: Bench) -> None:
    await _arrives(bench, THOUGHTS)


@row("how answers end", further=True)
async def how_answers_end(bench: Bench) -> None:
    for said in ENDINGS:
        await _arrives(bench, said)


@row("search and citations", further=True, absent=dict.fromkeys(_SPEAK_CHAT, "no tools that run at the vendor"))
async def search_and_citations(bench: Bench) -> None:
    await _arrives(bench, SAMPLES["searched and cited"])
    # And back again, as it came.
    llm = bench.model()
    response = await llm.achat(ASK)
    await llm.achat([*ASK, response.message, ChatMessage(USER)])
    assert bench.bodies[-1] == bench.api.asked(SYSTEM, USER, await bench.raw(), USER)
    if isinstance(bench.api, AnthropicAPI):
        # Cut off while it writes what it searches for.
        cut_off = Said((WebSearch("srv_2", "Gezeiten"),), stop="length")
        events = bench.api.stream(cut_off).split(b"\n\n")
        [*_, last] = [event for event in events if b"input_json_delta" in event]
        bench.server.answers = [bench.streamed(b"\n\n".join(event for event in events if event != last))]
        response = await llm.achat(ASK)
        assert response.stop_reason == "length"
        assert "Gezeiten" not in str(response.message.blocks)


async def _arrives(bench: Bench, said: Said) -> None:
    """An answer without calls, streamed."""
    llm = bench.model()
    bench.answers(said)
    responses = [response async for response in await llm.astream_chat(ASK)]
    last = responses[-1]
    read = await bench.raw()
    assert read == bench.api.carried(said)
    check_answer(bench.api, last, read)
    assert last.request_id == REQUEST_ID
    so_far = ""
    for response in responses:
        so_far += response.delta or ""
        assert (response.message.content or "") == so_far
    thoughts = "".join(response.additional_kwargs.get("thinking_delta", "") for response in responses)
    assert thoughts == "".join(block.content or "" for block in last.message.blocks if isinstance(block, ThinkingBlock))
    assert bench.bodies[-1] == bench.api.asked(SYSTEM, USER)


async def _called(bench: Bench, said: Said, tools: Sequence[dict[str, Any]], parallel: bool) -> None:
    """One answer with calls, and the next request with their results."""
    llm = bench.model()
    bench.answers(said)
    response = await llm.achat_with_tools(tools, chat_history=ASK, allow_parallel_tool_calls=parallel)
    read = await bench.raw()
    assert read == bench.api.carried(said)
    if not said.broken:
        assert read == await bench.raw("body")
    check_answer(bench.api, response, read)
    selections = llm.get_tool_calls_from_response(response)
    assert [one.tool_name for one in selections] == [one.name for one in said.calls]
    results = answer_all(llm, response)
    assert [one.additional_kwargs["tool_call_id"] for one in results] == [one.tool_id for one in selections]

    bench.answers(SHORT)
    await llm.achat_with_tools(
        tools, chat_history=[*ASK, response.message, *results], allow_parallel_tool_calls=parallel
    )
    sent = bench.api.tools(*tools) | _one_at_a_time(bench, parallel)
    texts = {one.additional_kwargs["tool_call_id"]: one.content or "" for one in results}
    assert bench.bodies == [
        bench.api.asked(SYSTEM, USER) | sent,
        bench.api.asked(SYSTEM, USER, with_ids(read, response), Results(texts)) | sent,
    ]


def _one_at_a_time(bench: Bench, parallel: bool) -> dict[str, Any]:
    if parallel:
        return {}
    if bench.api.vendor == "anthropic":
        return {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    return {"parallel_tool_calls": False}


@row("one tool")
async def one_tool(bench: Bench) -> None:
    await _called(bench, ONE_CALL, [WEATHER, NOW], parallel=False)


@row("parallel tools")
async def parallel_tools(bench: Bench) -> None:
    await _called(bench, PARALLEL_CALLS, [WEATHER, NOW], parallel=True)


@row("arguments left out or broken", further=True)
async def odd_arguments(bench: Bench) -> None:
    await _called(bench, SAMPLES["a call without arguments"], [NOW], parallel=True)
    llm = bench.model()
    if not isinstance(bench.api, ChatAPI):
        # These say when a call is whole. In chat completions only the end of the answer tells.
        bench.server.answers = [hanging(bench.api.unfinished(SAMPLES["a call without arguments"]))]
        async with aclosing(await llm.astream_chat_with_tools([NOW], chat_history=ASK)) as responses:
            async for response in responses:
                if llm.get_tool_calls_from_response(response, error_on_no_tool_call=False):
                    break
    bench.answers(SAMPLES["cut off in a call"])
    response = await llm.achat_with_tools([WEATHER], chat_history=ASK, allow_parallel_tool_calls=True)
    read = await bench.raw()
    check_answer(bench.api, response, read)
    [selection] = llm.get_tool_calls_from_response(response)
    [call] = read.calls
    assert (selection.tool_kwargs, selection.invalid_arguments) == ({}, call.arguments)
    # The model sees its mistake.
    bench.answers(SHORT)
    results = answer_all(llm, response)
    await llm.achat_with_tools(
        [WEATHER], chat_history=[*ASK, response.message, *results], allow_parallel_tool_calls=True
    )
    texts = {one.additional_kwargs["tool_call_id"]: one.content or "" for one in results}
    asked = bench.api.asked(SYSTEM, USER, with_ids(read, response), Results(texts))
    assert bench.bodies[-1] == asked | bench.api.tools(WEATHER)


@row("one id for several calls", further=True)
async def one_id_for_several_calls(bench: Bench) -> None:
    calls = (ToolCall("call_same", "weather", '{"where": "Ulm"}'), ToolCall("call_same", "now", "{}"))
    llm, said = bench.model(), Said(calls)
    bench.answers(said)
    response = await llm.achat_with_tools([WEATHER, NOW], chat_history=ASK)
    results = answer_all(llm, response)
    ids = [one.additional_kwargs["tool_call_id"] for one in results]
    assert len(set(ids)) == len(ids) == len(calls)


def _whole_after(bench: Bench, said: Said, number: int) -> int:
    """How many bytes of the stream have gone when the arguments of ``number`` calls are whole."""
    sent, whole, arguments = 0, 0, dict[Any, str]()
    for event in bench.api.stream(said).split(b"\n\n"):
        sent += len(event) + 2
        for key, piece in filter(None, map(bench.api.argument_piece, events_of(event))):
            arguments[key] = arguments.get(key, "") + piece
            if isinstance(parsed(arguments[key] or "unbegun"), dict):
                # Servers that number every call alike write one after the other.
                del arguments[key]
                whole += 1
        if whole == number:
            return sent
    raise AssertionError(f"the stream has fewer than {number} whole calls")


@row("streamed tools")
async def streamed_tools(bench: Bench) -> None:
    llm, said = bench.model(), PARALLEL_CALLS
    bench.answers(said)
    stream = await llm.astream_chat_with_tools([WEATHER, NOW], chat_history=ASK, allow_parallel_tool_calls=True)
    responses = [response async for response in stream]
    read = await bench.raw()
    check_answer(bench.api, responses[-1], read)
    assert bench.bodies == [bench.api.asked(SYSTEM, USER) | bench.api.tools(WEATHER, NOW)]

    # What has been shown is never taken back, and is not shown half.
    final = responses[-1].message.blocks
    shown = [response.message.blocks for response in responses]
    assert all(block in final for blocks in shown for block in blocks)
    assert [len(blocks) for blocks in shown] == sorted(len(blocks) for blocks in shown)

    # Each call shows when its arguments are whole, while the server holds back all that follows.
    for number in range(1, len(said.calls) + 1):
        bench.server.answers = [hanging(bench.api.stream(said), _whole_after(bench, said, number), bench.chunking)]
        stream = await llm.astream_chat_with_tools([WEATHER, NOW], chat_history=ASK, allow_parallel_tool_calls=True)
        async with aclosing(stream):
            async for response in stream:
                if len(llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)) == number:
                    break

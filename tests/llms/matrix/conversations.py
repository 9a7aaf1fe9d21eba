"""The row about thoughts and calls that go back and forth."""

import json
from collections.abc import Sequence

from batonflow.llms import ChatMessage
from tests.llms.matrix.apis import API, APIS, Results, check_answer
from tests.llms.matrix.cells import Bench, row
from tests.llms.matrix.content import ASK, NOW, SHORT, SYSTEM, USER, WEATHER, answer_all, with_ids
from tests.llms.wire.content import RedactedThinking, Said, Text, Thinking, ToolCall

_TURNS = (
    Said(
        (
            Thinking(summary=("**Prüfen** 🔍\n", "dann rufen"), signature="c2VhbGVkLW9uZQ=="),
            RedactedThinking("c2VhbGVkLXR3bw=="),
            ToolCall("call_a", "weather", '{"where": "Büsum 🌊"}'),
        )
    ),
    Said(
        (
            Thinking("Noch zwei.", signature="c2VhbGVkLXRocmVl"),
            Text("Moment."),
            ToolCall("call_b", "weather", '{"where": "Zürich"}'),
            ToolCall("call_c", "now", "{}"),
        )
    ),
    Said((Text("Es bleibt trocken. ☀"),)),
)
# What nobody but the vendor that made it may see: thoughts, seals, and the ids of thoughts.
_PRIVATE = ("Prüfen", "dann rufen", "Noch zwei", "c2VhbGVk", "rs_0", "rs_1", "reasoning_details", "signature")


@row(
    "thinking + tools, three turns",
    notes={
        "Chat": "it gives out no thoughts, and none are sent",
        "Ollama": "thoughts are shown and not sent back",
        "Gemini": "no thoughts; the signature of each call goes back",
        "unnumbered": "no thoughts",
        "interleaved": "no thoughts",
    },
)
async def three_turns(bench: Bench) -> None:
    tools, llm = [WEATHER, NOW], bench.model()
    history, sent = list(ASK), [SYSTEM, USER]
    expected = []
    for turn, said in enumerate(_TURNS):
        bench.answers(said)
        # The answers of streams and those that are waited for go back alike.
        if turn % 2:
            stream = await llm.astream_chat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
            *_, response = [one async for one in stream]
        else:
            response = await llm.achat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
        expected.append(bench.api.asked(*sent) | bench.api.tools(*tools))
        assert bench.bodies == expected
        read = await bench.raw()
        assert read == bench.api.carried(said)
        check_answer(bench.api, response, read)
        history.append(response.message)
        if said.calls:
            results = answer_all(llm, response)
            assert len(results) == len(said.calls)
            history += results
            texts = Results({one.additional_kwargs["tool_call_id"]: one.content or "" for one in results})
            sent += [with_ids(read, response), texts]
        else:
            sent += [with_ids(read, response)]

    history.append(ChatMessage("Danke."))
    bench.answers(SHORT)
    await llm.achat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
    written = [ChatMessage.model_validate_json(message.model_dump_json()) for message in history]
    await llm.achat_with_tools(tools, chat_history=written, allow_parallel_tool_calls=True)
    last = bench.api.asked(*sent, "Danke.") | bench.api.tools(*tools)
    assert bench.bodies == [*expected, last, last]


@row(
    "the same conversation, sent to the others",
    further=True,
    notes=dict.fromkeys(("OpenRouter", "Gemini", "unnumbered", "interleaved"), "their servers count as one vendor"),
)
async def to_others(bench: Bench) -> None:
    tools, llm, history = [WEATHER, NOW], bench.model(), list(ASK)
    for said in _TURNS[:2]:
        bench.answers(said)
        response = await llm.achat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
        history += [response.message, *answer_all(llm, response)]
    for other in APIS:
        if other.vendor != bench.api.vendor:
            await _sent_to(bench, other, history)


async def _sent_to(bench: Bench, other: API, history: Sequence[ChatMessage]) -> None:
    """Send the conversation to another vendor's adapter."""
    llm = bench.model(other)
    bench.server.answers = [bench.streamed(other.stream(_TURNS[-1]))]
    response = await llm.achat_with_tools([WEATHER, NOW], chat_history=history, allow_parallel_tool_calls=True)
    assert response.message.content == "Es bleibt trocken. ☀"
    body = bench.bodies[-1]
    sent = json.dumps(body, ensure_ascii=False)
    assert [word for word in _PRIVATE if word in sent] == []
    # All else is there: the words, and each call with its result under its id.
    assert "Moment." in sent
    ids = [message.additional_kwargs["tool_call_id"] for message in history if message.role == "tool"]
    assert len(ids) == 3
    assert [sent.count(f'"{one}"') for one in ids] == [2, 2, 2]

"""What all adapters over SDKs share: their settings, their connections, and what never shows."""

import asyncio
import copy
import gc
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import (
    Anthropic,
    ChatMessage,
    ImageBlock,
    LLMConfigurationError,
    LLMError,
    LLMRequestError,
    OpenAI,
    OpenAILike,
    OpenAIResponses,
    RateLimitError,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from batonflow.llms.openai import openai_messages
from tests.llms.loopback import Answer, Loopback, loopback
from tests.llms.wire import chat
from tests.llms.wire.content import SAMPLES

ASK = [ChatMessage("Hello?")]
SAID = next(iter(SAMPLES.values()))


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as told:
        yield told


def model(server: Loopback, **options: Any) -> OpenAI:
    return OpenAI("m", **{"api_key": "sk-secret-0123", "base_url": f"{server.url}/v1", "max_retries": 0, **options})


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"temprature": 0.1}, "temprature is not an argument of OpenAI; did you mean temperature"),
            ({"presence_penalty": 1}, "go into additional_kwargs"),
            ({"timeout": -1}, "timeout: Input should be greater than 0"),
            ({"max_retries": -1}, "max_retries"),
            ({"model": ""}, "model"),
            ({"additional_kwargs": {"stream": "no"}}, "stream is True or False, got 'no'"),
        ],
    )
    def test_what_cannot_be_is_refused_when_the_model_is_made(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(LLMConfigurationError, match=words):
            OpenAI(**{"model": "m", "api_key": "k", **options})

    @pytest.mark.parametrize("options", [{"api_key": ["sk-secret"]}, {"default_headers": {"x": ["sk-secret"]}}])
    def test_the_refusal_shows_no_value(self, options: dict[str, Any]) -> None:
        with pytest.raises(LLMConfigurationError) as raised:
            OpenAI("m", **{"api_key": "k", **options})
        assert "secret" not in str(raised.value)

    def test_an_empty_address_in_the_environment_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "")
        assert OpenAI("m", api_key="k").base_url is None

    async def test_a_connection_is_waited_for_no_longer_than_the_sdk_would(self, server: Loopback) -> None:
        llm = model(server)
        sdk = await llm._client()
        assert (sdk.timeout.connect, sdk.timeout.read) == (5.0, 600.0)
        quick = model(server, timeout=2)
        assert (await quick._client()).timeout.connect == 2.0
        await llm.aclose()
        await quick.aclose()


class TestSecrets:
    def test_they_are_in_neither_repr_nor_dump(self) -> None:
        llm = OpenAI(
            "m",
            api_key="sk-key",
            base_url="https://user:password@proxy.example/v1",
            default_headers={"x-token": "quiet-1"},
            additional_kwargs={"extra_headers": {"x-other": "quiet-2"}, "seed": 7},
        )
        for shown in (repr(llm), str(llm.model_dump()), llm.model_dump_json(), str(llm.to_payload())):
            assert not any(secret in shown for secret in ("sk-key", "password", "quiet"))
        assert llm.model_dump()["base_url"] == "https://proxy.example/v1"
        assert llm.model_dump()["additional_kwargs"] == {"seed": 7}

    async def test_nor_in_errors_that_quote_what_a_call_was_given(self, server: Loopback) -> None:
        body = b'{"error": {"message": "bad header call-secret-1"}}'
        server.answers.append(Answer([body], status=400, content_type="application/json"))
        llm = model(server)
        with pytest.raises(LLMRequestError) as raised:
            await llm.achat(ASK, extra_headers={"x-call": "call-secret-1"})
        assert "bad header ***" in str(raised.value)
        await llm.aclose()


class TestErrors:
    @pytest.mark.parametrize(("code", "kind"), [(429, RateLimitError), ("429", RateLimitError), (400, LLMRequestError)])
    async def test_a_number_in_the_stream_is_a_status(self, server: Loopback, code: Any, kind: type[LLMError]) -> None:
        written = f'"{code}"' if isinstance(code, str) else code
        server.answers.append(Answer([f'data: {{"error": {{"message": "no", "code": {written}}}}}\n\n'.encode()]))
        llm = model(server)
        with pytest.raises(kind):
            await llm.achat(ASK)
        await llm.aclose()

    @pytest.mark.parametrize("kind", ["no data", "data without end"])
    async def test_what_cannot_be_sent_is_the_request_s_fault(self, server: Loopback, kind: str) -> None:
        llm = model(server)
        around: dict[str, Any] = {}
        around["around"] = around
        with pytest.raises(LLMRequestError, match="cannot be sent") as raised:
            await llm.achat(ASK, metadata=object() if kind == "no data" else around)
        assert not raised.value.retryable
        assert server.received == []
        await llm.aclose()


class TestHalvesOfCharacters:
    @pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses, Anthropic])
    @pytest.mark.parametrize(
        ("text", "sent"), [("so \ud83c happy", "so \ufffd happy"), ("so \ud83c\udf0a happy", "so \U0001f30a happy")]
    )
    async def test_they_reach_no_vendor(self, server: Loopback, kind: Any, text: str, sent: str) -> None:
        """A vendor could not read them; what is kept stays as it was."""
        asked = ChatMessage(text)
        llm = kind("m", api_key="k", base_url=server.url, max_retries=0)
        with pytest.raises(LLMError):
            await llm.achat([asked], user=text)  # the server has nothing to say
        assert len(server.received) == 1
        body = json.dumps(server.received[0].body, ensure_ascii=False)
        assert body.count(sent) == 2
        assert asked.content == text
        await llm.aclose()

    async def test_pieces_of_a_stream_are_joined_to_characters(self, server: Loopback) -> None:
        deltas: list[dict[str, Any]] = [
            {"reasoning_content": "hm \ud83c"},
            {"reasoning_content": "\udf0a"},
            {"content": "wave \ud83c"},
            {"content": "\udf0a, \udc00 and"},
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a": "\ud83c'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '\udf0a"}'}}]},
        ]
        chunks = [{"model": "m", "choices": [{"index": 0, "delta": one}]} for one in deltas]
        chunks.append({"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n"
        server.answers.append(Answer([body]))
        llm = model(server)
        responses = [one async for one in await llm.astream_chat(ASK)]
        assert [one.delta for one in responses if one.delta] == ["wave ", "\U0001f30a, \ufffd and"]
        thoughts = [one.additional_kwargs.get("thinking_delta") for one in responses]
        assert [one for one in thoughts if one] == ["hm ", "\U0001f30a"]
        thought, text, call = responses[-1].message.blocks
        assert isinstance(thought, ThinkingBlock)
        assert isinstance(text, TextBlock)
        assert isinstance(call, ToolCallBlock)
        assert (thought.content, text.text) == ("hm \U0001f30a", "wave \U0001f30a, \ufffd and")
        assert (call.tool_name, call.tool_kwargs) == ("add", {"a": "\U0001f30a"})
        await llm.aclose()


class TestNumbersThatJSONHasNot:
    @pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses, Anthropic])
    async def test_they_are_null_to_vendors(self, server: Loopback, kind: Any) -> None:
        call = ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs=json.loads('{"a": 1e999, "b": [NaN, 1]}'))
        said = ChatMessage([call], role="assistant")
        result = ChatMessage("inf", role="tool", additional_kwargs={"tool_call_id": "c"})
        llm = kind("m", api_key="k", base_url=server.url, max_retries=0)
        with pytest.raises(LLMError):
            await llm.achat([*ASK, said, result], metadata={"limit": math.nan})  # the server has nothing to say
        [request] = server.received
        body = json.dumps(request.body, allow_nan=False)
        assert '"limit": null' in body
        assert '{"a":null,"b":[null,1]}' in body.replace("\\", "").replace(" ", "")
        assert call.tool_kwargs == {"a": math.inf, "b": [pytest.approx(math.nan, nan_ok=True), 1]}
        await llm.aclose()


class TestConnections:
    def test_loops_that_end_close_theirs(self) -> None:
        async def main() -> None:
            async with loopback() as server:
                server.answers = lambda _: Answer([chat.stream(SAID)])
                llm = model(server)

                def ask_on_a_loop_of_its_own() -> None:
                    asyncio.run(llm.achat(ASK))

                await asyncio.to_thread(ask_on_a_loop_of_its_own)
                before = open_files()
                for _ in range(10):
                    await asyncio.to_thread(ask_on_a_loop_of_its_own)
                assert open_files() <= before + 1
                assert len(llm._clients._kept) <= 1

        asyncio.run(main())

    async def test_a_model_that_nobody_holds_any_more_closes_its_own(self, server: Loopback) -> None:
        server.answers = lambda _: Answer([chat.stream(SAID)])
        llm = model(server)
        await llm.achat(ASK)
        (connection,) = server.connections
        del llm
        gc.collect()
        await asyncio.wait_for(connection.left.wait(), timeout=30)

    def test_synchronous_ones_are_closed_by_close(self) -> None:
        async def main() -> None:
            async with loopback() as server:
                server.answers = lambda _: Answer([chat.stream(SAID)])
                llm = model(server)
                await asyncio.to_thread(llm.chat, ASK)
                (connection,) = server.connections
                assert not connection.left.is_set()
                await asyncio.to_thread(llm.close)
                await asyncio.wait_for(connection.left.wait(), timeout=30)

        asyncio.run(main())

    async def test_a_copy_opens_its_own(self, server: Loopback) -> None:
        server.answers = lambda _: Answer([chat.stream(SAID)])
        llm = model(server)
        await llm.achat(ASK)
        other = copy.deepcopy(llm)
        await other.achat(ASK)
        assert len(server.connections) == 2
        await llm.aclose()
        await other.aclose()


def test_of_several_answers_the_first_is_read() -> None:
    async def main() -> str | None:
        async with loopback() as server:
            pieces = [
                b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
                b'[{"index":%d,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n' % (index, text, reason)
                for index, text, reason in (
                    (0, b"a", b"null"), (1, b"x", b"null"), (0, b"b", b'"stop"'), (1, b"y", b'"stop"'),
                )
            ]  # fmt: skip
            server.answers = [Answer([*pieces, b"data: [DONE]\n\n"])]
            llm = model(server)
            try:
                return (await llm.achat(ASK, n=2)).message.content
            finally:
                await llm.aclose()

    assert asyncio.run(main()) == "ab"


def test_pictures_that_a_tool_returned_are_shown_in_a_message_behind_the_results() -> None:
    picture = ImageBlock(url="https://example.org/a.png")
    results = [
        ChatMessage([TextBlock(text=call), picture], role="tool", additional_kwargs={"tool_call_id": call})
        for call in ("a", "b")
    ]
    sent = openai_messages([*ASK, *results, ChatMessage("And now?")])
    assert [message["role"] for message in sent] == ["user", "tool", "tool", "user", "user"]
    shown = sent[3]["content"]
    assert [part["type"] for part in shown] == ["text", "image_url", "text", "image_url"]
    assert "a" in shown[0]["text"]


@pytest.mark.parametrize("made", [OpenAI, OpenAIResponses, Anthropic])
def test_every_adapter_says_what_it_needs(made: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LLMConfigurationError, match="_API_KEY"):
        made("m")


def test_compatible_servers_need_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(LLMConfigurationError, match="base_url"):
        OpenAILike("m")

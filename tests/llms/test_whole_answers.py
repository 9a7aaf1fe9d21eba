"""Answers in one piece: when they are asked for, and when a server does not stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest

from batonflow import FunctionAgent, ReActAgent
from batonflow.llms import (
    LLM,
    Anthropic,
    ChatMessage,
    FallbackLLM,
    FunctionCallingLLM,
    InvalidResponseError,
    LLMConfigurationError,
    LLMMetadata,
    LLMServerError,
    LLMTimeoutError,
    OpenAI,
    OpenAIResponses,
    RateLimitError,
)
from batonflow.llms.sdk_model import SDKModel
from batonflow.llms.stream import ChatRequest, Finish, TextDelta
from tests.llms.loopback import Answer, Loopback, Received, loopback
from tests.llms.wire import anthropic, chat, responses
from tests.llms.wire.chunking import as_asked, as_json, failing
from tests.llms.wire.content import Said, Text, ToolCall

ASK = [ChatMessage("Hello?")]
SAID = Said((Text("Twice a day."),))
CALL = Said((ToolCall("call_1", "tide", '{"place": "Brest"}'),))
REFUSED = {"error": {"message": "You must be verified to stream.", "type": "invalid_request_error", "param": "stream"}}

MODELS: dict[str, tuple[type[SDKModel], Any, str]] = {
    "chat": (OpenAI, chat, "/v1"),
    "responses": (OpenAIResponses, responses, "/v1"),
    "anthropic": (Anthropic, anthropic, ""),
}


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as told:
        yield told


@pytest.fixture(params=MODELS)
def api(request: pytest.FixtureRequest) -> tuple[type[SDKModel], Any, str]:
    return MODELS[request.param]


def answering(wire: Any, *said: Said) -> Callable[[Received], Answer]:
    """Answers as asked, one after the other, and the last one for ever."""
    left = list(said)

    def answer(request: Received) -> Answer:
        one = left.pop(0) if len(left) > 1 else left[0]
        return as_asked(wire.stream(one), wire.body(one))(request)

    return answer


def streams(server: Loopback) -> list[bool]:
    """Which requests asked for a stream."""
    return [bool(one.body.get("stream")) for one in server.received]


class TestAsked:
    async def test_by_the_model(self, server: Loopback, api: Any) -> None:
        kind, wire, base = api
        server.answers = answering(wire, SAID)
        llm = kind("m", api_key="k", base_url=server.url + base, streaming=False)
        assert (await llm.achat(ASK)).message.content == SAID.text
        assert (await llm.acomplete("Hello?")).text == SAID.text
        pieces = [one.delta async for one in await llm.astream_chat(ASK)]
        assert "".join(map(str, pieces)) == SAID.text
        assert streams(server) == [False, False, False]
        await llm.aclose()

    async def test_by_synchronous_calls(self, server: Loopback, api: Any) -> None:
        kind, wire, base = api
        server.answers = answering(wire, SAID)
        llm = kind("m", api_key="k", base_url=server.url + base, streaming=False)
        assert (await asyncio.to_thread(llm.chat, ASK)).message.content == SAID.text
        assert (await asyncio.to_thread(llm.complete, "Hello?")).text == SAID.text
        await asyncio.to_thread(llm.close)
        assert streams(server) == [False, False]

    async def test_by_one_call(self, server: Loopback, api: Any) -> None:
        kind, wire, base = api
        server.answers = answering(wire, SAID)
        llm = kind("m", api_key="k", base_url=server.url + base)
        await llm.achat(ASK, stream=False)
        await llm.achat(ASK)
        await llm.aclose()
        whole = kind("m", api_key="k", base_url=server.url + base, additional_kwargs={"stream": False})
        await whole.achat(ASK)
        await whole.achat(ASK, stream=True)
        await whole.aclose()
        assert streams(server) == [False, True, False, True]

    async def test_through_a_model_in_front(self, server: Loopback) -> None:
        server.answers = answering(chat, SAID)
        llm = FallbackLLM([OpenAI("m", api_key="k", base_url=f"{server.url}/v1")])
        await llm.achat(ASK, stream=False)
        assert streams(server) == [False]
        await llm.aclose()

    async def test_stream_is_a_truth_value(self) -> None:
        with pytest.raises(LLMConfigurationError, match="stream is True or False, got 'no'"):
            await OpenAI("m", api_key="k").achat(ASK, stream="no")

    async def test_long_answers_of_anthropic_may_be_whole(self, server: Loopback) -> None:
        server.answers = answering(anthropic, SAID)
        llm = Anthropic("m", api_key="k", base_url=server.url, max_tokens=64_000, streaming=False)
        assert (await llm.achat(ASK)).message.content == SAID.text
        await llm.aclose()

    async def test_arguments_of_anthropic_may_be_text(self, server: Loopback) -> None:
        body = anthropic.body(CALL)
        [call] = [block for block in body["content"] if block["type"] == "tool_use"]
        call["input"] = '{"place": "Brest"}'
        server.answers = lambda _: as_json(body)
        llm = Anthropic("m", api_key="k", base_url=server.url, streaming=False)
        answer = await llm.achat_with_tools([], chat_history=ASK)
        assert [one.tool_kwargs for one in llm.get_tool_calls_from_response(answer)] == [{"place": "Brest"}]
        await llm.aclose()


class TestAgents:
    def tide(self, place: str) -> str:
        """High water."""
        return f"{place}: 06:12"

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_a_function_agent(self, server: Loopback, api: Any, streaming: bool) -> None:
        kind, wire, base = api
        server.answers = answering(wire, CALL, SAID)
        llm = kind("m", api_key="k", base_url=server.url + base)
        agent = FunctionAgent(llm=llm, tools=[self.tide], streaming=streaming)
        assert str(await agent.run("When is high water?")) == SAID.text
        assert streams(server) == [streaming, streaming]
        await llm.aclose()

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_a_react_agent(self, server: Loopback, streaming: bool) -> None:
        server.answers = answering(chat, Said((Text("Thought: I know.\nAnswer: Twice."),)))
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1")
        agent = ReActAgent(llm=llm, tools=[self.tide], streaming=streaming)
        assert str(await agent.run("How often?")) == "Twice."
        assert streams(server) == [streaming]
        await llm.aclose()

    async def test_a_model_that_does_not_know_the_option_does_not_get_it(self) -> None:
        class Own(FunctionCallingLLM):
            got: list[dict[str, Any]] = []

            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(model_name="own", is_function_calling_model=True)

            async def achat(self, messages: Any, **kwargs: Any) -> Any:
                self.got.append(kwargs)
                return await LLM.achat(self, messages)

            async def _stream(self, request: ChatRequest) -> Any:
                yield TextDelta(text="yes")
                yield Finish()

        llm = Own()
        assert str(await FunctionAgent(llm=llm, tools=[self.tide], streaming=False).run("?")) == "yes"
        assert "stream" not in llm.got[0]


class TestServersThatDoNotStream:
    async def test_a_refusal_is_remembered_for_the_model_alone(self, server: Loopback) -> None:
        def answer(request: Received) -> Answer:
            return failing(400, REFUSED) if request.body.get("stream") else as_json(chat.body(SAID))

        server.answers = answer
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1")
        await llm.achat(ASK)
        await llm.achat(ASK)
        await llm.achat(ASK, model="other")
        assert streams(server) == [True, False, False, True, False]
        await llm.aclose()

    async def test_another_refusal_is_an_error(self, server: Loopback) -> None:
        server.answers.append(failing(400, {"error": {"message": "No.", "param": "temperature"}}))  # type: ignore[union-attr]
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1")
        with pytest.raises(Exception, match=r"No\."):
            await llm.achat(ASK)
        assert streams(server) == [True]
        await llm.aclose()

    async def test_events_called_json_are_read_as_events(self, server: Loopback, api: Any) -> None:
        kind, wire, base = api
        server.answers = lambda _: Answer([b"\n", wire.stream(SAID)], content_type="application/json")
        llm = kind("m", api_key="k", base_url=server.url + base)
        for _ in range(2):
            assert (await llm.achat(ASK)).message.content == SAID.text
        assert streams(server) == [True, True]
        await llm.aclose()

    async def test_an_error_in_json_is_that_error(self, server: Loopback, api: Any) -> None:
        kind, _, base = api
        told = {"type": "error", "error": {"message": "Too fast.", "type": "rate_limit_error", "code": 429}}
        server.answers = lambda _: as_json(told)
        for streaming in (True, False):
            llm = kind("m", api_key="k", base_url=server.url + base, max_retries=0, streaming=streaming)
            with pytest.raises(RateLimitError, match=r"Too fast\."):
                await llm.achat(ASK)
            await llm.aclose()

    async def test_a_response_that_failed(self, server: Loopback) -> None:
        failed = {**responses.body(SAID), "status": "failed", "error": {"code": "server_error", "message": "Broken."}}
        server.answers = lambda _: as_json(failed)
        llm = OpenAIResponses("m", api_key="k", base_url=f"{server.url}/v1", streaming=False)
        with pytest.raises(LLMServerError, match=r"Broken\."):
            await llm.achat(ASK)
        await llm.aclose()

    async def test_blanks_before_a_whole_answer_do_not_keep_it_alive(self, server: Loopback) -> None:
        server.answers = lambda _: Answer([b" \n"] * 1000, pause=0.02, content_type="application/json")
        for streaming in (True, False):
            llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1", timeout=0.2, max_retries=0, streaming=streaming)
            with pytest.raises(LLMTimeoutError, match=r"within 0\.2 s"):
                await llm.achat(ASK)
            await llm.aclose()

    async def test_a_whole_answer_has_a_bound(self, server: Loopback) -> None:
        server.answers = lambda _: as_json(chat.body(Said((Text("long " * 1000),))))
        for streaming in (True, False):
            llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1", max_answer_bytes=4000, streaming=streaming)
            with pytest.raises(InvalidResponseError, match="longer than 4,000 bytes"):
                await llm.achat(ASK)
            await llm.aclose()


class TestPatchedSDKs:
    async def test_an_answer_given_in_place_of_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Programs that stand in for a vendor patch the client's ``request`` and give the SDK's object."""

        async def request(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
            assert not more.get("stream")
            return openai.types.chat.ChatCompletion.construct(**chat.body(SAID))

        monkeypatch.setattr(openai.AsyncOpenAI, "request", request)
        llm = OpenAI("m", api_key="k", streaming=False)
        response = await llm.achat(ASK)
        assert response.message.content == SAID.text
        await llm.aclose()


class TestOwnModels:
    async def test_tool_required_is_passed_on_when_asked_for_only(self) -> None:
        class Own(FunctionCallingLLM):
            prepared: list[dict[str, Any]] = []

            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(model_name="own", is_function_calling_model=True)

            def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
                self.prepared.append(kwargs)
                return {"messages": [ChatMessage("?")]}

            async def _stream(self, request: ChatRequest) -> Any:
                yield TextDelta(text="yes")
                yield Finish()

        llm = Own()
        await llm.achat_with_tools([], "?")
        await llm.achat_with_tools([], "?", tool_required=True)
        assert ["tool_required" in kwargs for kwargs in llm.prepared] == [False, True]

"""Servers that speak OpenAI's chat protocol in ways of their own."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from batonflow import FunctionAgent
from batonflow.llms import ChatMessage, ChatResponse, LLMRequestError, OpenAI, OpenAILike, ThinkingBlock
from batonflow.llms.anthropic import anthropic_messages
from tests.llms.loopback import Answer, Loopback, loopback
from tests.llms.wire import chat
from tests.llms.wire.chunking import as_json, encoded, failing
from tests.llms.wire.content import Said, Text, ToolCall

ASK = [ChatMessage("When is high water?")]


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as told:
        yield told


def made(server: Loopback, **options: Any) -> OpenAILike:
    return OpenAILike("m", **{"base_url": f"{server.url}/v1", "max_retries": 0, **options})


def streamed(*deltas: dict[str, Any], reason: str = "stop") -> Answer:
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    return Answer(
        [b"data: " + encoded({**base, "choices": [one]}) + b"\n\n" for one in choices] + [b"data: [DONE]\n\n"]
    )


def whole(message: dict[str, Any], reason: str = "stop") -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return as_json({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


async def asked(server: Loopback, answer: Answer, **options: Any) -> tuple[ChatResponse, str]:
    """The answer, and the thoughts that were shown before it."""
    server.answers = [answer]
    llm = made(server, **options)
    thoughts, last = "", None
    async for last in await llm.astream_chat(ASK):
        thoughts += last.additional_kwargs.get("thinking_delta") or ""
    await llm.aclose()
    assert last is not None
    return last, thoughts


def thinking(*texts: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts]}


class TestMistral:
    """Content that is a list of parts, thoughts among them."""

    def check(self, response: ChatResponse, thoughts: str) -> None:
        assert thoughts == "The moon, then."
        assert response.message.content == "At six."
        first, second = response.message.blocks
        assert isinstance(first, ThinkingBlock)
        assert (first.content, second.block_type) == ("The moon, then.", "text")

    async def test_in_pieces(self, server: Loopback) -> None:
        answer = streamed(
            {"role": "assistant", "content": ""},
            {"content": [thinking("The moon")]},
            {"content": [thinking(", then.")]},
            {"content": [{"type": "text", "text": "At "}]},
            {"content": "six."},
        )
        self.check(*await asked(server, answer))

    async def test_thought_and_text_in_one_piece(self, server: Loopback) -> None:
        answer = streamed({"content": [thinking("The moon, then."), {"type": "text", "text": "At six."}]})
        self.check(*await asked(server, answer))

    async def test_whole(self, server: Loopback) -> None:
        answer = whole({"content": [thinking("The moon", ", then."), {"type": "text", "text": "At six."}]})
        self.check(*await asked(server, answer, streaming=False))


DETAILS: Sequence[dict[str, Any]] = (
    {"type": "reasoning.text", "text": "The moon", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": ", then.", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "AAA=", "id": "call_1", "format": "google-gemini-v1", "index": 1},
    {"type": "reasoning.encrypted", "data": "BBB=", "id": "call_2", "format": "google-gemini-v1", "index": 1},
)
JOINED = [
    {
        "type": "reasoning.text",
        "text": "The moon, then.",
        "signature": "c2ln",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    *DETAILS[3:],
]
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}


class TestOpenRouter:
    """Signed thoughts, which must go back as they came."""

    async def goes_back(self, server: Loopback, response: ChatResponse, llm: OpenAI) -> Any:
        message = ChatMessage.model_validate_json(response.message.model_dump_json())
        result = ChatMessage("06:12", role="tool", additional_kwargs={"tool_call_id": "call_1"})
        server.answers = [streamed({"content": "At six."})]
        await llm.achat([*ASK, message, result])
        await llm.aclose()
        return server.received[-1].body["messages"][1].get("reasoning_details")

    async def test_pieces_are_joined_and_go_back(self, server: Loopback) -> None:
        pieces = [{"reasoning": one.get("text"), "reasoning_details": [one]} for one in DETAILS]
        answer = streamed(*pieces, {"tool_calls": [CALL]}, reason="tool_calls")
        response, thoughts = await asked(server, answer)
        assert thoughts == "The moon, then."
        assert await self.goes_back(server, response, made(server)) == JOINED

    async def test_details_behind_the_call_and_without_a_text_of_their_own(self, server: Loopback) -> None:
        answer = streamed(
            {"reasoning_details": [DETAILS[0]]},
            {"tool_calls": [CALL]},
            {"reasoning_details": [DETAILS[3]]},
            reason="tool_calls",
        )
        response, thoughts = await asked(server, answer)
        assert thoughts == "The moon"
        assert await self.goes_back(server, response, made(server)) == [DETAILS[0], DETAILS[3]]

    async def test_whole(self, server: Loopback) -> None:
        call = {name: value for name, value in CALL.items() if name != "index"}
        answer = whole({"content": None, "tool_calls": [call], "reasoning_details": list(JOINED)}, "tool_calls")
        response, _ = await asked(server, answer, streaming=False)
        assert await self.goes_back(server, response, made(server)) == JOINED

    async def test_another_vendor_gets_none(self, server: Loopback) -> None:
        response, _ = await asked(server, streamed({"reasoning_details": [DETAILS[0]]}, {"tool_calls": [CALL]}))
        other = OpenAI("m", api_key="k", base_url=f"{server.url}/v1")
        assert await self.goes_back(server, response, other) is None
        assert "reasoning" not in str(anthropic_messages([*ASK, response.message]))


def tide(place: str) -> str:
    """High water at a place."""
    return f"{place}: 06:12"


def unread(generation: str, status: int = 400) -> Answer:
    """What Groq says of a call that it could not read."""
    told = {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}
    error = {"error": {**told, "failed_generation": generation}}
    return failing(status, error) if status != 200 else Answer([b"data: " + encoded(error) + b"\n\n"])


GENERATIONS = {
    "a tag with arguments": '<function=tide{"place": "Brest"}</function>',
    "a closed tag": '<function=tide>{"place": "Brest"}</function>',
    "a call tag": '<tool_call>\n{"name": "tide", "arguments": {"place": "Brest"}}\n</tool_call>',
    "a list": '[{"name": "tide", "parameters": {"place": "Brest"}}]',
    "an object": '{"name": "tide", "arguments": "{\\"place\\": \\"Brest\\"}"}',
    "calls in a frame": '{"tool_calls": [{"function": {"name": "tide", "arguments": {"place": "Brest"}}}]}',
}


class TestGroq:
    """Calls that the server could not read become calls that an agent answers."""

    @pytest.mark.parametrize("form", GENERATIONS)
    @pytest.mark.parametrize("status", [400, 200])
    async def test_a_call_is_made_of_what_the_model_wrote(self, server: Loopback, form: str, status: int) -> None:
        server.answers = [unread(GENERATIONS[form], status), streamed({"content": "At six."})]
        llm = made(server)
        output = await FunctionAgent(llm=llm, tools=[tide]).run("When is high water in Brest?")
        assert str(output) == "At six."
        assert server.received[1].body["messages"][-1]["content"] == "Brest: 06:12"
        await llm.aclose()

    async def test_also_in_whole_answers(self, server: Loopback) -> None:
        server.answers = [unread(GENERATIONS["a list"]), whole({"content": "At six."})]
        llm = made(server, streaming=False)
        assert str(await FunctionAgent(llm=llm, tools=[tide]).run("When?")) == "At six."
        await llm.aclose()

    async def test_broken_arguments_are_told_to_the_model(self, server: Loopback) -> None:
        server.answers = [unread('<function=tide{"place": Brest}</function>'), streamed({"content": "Sorry."})]
        llm = made(server)
        assert str(await FunctionAgent(llm=llm, tools=[tide]).run("When?")) == "Sorry."
        assert "JSON" in server.received[1].body["messages"][-1]["content"]
        await llm.aclose()

    async def test_a_tool_that_is_only_mentioned(self, server: Loopback) -> None:
        server.answers = [unread("tide(place=Brest"), streamed({"content": "Sorry."})]
        llm = made(server)
        assert str(await FunctionAgent(llm=llm, tools=[tide]).run("When?")) == "Sorry."
        assert server.received[1].body["messages"][-1]["role"] == "tool"
        await llm.aclose()

    async def test_words_without_a_call_are_the_answer(self, server: Loopback) -> None:
        response, _ = await asked(server, unread("I cannot look that up."))
        assert response.message.content == "I cannot look that up."

    async def test_behind_what_was_shown(self, server: Loopback) -> None:
        begun = chat.unfinished(Said((Text("Let me see. "),)))
        server.answers = [Answer([begun, *unread(GENERATIONS["a list"], 200).body])]
        llm = made(server)
        response = await llm.achat(ASK)
        assert response.message.content == "Let me see. "
        [call] = llm.get_tool_calls_from_response(response)
        assert (call.tool_name, call.tool_kwargs) == ("tide", {"place": "Brest"})
        await llm.aclose()

    async def test_without_what_was_written_it_is_an_error(self, server: Loopback) -> None:
        server.answers = [unread("")]
        llm = made(server)
        with pytest.raises(LLMRequestError, match="tool_use_failed"):
            await llm.achat(ASK)
        await llm.aclose()


async def test_a_call_that_is_whole_at_once(server: Loopback) -> None:
    body = chat.body(Said((ToolCall("c", "tide", '{"place": "Brest"}'),)))
    response, _ = await asked(server, as_json(body), streaming=False)
    [call] = made(server).get_tool_calls_from_response(response)
    assert call.tool_kwargs == {"place": "Brest"}

"""RecordingLLM and ReplayLLM: what is written down, what comes back, and what a miss says."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from batonflow.llms import (
    CacheControl,
    CachePoint,
    ChatMessage,
    ChatResponse,
    ImageBlock,
    LLMConfigurationError,
    RateLimitError,
    RecordingLLM,
    ReplayLLM,
    ReplayMissError,
    ScriptedLLM,
    TextBlock,
    ThinkingBlock,
    tool_call,
)
from batonflow.llms.function_calling import FunctionCallingLLM
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.replay import normalised
from batonflow.llms.stream import ChatRequest, Finish, StreamEvent, ToolCallDelta

ADD: dict[str, Any] = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}
ASK = [ChatMessage("What is 2 + 40?")]
THOUGHT = ThinkingBlock(content="2 + 40", additional_information={"signature": "s"})
SAID = ["Let me see. ", THOUGHT, tool_call("add", a=2, b=None)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers" / "sums.json"


def recorded(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


async def pieces(llm: Any, messages: list[ChatMessage], **options: Any) -> list[ChatResponse]:
    return [response async for response in await llm.astream_chat(messages, **options)]


class TestWhatComesBack:
    async def test_the_same_pieces_with_thoughts_calls_usage_and_reason(self, path: Path) -> None:
        first = await pieces(RecordingLLM(ScriptedLLM([SAID]), path), ASK, tools=[ADD])
        replayed = await pieces(ReplayLLM(path), ASK, tools=[ADD])
        assert replayed == first
        assert replayed[-1].usage is not None
        assert replayed[-1].message.blocks[1] == THOUGHT

    async def test_what_is_asked_several_times_is_answered_in_turn(self, path: Path) -> None:
        recording = RecordingLLM(ScriptedLLM(["one", "two"]), path)
        for _ in range(2):
            await recording.achat(ASK)
        replay = ReplayLLM(path)
        assert [(await replay.achat(ASK)).message.content for _ in range(3)] == ["one", "two", "one"]

    async def test_errors_come_back_as_they_were(self, path: Path) -> None:
        error = RateLimitError("slow down", status_code=429, request_id="r", retry_after=3.0, vendor="v", model="m")
        with pytest.raises(RateLimitError) as first:
            await RecordingLLM(ScriptedLLM([error]), path).achat(ASK)
        with pytest.raises(RateLimitError) as second:
            await ReplayLLM(path).achat(ASK)
        assert str(second.value) == str(first.value) == "v m: slow down (status 429, request r)"
        assert (second.value.retry_after, second.value.retryable) == (3.0, True)

    async def test_what_holds_half_a_character_too(self, path: Path) -> None:
        ask = [ChatMessage("a wave \ud83c?")]
        await RecordingLLM(ScriptedLLM(["yes"]), path).achat(ask)
        assert (await ReplayLLM(path).achat(ask)).message.content == "yes"

    async def test_the_model_looks_as_the_recorded_one(self, path: Path) -> None:
        scripted = ScriptedLLM(["yes"], model="recorded", context_window=77)
        await RecordingLLM(scripted, path).achat(ASK)
        assert ReplayLLM(path).metadata == scripted.metadata

    async def test_ids_that_are_made_anew_each_time_do_not_matter(self, path: Path) -> None:
        class Nameless(FunctionCallingLLM):
            """Calls a tool without an id, so that one is made here."""

            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata(is_function_calling_model=True)

            async def _stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
                if len(request.messages) == 1:
                    yield ToolCallDelta(index=0, name="add", arguments="{}")
                yield Finish()

        async def two_turns(llm: FunctionCallingLLM) -> str:
            first = await llm.achat(ASK, tools=[ADD])
            (call,) = llm.get_tool_calls_from_response(first)
            result = ChatMessage("42", role="tool", additional_kwargs={"tool_call_id": call.tool_id})
            await llm.achat([*ASK, first.message, result], tools=[ADD])
            return call.tool_id

        assert await two_turns(RecordingLLM(Nameless(), path)) != await two_turns(ReplayLLM(path))

    async def test_the_pace_can_be_set(self, path: Path) -> None:
        await RecordingLLM(ScriptedLLM(["one two three"]), path).achat(ASK)
        stream = await ReplayLLM(path, delay=60).astream_chat(ASK)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), timeout=0.05)


class TestTheFile:
    async def test_it_holds_neither_headers_nor_anything_of_the_way(self, path: Path) -> None:
        options = {"extra_headers": {"authorization": "Bearer secret"}, "timeout": 7, "temperature": 0.5}
        await RecordingLLM(ScriptedLLM(["yes"]), path).achat(ASK, **options)
        assert "secret" not in json.dumps(recorded(path))
        (exchange,) = recorded(path)["exchanges"].values()
        assert exchange["request"]["options"] == {"temperature": 0.5}
        assert (await ReplayLLM(path).achat(ASK, temperature=0.5)).message.content == "yes"

    async def test_it_is_overwritten_unless_it_is_to_be_kept(self, path: Path) -> None:
        other = [ChatMessage("And 3?")]
        await RecordingLLM(ScriptedLLM(["yes"]), path).achat(ASK)
        await RecordingLLM(ScriptedLLM(["no"]), path, keep=True).achat(other)
        kept = ReplayLLM(path)
        assert [(await kept.achat(asked)).message.content for asked in (ASK, other)] == ["yes", "no"]
        await RecordingLLM(ScriptedLLM(["new"]), path).achat(other)
        assert len(recorded(path)["exchanges"]) == 1

    async def test_many_at_once_leave_it_whole(self, path: Path) -> None:
        recording = RecordingLLM(ScriptedLLM([lambda request: request.messages[-1].content or ""] * 20), path)
        await asyncio.gather(*(recording.achat([ChatMessage(str(number))]) for number in range(20)))
        replay = ReplayLLM(path)
        for number in range(20):
            assert (await replay.achat([ChatMessage(str(number))])).message.content == str(number)
        assert [one.name for one in path.parent.iterdir()] == [path.name]

    async def test_an_answer_nobody_waited_for_is_not_recorded(self, path: Path) -> None:
        stream = await RecordingLLM(ScriptedLLM(["one two three"]), path).astream_chat(ASK)
        await anext(stream)
        await stream.aclose()
        with pytest.raises(LLMConfigurationError, match="there is no recording"):
            ReplayLLM(path)

    @pytest.mark.parametrize(
        ("text", "words"), [(None, "there is no recording"), ("{", "is not a recording"), ('{"format": 0}', "format 1")]
    )
    def test_a_file_that_is_no_recording(self, path: Path, text: str | None, words: str) -> None:
        if text is not None:
            path.parent.mkdir()
            path.write_text(text)
        with pytest.raises(LLMConfigurationError, match=words):
            ReplayLLM(path)


class TestMisses:
    async def test_a_miss_says_what_differs_from_the_nearest_request(self, path: Path) -> None:
        recording = RecordingLLM(ScriptedLLM(["a", "b"]), path)
        await recording.achat([ChatMessage("something else altogether"), ChatMessage("and more", role="assistant")])
        await recording.achat(ASK, tools=[ADD], temperature=0.5)
        with pytest.raises(ReplayMissError) as raised:
            await ReplayLLM(path).achat([ChatMessage("What is 2 + 41?")], tools=[ADD], temperature=0.7)
        text = str(raised.value)
        assert "differs from the nearest of 2 in message 1 (user), option temperature. Record it again" in text
        assert "-What is 2 + 40?\n+What is 2 + 41?" in text
        assert "-0.5\n+0.7" in text
        assert "something else" not in text

    async def test_a_miss_is_short_whatever_the_requests_hold(self, path: Path) -> None:
        picture = ImageBlock(image=b"x" * 300_000, image_mimetype="image/png")
        await RecordingLLM(ScriptedLLM(["a"]), path).achat([ChatMessage("word\n" * 20_000), ChatMessage([picture])])
        with pytest.raises(ReplayMissError) as raised:
            await ReplayLLM(path).achat([ChatMessage("words\n" * 20_000), ChatMessage("What is this?")])
        assert len(str(raised.value)) < 10_000

    async def test_a_tool_more_is_a_difference(self, path: Path) -> None:
        await RecordingLLM(ScriptedLLM(["a"]), path).achat(ASK)
        with pytest.raises(ReplayMissError, match="in tool add"):
            await ReplayLLM(path).achat(ASK, tools=[ADD])


def test_media_thoughts_and_cache_points_are_part_of_a_request() -> None:
    blocks = [TextBlock(text="a"), ThinkingBlock(content="b"), CachePoint(cache_control=CacheControl(type="ephemeral"))]
    full, bare = (ChatRequest(messages=[ChatMessage(said)]) for said in (blocks, blocks[:1]))
    assert normalised(full) != normalised(bare)
    assert json.loads(json.dumps(normalised(full))) == normalised(full)

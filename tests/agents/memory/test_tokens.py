"""count_tokens: estimates without a tokenizer."""

import pytest

from batonflow.agents.memory import count_tokens
from batonflow.agents.memory.tokens import MediaTokens
from batonflow.agents.memory.turns import observation
from batonflow.llms import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from batonflow.tools import ToolSelection


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("four", 1), ("tides", 2), ("прилив", 3), ("潮汐", 2), ("\ud800", 1)]
)
def test_a_token_for_every_four_bytes(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


def test_a_tokenizer_of_your_own_counts_instead() -> None:
    assert count_tokens("one two three", str.split) == 3
    assert count_tokens(ChatMessage("one two three"), str.split) == 3


def test_what_is_no_text_is_estimated() -> None:
    data = b"\x89PNG\r\n\x1a\n" + b"." * 100
    blocks = [
        ImageBlock(image=data), AudioBlock(audio=data), VideoBlock(video=data), DocumentBlock(data=data),
        CachePoint(cache_control=CacheControl(type="ephemeral")),
    ]  # fmt: skip
    assert [count_tokens(block) for block in blocks] == [256, 256, 256, 2048, 0]
    assert count_tokens(blocks) == count_tokens(ChatMessage(blocks)) == 3 * 256 + 2048
    assert count_tokens(blocks, media=MediaTokens(image=1, audio=2, video=3, document=4)) == 10


def test_calls_results_and_thoughts_count() -> None:
    call = ChatMessage([ToolCallBlock(tool_name="tide", tool_kwargs={"harbour": "Brest" * 20})])
    older = ChatMessage(None, additional_kwargs={"tool_calls": [{"id": "1", "function": {"arguments": "x" * 100}}]})
    assert count_tokens(call) > 25
    assert count_tokens(older) > 25
    assert count_tokens(ThinkingBlock(content="x" * 40)) == 10
    assert count_tokens(ThinkingBlock(content="x" * 40, num_tokens=700)) == 700
    assert count_tokens(NativeBlock(vendor="openai", data={"query": "x" * 40})) > 10
    assert count_tokens(CitableBlock(title="tide", source="s", content=[TextBlock(text="x" * 40)])) == 11


def test_calls_count_the_same_when_they_come_back_from_a_snapshot() -> None:
    selection = ToolSelection(tool_id="1", tool_name="tide", tool_kwargs={"harbour": "Brest"})
    message = ChatMessage(None, additional_kwargs={"tool_calls": [selection]})
    assert count_tokens(message) == count_tokens(ChatMessage.model_validate_json(message.model_dump_json()))


def test_the_mark_of_an_observation_counts_nothing() -> None:
    assert count_tokens(observation("four")) == count_tokens(ChatMessage("four"))


def test_several_are_added_up() -> None:
    assert count_tokens([ChatMessage("four"), ChatMessage("four")]) == 2
    assert count_tokens([]) == 0

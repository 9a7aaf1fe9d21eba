"""PromptHelper: the passages that fit into a prompt."""

import pytest

from batonflow.llms.messages import LLMMetadata
from batonflow.llms.prompts import PromptTemplate
from batonflow.retrieval.prompt_helper import PromptHelper

PROMPT = PromptTemplate("one two three {query_str} {context_str}")


def words(count: int, word: str = "w") -> str:
    return " ".join([word] * count)


def helper(window: int, **options: object) -> PromptHelper:
    """A helper that counts words, and keeps ten of them for the answer."""
    return PromptHelper(window, 10, tokenizer=str.split, **options)  # type: ignore[arg-type]


def test_the_sizes_come_from_the_model() -> None:
    made = PromptHelper.from_llm_metadata(LLMMetadata(context_window=4096, num_output=64))
    assert (made.context_window, made.num_output) == (4096, 64)


def test_the_share_of_overlap_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="chunk_overlap_ratio"):
        PromptHelper(chunk_overlap_ratio=1.5)


def test_a_splitter_gives_each_of_several_pieces_its_share_of_the_room() -> None:
    made = helper(113, chunk_overlap_ratio=0.0)  # 100 words of room
    assert made.get_text_splitter_given_prompt(PROMPT, 1).chunk_size == 95
    assert made.get_text_splitter_given_prompt(PROMPT, 2).chunk_size == 45
    assert made.get_text_splitter_given_prompt(PROMPT, 2, padding=0).chunk_size == 50
    assert helper(113, chunk_size_limit=20).get_text_splitter_given_prompt(PROMPT).chunk_size == 20


def test_values_that_the_prompt_knows_take_room() -> None:
    made = helper(113, chunk_overlap_ratio=0.0)
    prompt = PROMPT.partial_format(query_str=words(40))
    assert made.get_text_splitter_given_prompt(prompt).chunk_size == 55


def test_truncated_texts_fit_into_one_prompt_together() -> None:
    cut = helper(43).truncate(PROMPT, [words(100), words(100, "v"), "short"])
    assert [len(one.split()) for one in cut] == [5, 5, 1]
    assert helper(43).truncate(PROMPT, []) == []


def test_texts_that_fit_are_joined_with_blank_lines() -> None:
    assert helper(38).repack(PROMPT, [words(8, "a"), "", words(8, "b"), words(8, "c")]) == [
        f"{words(8, 'a')}\n\n{words(8, 'b')}",
        words(8, "c"),
    ]


def test_only_a_text_that_is_too_long_is_cut() -> None:
    packed = helper(38, chunk_overlap_ratio=0.0).repack(PROMPT, [words(15, "a"), words(50, "b"), words(5, "c")])
    assert packed[0] == words(15, "a")
    assert all(len(one.split()) <= 20 for one in packed)
    assert " ".join(packed).split() == [*["a"] * 15, *["b"] * 50, *["c"] * 5]


def test_the_error_for_a_full_prompt_says_by_how_many_tokens() -> None:
    with pytest.raises(ValueError, match="That is 6 too few for 1 pieces"):
        helper(13).repack(PROMPT, ["text"])

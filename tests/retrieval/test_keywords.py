"""Keywords: by frequency, by RAKE, and out of the answer of a model."""

import pytest

from batonflow.retrieval.keywords import keywords_in_answer, rake_keywords, simple_extract_keywords


def test_the_most_frequent_words_are_the_keywords() -> None:
    text = "The moon pulls the sea. The sea follows the moon, and the moon goes on."
    assert simple_extract_keywords(text, 2) == {"moon", "sea"}
    assert "the" in simple_extract_keywords(text, filter_stopwords=False)


def test_chinese_texts_have_keywords_too() -> None:
    assert simple_extract_keywords("月亮月亮", 1) == {"月亮"}


def test_rake_finds_phrases_of_words_with_many_neighbours() -> None:
    text = "Spring tides are strong tides. Spring tides come with a new moon."
    assert rake_keywords(text, 1, expand_with_subtokens=False) == {"spring tides come"}
    assert rake_keywords(text, 1) == {"spring tides come", "spring", "tides", "come"}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("KEYWORDS: moon, tides", {"moon", "tides"}),
        ("Here they are.\nKEYWORDS: Spring Tides, moon\nThat is all.", {"spring tides", "spring", "tides", "moon"}),
        ("moon", {"moon"}),
        ("KEYWORDS: ", set[str]()),
    ],
)
def test_keywords_are_read_out_of_an_answer(answer: str, found: set[str]) -> None:
    assert keywords_in_answer(answer) == found

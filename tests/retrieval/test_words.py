"""Words and tokens of texts."""

import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.llms import Settings
from batonflow.llms.errors import MissingDependencyError
from batonflow.retrieval import words
from batonflow.retrieval.words import get_tokenizer, query_words, set_global_tokenizer, words_of


@pytest.fixture(autouse=True)
def _default_tokenizer() -> Iterator[None]:
    yield
    set_global_tokenizer(None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("Tides are running", ["tide", "are", "run"], id="stems"),
        pytest.param("max_tokens", ["maxtoken", "max", "token"], id="snake"),
        pytest.param("getUserName", ["getusernam", "get", "user", "name"], id="camel"),
        pytest.param("HTTPServer", ["httpserver", "http", "server"], id="capitals"),
        pytest.param("__init__", ["init"], id="a part that is the whole"),
        pytest.param("utf8 3.14 _1", ["utf8", "3", "14", "1"], id="digits"),
        pytest.param("东京都", ["东京", "京都"], id="pairs of Chinese characters"),
        pytest.param("水 と", ["水", "と"], id="a lone character"),
        pytest.param("用Python写", ["用", "python", "写"], id="two scripts"),
        pytest.param("한국어", ["한국", "국어"], id="Korean"),
        pytest.param("Café cafe\u0301 STRASSE straße", ["cafe", "cafe", "strass", "strass"], id="accents and case"),
        pytest.param("Привет_мир", ["приветмир", "привет", "мир"], id="another alphabet"),
        pytest.param("ﾃｽﾄ \uff37ide", ["テス", "スト", "wide"], id="forms of width"),
        pytest.param("?! ___ --", [], id="signs"),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words_of(text) == found


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What are the tides of the moon?", ["tide", "moon"]),
        ("who are you", ["who", "are", "you"]),
        ("tide and tides", ["tide"]),
        ("", []),
    ],
)
def test_a_question_has_no_stop_words_where_others_remain(question: str, found: list[str]) -> None:
    assert query_words(question) == found


@given(st.text())
def test_each_word_is_one_token_of_an_index_and_found_by_itself(text: str) -> None:
    found = words_of(text)
    assert all(map(str.isalnum, found))
    assert set(query_words(text)) <= set(found)


def test_threads_share_the_stemmer(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [f"running{letter}ness" for letter in "abcdefghijklmnopqrstuvwxyz"] * 4
    alone = words_of(" ".join(written))
    monkeypatch.setattr(words, "_known", words._Known())
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(words_of(" ".join(written)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 4


def test_words_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_MOST_REMEMBERED", 3)
    monkeypatch.setattr(words, "_known", words._Known())
    assert words_of("a b c d e a") == ["a", "b", "c", "d", "e", "a"]
    assert len(words._known) <= 3


def test_a_missing_stemmer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_known", words._Known())
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(MissingDependencyError, match=r"snowballstemmer.*\[retrieval\]"):
        words_of("tides")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Tides follow the moon.", ["Tides", "follow", "the", "moon", "."]),
        ("internationalization", ["internati", "onalizati", "on"]),
        ("1234567", ["123", "456", "7"]),
        ("水と", ["水", "と"]),
        ("a != b;", ["a", "!=", "b", ";"]),
        ("one\n\n  two", ["one", "\n\n", "  ", "two"]),
        ("", []),
    ],
)
def test_the_default_tokenizer_needs_no_vocabulary(text: str, tokens: list[str]) -> None:
    assert get_tokenizer()(text) == tokens


def test_the_tokenizer_of_settings() -> None:
    set_global_tokenizer(str.split)
    assert get_tokenizer() is Settings.tokenizer is str.split

    class Encoder:
        def encode(self, text: str) -> list[int]:
            return [ord(one) for one in text]

    set_global_tokenizer(Encoder())
    assert get_tokenizer()("ab") == [97, 98]

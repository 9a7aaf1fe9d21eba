"""Text as it can be sent and written down."""

import math

import pytest

from batonflow.llms.blocks import has_halves, json_data, sendable, whole_texts


@pytest.mark.parametrize("text", ["", "plain", "Zw\u00f6lf \U0001f30a \u6f6e\u6c50"])
def test_whole_characters_stay_as_they_are(text: str) -> None:
    assert not has_halves(text)
    assert sendable(text) is text


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("wave \ud83c\udf0a", "wave \U0001f30a"),
        ("wave \ud83c", "wave \ufffd"),
        ("\udf0a\ud83c", "\ufffd\ufffd"),
        ("\ud83c\ud83c\udf0a", "\ufffd\U0001f30a"),
        ("caf\udce9.txt", "caf\ufffd.txt"),
    ],
)
def test_halves_are_joined_or_replaced(text: str, sent: str) -> None:
    assert has_halves(text)
    assert sendable(text) == sent


def test_texts_are_found_wherever_they_lie() -> None:
    when = object()
    data = {"a\ud83c": ["\ud83c\udf0a", 1, None, {"b": "\udf0a"}], "when": when, "pair": (1, 2)}
    assert whole_texts(data) == {"a\ufffd": ["\U0001f30a", 1, None, {"b": "\ufffd"}], "when": when, "pair": (1, 2)}


def test_numbers_that_json_has_not_become_none() -> None:
    data = {"a": [math.nan, math.inf, 1.5, 2, True], "b": {"c": -math.inf, "d": "NaN \ud83c"}}
    assert json_data(data) == {"a": [None, None, 1.5, 2, True], "b": {"c": None, "d": "NaN \ufffd"}}

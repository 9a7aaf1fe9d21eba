"""JSON as models write it."""

import json
import math
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.llms.json_text import read_object
from tests.sampling import sampled

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('```json\n{"a": {"b": [1, {}]}}\n```', {"a": {"b": [1, {}]}}),
        ('{"a": "with } and { inside"} and {more}', {"a": "with } and { inside"}),
        ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
        ("{'a': 'x', 'b': True, 'c': False, 'd': None}", {"a": "x", "b": True, "c": False, "d": None}),
        ("{'a': true, 'b': null}", {"a": True, "b": None}),
        ("{a: 1, b_2: yes}", {"a": 1, "b_2": "yes"}),
        ('{"a": [1, 2,], "b": "it\'s",}', {"a": [1, 2], "b": "it's"}),
        ('{"a": 1, // one\n "b": 2, # two\n "c": /* three */ 3, // last\n}', {"a": 1, "b": 2, "c": 3}),
        ('{"a": "http://x/#y", "b": "/* text */",}', {"a": "http://x/#y", "b": "/* text */"}),
        (r"""{'a': 'it\'s \x41 \u00e9 \U0001f600 \\ \n'}""", {"a": "it's A é 😀 \\ \n"}),
        (r'{"a": "C:\new\data", "b": "\d+\.\n"}', {"a": r"C:\new\data", "b": r"\d+\.\n"}),
        (r'{"a": "\d \"quoted\" \\"}', {"a": r'\d "quoted" ' + "\\"}),
        ("{'q': 'it's raining', 'r': 'cats'}", {"q": "it's raining", "r": "cats"}),
        ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}),
        ('{"a": "x" "b": "y"} and {more}', {"a": "x", "b": "y"}),
        ("{'a': -inf, 'b': 1e+16}", {"a": -math.inf, "b": 1e16}),
    ],
)
def test_is_read_as_it_was_meant(text: str, value: dict[str, Any]) -> None:
    assert read_object(text) == value


@pytest.mark.parametrize("text", ["", "[1, 2]", "no braces"])
def test_without_an_object_it_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="there is no JSON object"):
        read_object(text)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{5, 3}",
        "{'a': 5 'b': 3}",
        "{'q': 'it's raining', 'n': 3}",
        '{"a": {"b": "x"}',
        '{"a": "never closed}',
        "{city: New York}",
        "{'a': 0x10}",
        '{"a": "x" {"b": "y"}}',
        '{"a": 1' + "0" * 5000 + "}",
    ],
)
def test_what_could_only_be_read_in_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_object(text)


def test_numbers_that_are_none_are_read_from_both_languages() -> None:
    assert all(math.isnan(number) for number in read_object("{'a': nan, \"b\": NaN}").values())


def test_nesting_deeper_than_python_can_follow_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_object('{"a": ' * 100_000 + "1" + "}" * 100_000)


@given(OBJECTS)
def test_json_and_python_literals_are_read_exactly(value: dict[str, Any]) -> None:
    assert read_object(json.dumps(value)) == value
    assert read_object(json.dumps(value, indent=2, ensure_ascii=False)) == value
    assert read_object(repr(value)) == value


@given(OBJECTS, st.text())
def test_what_stands_behind_the_object_does_not_matter(value: dict[str, Any], behind: str) -> None:
    assert read_object(json.dumps(value) + behind) == value
    assert read_object(repr(value) + behind) == value


@given(st.text(alphabet="{}[]\"'\\,:/*# \nab1", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(read_object("{" + text), dict)


PIECES = (
    '{"a":',
    "{",
    '"\\',
    "'",
    "\\'",
    "/*",
    "//",
    ", ",
    ",\t\n",
    '"a" ',
    "'a':",
    "a'",
    "{'a': '",
    '{"a": "b" ',
    "/**/,",
)


@pytest.mark.parametrize(("begin", "piece"), sampled(product(["{", '{"', "{'", '{"a": "b", '], PIECES), every=5))
def test_long_hostile_texts_take_no_longer_than_their_length(begin: str, piece: str) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        read_object(begin + piece * (200_000 // len(piece)))

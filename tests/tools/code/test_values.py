"""What values become on their way between the code and the tools."""

import json
import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from batonflow.tools.code.worker import jsonable


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Model(BaseModel):
    when: date
    inner: "list[Model]" = []


@dataclass
class Pair:
    left: Any
    right: Any


class Named(NamedTuple):
    a: int
    b: set[int]


class Rude:
    def __repr__(self) -> str:
        raise OSError("no")


class Array:
    """An array of another package, told by its method."""

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**200, 2**200),
        (10**5000, hex(10**5000)),
        (Level.HIGH, 3),
        (Colour.RED, "red"),
        (1.5, 1.5),
        (math.inf, "inf"),
        ("\ud800x", "?x"),
        (Named(1, {2}), [1, [2]]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (OrderedDict(a=1), {"a": 1}),
        ({(1, 2): 3}, {"[1, 2]": 3}),
        (bytearray(b"ab"), "ab"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (time(1, 2), "01:02:00"),
        (timedelta(minutes=1.5), 90.0),
        (Decimal("1.10"), "1.10"),
        (Fraction(1, 3), "1/3"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a"), "/a"),
        (1 + 2j, "(1+2j)"),
        (Pair(1, Pair(2, None)), {"left": 1, "right": {"left": 2, "right": None}}),
        (Model(when=date(2026, 1, 2), inner=[Model(when=date(2026, 1, 3))]),
         {"when": "2026-01-02", "inner": [{"when": "2026-01-03", "inner": []}]}),
        (Array(), [1, 2]),
        (int, "<class 'int'>"),
        (Rude(), "<Rude with a repr that raised OSError>"),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_the_form_of(value: object, plain: object) -> None:
    assert jsonable(value) == plain
    assert json.loads(json.dumps(jsonable(value))) == plain


def test_what_contains_itself_ends_somewhere() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert json.dumps(jsonable(value)).endswith('"..."' + "]" * 61)


def test_long_texts_of_other_things_are_cut() -> None:
    assert len(jsonable(type("x" * 1000, (), {}))) == 203


TEXT = st.characters(exclude_categories=["Cs"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXT), inner, max_size=3),
)


@given(JSON)
def test_json_stays_as_it_is(value: object) -> None:
    assert jsonable(value) == value

"""Arguments of tool calls as data: the same in every process, without what is hidden, and enough to make them again."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, RootModel, SecretStr

from batonflow.agents.arguments import as_given, as_sent, digest_of, holds_secret, is_same_data

ROOT = Path(__file__).resolve().parents[2]

SAYS_THE_DIGEST = """
from pydantic import BaseModel, RootModel
from batonflow.agents.arguments import as_sent, digest_of

class Thing:
    pass

class Page(BaseModel):
    tags: set[str]

words = {"tide", "ebb", "moon", "sea", "salt"}
deep = {"in": [frozenset(words)], "page": Page(tags=words), "root": RootModel[set[str]](words), "thing": Thing()}
print(digest_of("publish", as_sent({"tags": words, **deep})))
"""


def test_every_process_says_the_same_of_sets_and_objects() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SAYS_THE_DIGEST],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_lists_keep_their_order() -> None:
    assert as_sent({"steps": ["b", "a"], "pairs": ({"y": 1, "x": 2},)}) == {
        "steps": ["b", "a"],
        "pairs": [{"y": 1, "x": 2}],
    }


def test_what_cannot_say_what_it_is_is_told_all_the_same() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    own: list[Any] = []
    own.append(own)
    told = as_sent({"broken": Broken(), "bytes": b"\xff", "own": own, "good": 1})
    assert told == {"broken": "<Broken>", "bytes": "b'\\xff'", "own": "[[...]]", "good": 1}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (5, 5.0, True),
        (1, True, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        ({"a": [None, "x"]}, {"a": [None, "x"]}, True),
        ([1, 2], [2, 1], False),
        (date(2026, 1, 2), date(2026, 1, 2), False),
    ],
)
def test_the_same_data(one: Any, other: Any, same: bool) -> None:
    assert is_same_data(one, other) is same
    assert is_same_data(other, one) is same


def test_what_is_shown_for_a_secret_is_found_in_what_is_given() -> None:
    shown = {"login": [{"pin": "**********", "host": "a"}]}
    assert holds_secret({"login": [{"pin": "**********", "host": "b"}]}, shown)
    assert not holds_secret({"login": [{"pin": "1234", "host": "b"}]}, shown)
    assert not holds_secret({"login": ["**********"]}, shown)


class Colour(Enum):
    RED = "r"


class Page(BaseModel):
    title: str
    day: date


@dataclass
class Hiding:
    to: str
    bcc: str = ""


class Half(BaseModel):
    pin: SecretStr


@pytest.mark.parametrize(
    ("given", "data"),
    [
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.10"), "1.10"),
        (b"ab", "ab"),
        (Colour.RED, "r"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([(date(2026, 1, 2), 1)], [["2026-01-02", 1]]),
        ({"page": Page(title="Tides", day=date(2026, 1, 2))}, {"page": {"title": "Tides", "day": "2026-01-02"}}),
        (Hiding("**********"), {"to": "**********", "bcc": ""}),
        (RootModel[list[int]]([1]), [1]),
    ],
)
def test_objects_as_data_of_which_they_can_be_made_again(given: Any, data: Any) -> None:
    assert as_given(given) == data


@pytest.mark.parametrize(
    "given",
    [lambda: SecretStr("1234"), lambda: Half(pin=SecretStr("1234")), lambda: b"\xff", object, lambda: [SecretStr("1")]],
)
def test_what_says_less_than_the_object_is_no_data_of_it(given: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        as_given(given())


def test_a_digest_is_of_tool_and_arguments() -> None:
    digests = {digest_of("a", {"x": 1}), digest_of("b", {"x": 1}), digest_of("a", {"x": 2})}
    assert len(digests) == 3
    assert digest_of("a", {"x": 1, "y": 2}) == digest_of("a", {"y": 2, "x": 1})

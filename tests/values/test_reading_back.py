"""The option --read-back: what it tells, and that it leaves nothing behind."""

import pytest

from batonflow.durable.codec import Codec
from batonflow.workflow_core import Event, JsonSerializer
from tests.reading_back import reading_back


def test_it_tells_of_what_comes_back_as_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonSerializer, "deserialize", lambda self, text: {"a": 2})
    with reading_back() as problems:
        JsonSerializer().serialize({"a": 1})
        Codec(JsonSerializer()).value({"a": 3})
    assert problems == ["{'a': 1} comes back as {'a': 2}", "{'a': 3} comes back as {'a': 2}"]


def test_it_tells_of_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: JsonSerializer, text: str) -> None:
        raise ValueError("no such class")

    monkeypatch.setattr(JsonSerializer, "deserialize", refuse)
    with reading_back() as problems:
        Codec(JsonSerializer()).event(Event(a=1))
    assert len(problems) == 1
    assert "no such class" in problems[0]


def test_it_says_nothing_of_what_comes_back_and_ends_with_its_block() -> None:
    before = JsonSerializer.serialize, Codec.event, Codec.value
    with reading_back() as problems:
        JsonSerializer().serialize({"a": (1, {2})})
        Codec(JsonSerializer()).event(Event(a=b"\xff"))
    assert problems == []
    assert (JsonSerializer.serialize, Codec.event, Codec.value) == before

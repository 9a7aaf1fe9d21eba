"""Answers in JSON while they arrive, and JSON among words."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel

from batonflow.llms.json_text import ArrivingObject, PartialModel, objects_in, partial_of


class Verse(BaseModel):
    text: str
    lines: int = 1


class Song(BaseModel):
    title: str
    written: date | None = None
    verses: list[Verse] = []
    ratings: dict[str, Verse] = {}
    best: Verse | None = None


class Branch(BaseModel):
    name: str
    branches: list["Branch"] = []


class Tree(RootModel[dict[str, "Tree"]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    tree: Tree | None = None


VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=20) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def growing(text: str, size: int = 1) -> Iterator[dict[str, Any]]:
    grown = ArrivingObject()
    for start in range(0, len(text), size):
        next_value = grown.add(text[start : start + size]).next_value()
        if next_value is not None:
            yield next_value


class TestPartialModels:
    def test_what_has_not_arrived_is_none(self) -> None:
        song: Any = partial_of(Song, {"title": "Eb"})
        assert (song.title, song.written, song.verses) == ("Eb", None, None)
        assert isinstance(song, PartialModel)
        assert not isinstance(song, Song)
        assert song.model_dump(exclude_unset=True) == {"title": "Eb"}

    def test_objects_inside_are_partial_models_too(self) -> None:
        value = {"verses": [{"text": "a"}, {"lines": 2}], "ratings": {"x": {"text": "b"}}, "best": {"text": "c"}}
        song: Any = partial_of(Song, value)
        assert [(verse.text, verse.lines) for verse in song.verses] == [("a", None), (None, 2)]
        assert song.ratings["x"].text == "b"
        assert song.best.text == "c"

    def test_values_are_as_json_has_them(self) -> None:
        song: Any = partial_of(Song, {"title": None, "written": "2026-0", "verses": "not yet a list"})
        assert (song.title, song.written, song.verses) == (None, "2026-0", "not yet a list")

    def test_models_that_hold_themselves(self) -> None:
        tree: Any = partial_of(Branch, {"name": "root", "branches": [{"name": "left", "branches": [{}]}]})
        assert tree.branches[0].branches[0].name is None
        assert partial_of(Owner, {"tree": {"a": {"b": {}}}}).tree == {"a": {"b": {}}}  # type: ignore[attr-defined]

    def test_of_several_models_only_what_is_there_is_known(self) -> None:
        owner: Any = partial_of(Owner, {"pet": {"kind": "cat"}})
        assert owner.pet.kind == "cat"
        assert not hasattr(owner.pet, "lives")

    def test_names_are_those_of_the_schema(self) -> None:
        class Renamed(BaseModel):
            first: int = Field(alias="erste")
            second: int = Field(validation_alias=AliasChoices("zweite", "seconde"))

        partial: Any = partial_of(Renamed, {"erste": 1, "seconde": 2, "third": 3})
        assert (partial.first, partial.second) == (1, 2)
        assert not hasattr(partial, "third")

    def test_free_names_are_kept_where_the_model_keeps_them(self) -> None:
        class Free(BaseModel):
            model_config = ConfigDict(extra="allow")

        assert partial_of(Free, {"any": 1}).any == 1  # type: ignore[attr-defined]


class TestGrowing:
    def test_texts_grow_and_the_rest_comes_whole(self) -> None:
        text = '{"title": "Ebb", "loud": true, "bars": 123}'
        assert list(growing(text)) == [
            {"title": ""},
            {"title": "E"},
            {"title": "Eb"},
            {"title": "Ebb"},
            {"title": "Ebb", "loud": True},
            {"title": "Ebb", "loud": True, "bars": 123},
        ]

    @pytest.mark.parametrize("number", ["0", "-12", "3.25", "1e5", "-2.5E-3"])
    @pytest.mark.parametrize("text", ['{{"n": {}}}', '{{"n": [7, {}]}}', '{{"n":{}, "m": 1}}'])
    def test_half_a_number_is_never_shown(self, text: str, number: str) -> None:
        text = text.format(number)
        whole = json.loads(text)["n"]
        for value in growing(text):
            assert value["n"] in ([[], [7], whole] if isinstance(whole, list) else [whole])

    def test_words_around_it_do_not_matter(self) -> None:
        text = 'Use {braces} or {} freely: {{ {"a": "x"} and 5, {"b": 1}'
        assert list(growing(text)) == [{"a": ""}, {"a": "x"}]

    def test_what_is_no_json_any_more_shows_nothing_new(self) -> None:
        assert list(growing('{"a": 1, "b" oops {"c": 2}')) == [{"a": 1}]

    def test_a_long_object_is_not_read_at_every_piece(self) -> None:
        text = json.dumps({"verses": [{"text": "la" * 20} for _ in range(2000)]})
        seen = list(growing(text, 4))
        assert len(seen) < len(text) / 4 / 10
        assert len(seen[-1]["verses"]) > 1950

    @given(st.dictionaries(st.text(max_size=20), VALUES, max_size=4))
    def test_it_ends_with_the_object(self, value: dict[str, Any]) -> None:
        text = json.dumps(value)
        seen = list(growing(text))
        assert repr(seen[-1] if seen else {}) == repr(json.loads(text))


class TestObjectsInText:
    @pytest.mark.parametrize(
        "text",
        [
            '{"a": 1}',
            'Sure!\n```json\n{"a": 1}\n```\nAnything else?',
            'A {placeholder} first, then {"a": 1}',
            "{'a': 1,}",
            '{"a": 1, // one\n}',
            '```\n{\n  "a": 1\n}',
        ],
    )
    def test_the_object_is_found(self, text: str) -> None:
        assert list(objects_in(text)) == [{"a": 1}]

    def test_all_of_them_are_found_but_none_inside_another(self) -> None:
        assert list(objects_in('{"a": {"b": 1}} or {"c": 2}')) == [{"a": {"b": 1}}, {"c": 2}]

    @pytest.mark.parametrize("text", ["", "no braces", "{not json}", '{"a": {"b": 1}, "c": ', "{" * 5000])
    def test_a_broken_object_is_none_and_its_parts_are_not_the_answer(self, text: str) -> None:
        assert list(objects_in(text)) == []

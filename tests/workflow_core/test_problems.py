"""What is wrong with the fields of a model, in words."""

import pytest
from pydantic import BaseModel, ValidationError, model_validator

from batonflow.values.problems import in_words, in_words_with_hints, problems_of


class Trip(BaseModel):
    days: int
    stops: list[int] = []

    @model_validator(mode="after")
    def _has_days(self) -> "Trip":
        if self.days == 0:
            raise ValueError("there are no days")
        return self


def refused(**fields: object) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Trip(**fields)  # type: ignore[arg-type]
    return caught.value


def test_each_place_is_named_with_what_is_wrong_there():
    error = refused(days="secret", stops=[1, "x"])
    words = in_words(error)
    assert words.startswith("days: Input should be a valid integer, unable to parse string as an integer; stops.1: ")
    assert [problem["loc"] for problem in problems_of(error)] == [["days"], ["stops", 1]]


def test_values_and_links_stay_away():
    words = in_words(refused(days="secret"))
    assert "secret" not in words
    assert "http" not in words


def test_what_is_wrong_with_the_whole_has_a_name_too():
    assert in_words(refused(days=0), "the trip") == "the trip: Value error, there are no days"


class Parcel(BaseModel):
    weight: int | list[int]
    to: str


def test_a_field_of_several_types_is_named_once():
    with pytest.raises(ValidationError) as caught:
        Parcel.model_validate({"weight": "heavy"})
    words = in_words_with_hints(caught.value, Parcel, {"weight": "heavy"})
    first = "weight: Input should be a valid integer, unable to parse string as an integer, or a valid list"
    assert words == f"{first}; to: Field required"


class Inner(BaseModel):
    name: str
    size: int


class Box(BaseModel):
    item: Inner | None = None
    many: list[Inner] | None = None


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({"item": {"size": "x"}}, ["item.name: Field required", "item.size: Input should be a valid integer"]),
        ({"many": [{"name": "a", "size": 1}, {"name": "b", "size": "x"}]}, ["many.1.size: Input should be a valid"]),
    ],
)
def test_an_error_inside_an_optional_field_keeps_its_place(given: dict[str, object], places: list[str]):
    with pytest.raises(ValidationError) as caught:
        Box.model_validate(given)
    words = in_words_with_hints(caught.value, Box, given).split("; ")
    assert [word.startswith(place) for word, place in zip(words, places, strict=True)] == [True] * len(places)

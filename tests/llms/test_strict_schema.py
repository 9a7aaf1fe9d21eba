"""Strict schemas: closed objects whose properties are all required, and what has no such form."""

from typing import Any, Literal

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from batonflow.llms.strict_schema import strict_schema


class Point(BaseModel):
    x: int
    label: str | None = None


class Route(BaseModel):
    """A way."""

    name: str = Field(description="What it is called.", min_length=1)
    points: list[Point]
    kind: Literal["walk", "ride"] = "walk"
    length: float = 0.0
    first: Point | None = None


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every object schema inside ``schema``."""
    if isinstance(schema, list):
        return [found for inner in schema for found in objects(inner)]
    if not isinstance(schema, dict):
        return []
    inside = [found for inner in schema.values() for found in objects(inner)]
    return [schema, *inside] if "properties" in schema else inside


def test_every_object_is_closed_and_wants_everything() -> None:
    made = strict_schema(Route.model_json_schema())
    assert made is not None
    for one in objects(made):
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])


def test_what_may_be_left_out_may_be_null() -> None:
    made = strict_schema(Route.model_json_schema())
    assert made is not None
    properties = made["properties"]
    assert properties["length"] == {"type": ["number", "null"]}
    assert properties["kind"]["anyOf"][-1] == {"type": "null"}
    assert properties["first"]["anyOf"] == [{"$ref": "#/$defs/Point"}, {"type": "null"}]
    assert properties["name"] == {"type": "string", "description": "What it is called. (minLength: 1)"}


def test_or_must_be_there_where_null_would_not_be_understood() -> None:
    made = strict_schema(Route.model_json_schema(), nullable=False)
    assert made is not None
    assert made["properties"]["length"] == {"type": "number"}


def test_the_openai_sdk_demands_the_same_of_a_model() -> None:
    made, theirs = strict_schema(Route.model_json_schema(), nullable=False), to_strict_json_schema(Route)
    assert made is not None
    for ours, other in zip(objects(made), objects(theirs), strict=True):
        assert (set(ours["required"]), ours["additionalProperties"]) == (set(other["required"]), False)


def test_the_given_schema_is_left_as_it_is() -> None:
    given = Route.model_json_schema()
    strict_schema(given)
    assert given == Route.model_json_schema()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "integer"}]}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
    ],
    ids=["free", "map", "free inside", "all of", "free in a list"],
)
def test_a_schema_without_a_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_an_object_without_properties_is_closed_too() -> None:
    assert strict_schema({"type": "object", "properties": {}}) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_a_choice_of_one_is_a_choice_of_any() -> None:
    made = strict_schema({"type": "object", "properties": {"a": {"oneOf": [{"type": "integer"}], "discriminator": {}}}})
    assert made is not None
    assert made["properties"]["a"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}

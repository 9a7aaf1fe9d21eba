"""Strict schemas of generated models, judged by the rules that the vendor publishes."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cache
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, RootModel, create_model
from typing_extensions import TypedDict

from batonflow.llms import OpenAI
from batonflow.llms.strict_schema import strict_schema
from batonflow.llms.structured import Form
from batonflow.llms.tool_protocol import tool_specs
from batonflow.tools import FunctionTool
from tests.llms.openai_schemas import BrokenSchema, check_strict

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    WORD = "word"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(9, description="How many are left.", ge=0)


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    name: str | None = None


class Node(BaseModel):
    """A tree."""

    value: int
    children: list["Node"] = []
    parent: Optional["Node"] = Field(None, description="Above it.")


class Box(BaseModel, Generic[T]):
    content: T
    colour: Colour = Field(Colour.RED, description="Of the box.")


class Named(RootModel[str]):
    pass


class Spot(NamedTuple):
    x: int
    y: int


class Pair(TypedDict):
    left: int
    right: str


# With a strict form, and without.
LEAVES: list[Any] = [
    str, int, float, bool, date, datetime, timedelta, UUID, Decimal, bytes, Colour, Level, Mixed, Cat, Dog, Node, Named,
    Pair, Box[int], Box[Cat], Literal["a", "b"], (Literal[1, "a"] | None), Annotated[str, Field(pattern="^a+$")],
    Annotated[int, Field(gt=0, multiple_of=2)], Annotated[Cat, Field(description="The cat.")],
    Annotated[Colour, Field(description="Its colour.", examples=["red"])],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[Node, Field(title="Root", description="Where it begins.")],
    Annotated[str, Field(json_schema_extra={"x-shown": True, "readOnly": True})],
]  # fmt: skip
FREE: list[Any] = [Any, object, dict[str, int], dict, list, tuple[int, str], tuple[Cat, ...] | tuple[int, int], Spot]


def wrapped(kind: Any, rng: random.Random) -> Any:
    match rng.randrange(7):
        case 0:
            return list[kind]
        case 1:
            return kind | None if not isinstance(kind, str) else kind
        case 2:
            return Annotated[list[kind], Field(min_length=1, max_length=5, description="Some.")]
        case 3:
            return tuple[kind, ...]
        case 4:
            return Annotated[kind, Field(description="Described where it stands.")]
        case _:
            return kind


def generated(seed: int, free: bool) -> type[BaseModel]:
    """A model of a few fields; with ``free`` one of them has no strict form."""
    rng = random.Random(seed)
    fields: dict[str, Any] = {}
    for number in range(rng.randint(1, 6)):
        kind = wrapped(rng.choice(LEAVES), rng)
        if rng.random() < 0.3:
            inner = create_model(f"Inner{number}", first=(kind, ...), second=(rng.choice(LEAVES), ...))
            kind = wrapped(inner, rng)
        default = rng.choice([..., Field(..., description="It must be there."), Field(None, description="It may be.")])
        fields[f"field_{number}"] = (kind, default)
    if free:
        fields["free"] = (wrapped(rng.choice(FREE), rng), ...)
    return create_model(f"Model{seed}", __doc__="Made up.", **fields)


@cache
def schema_of(seed: int, free: bool = False) -> dict[str, Any]:
    return generated(seed, free).model_json_schema()


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("begin", range(0, 400, 100))
def test_generated_models_keep_the_rules(begin: int, nullable: bool) -> None:
    for seed in range(begin, begin + 100):
        made = strict_schema(schema_of(seed), nullable=nullable)
        assert made is not None, f"seed {seed} has a strict form"
        check_strict(made)


@pytest.mark.parametrize("begin", range(0, 200, 100))
def test_models_without_a_strict_form_go_another_way(begin: int) -> None:
    for seed in range(begin, begin + 100):
        assert strict_schema(schema_of(seed, free=True)) is None, f"seed {seed}"
        form = Form(generated(seed, free=True))
        assert form.native is None
        assert form.tool.parameters["type"] == "object"


def test_a_nested_model_in_a_described_field_is_written_out() -> None:
    class Trip(BaseModel):
        cat: Cat = Field(description="The passenger.")
        dogs: list[Dog]

    made = strict_schema(Trip.model_json_schema(), nullable=False)
    assert made is not None
    assert made["properties"]["cat"]["description"] == "The passenger."
    assert made["properties"]["cat"]["additionalProperties"] is False
    assert made["properties"]["dogs"]["items"] == {"$ref": "#/$defs/Dog"}
    assert list(made["$defs"]) == ["Dog"]


def test_a_tool_without_a_strict_form_is_sent_as_it_is() -> None:
    def place(at: tuple[int, int], why: str = "") -> str:
        """Place something."""
        return f"{at}{why}"

    [spec] = tool_specs([FunctionTool.from_defaults(place)])
    llm = OpenAI("m", api_key="k", strict_tools=True)
    assert llm._function(spec)["function"] == {
        "name": "place",
        "description": spec.description,
        "parameters": spec.parameters,
    }


def _levels(count: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(count):
        schema = {"type": "object", "properties": {"inner": schema}, "required": ["inner"]}
    return schema


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


OVER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "levels": (_levels(10), _levels(11)),
    "properties": (
        _object(**{f"p{number}": {"type": "integer"} for number in range(5000)}),
        _object(**{f"p{number}": {"type": "integer"} for number in range(5001)}),
    ),
    "choices": (_object(a={"enum": list(range(1000))}), _object(a={"enum": list(range(1001))})),
    "characters of many choices": (
        _object(a={"enum": [f"{number:059}" for number in range(251)]}),
        _object(a={"enum": [f"{number:060}" for number in range(251)]}),
    ),
    "characters": (
        _object(**{f"{number:0100}": {"type": "integer"} for number in range(1200)}),
        _object(**{f"{number:0100}": {"type": "integer"} for number in range(1201)}),
    ),
}


@pytest.mark.parametrize("limit", OVER)
def test_a_limit_is_kept(limit: str) -> None:
    within, over = OVER[limit]
    made = strict_schema(within)
    assert made is not None
    check_strict(made)
    assert strict_schema(over) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [_object(a={"type": "integer"})]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        _object(a={"$ref": "other.json"}),
        _object(a={"$ref": "#/$defs/Missing"}),
        _object(a=True),
        _object(a={"type": "array", "items": True}),
        _object(a={"type": "array", "prefixItems": [{"type": "integer"}]}),
        _object(a={"not": {"type": "integer"}}),
        _object(a={"description": "Anything."}),
    ],
)
def test_other_schemas_have_no_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_definitions_of_the_older_form_are_taken() -> None:
    schema = {**_object(a={"$ref": "#/definitions/A~1B"}), "definitions": {"A/B": {"enum": ["x"]}}}
    made = strict_schema(schema)
    assert made is not None
    check_strict(made)
    assert made["$defs"] == {"A/B": {"enum": ["x"], "type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        _object(a={"$ref": "#/$defs/A", "description": "x"}),
        {**_object(a={"type": "integer"}), "additionalProperties": True},
        {**_object(a={}), "additionalProperties": False},
        {**_object(a={"type": "array", "prefixItems": []}), "additionalProperties": False},
        {**_object(a={"type": "array"}), "additionalProperties": False},
    ],
)
def test_the_check_finds_what_breaks_the_rules(schema: dict[str, Any]) -> None:
    with pytest.raises(BrokenSchema):
        check_strict(schema)

"""Tools written under `from __future__ import annotations`: every annotation is text until someone evaluates it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import pytest
from pydantic import BaseModel, Field

from batonflow.tools import FunctionTool, ToolDefinitionError, run_tool
from batonflow.tools.schema import parameters_of
from batonflow.workflow_core.context import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batonflow.workflow_core import context as engine

    class Unknown: ...


class State(BaseModel):
    count: int = 0


class Stop(BaseModel):
    city: str
    nights: int = 1


@dataclass
class Guest:
    name: str
    meals: list[str] = field(default_factory=list)


class Room(TypedDict):
    beds: int
    view: NotRequired[str]


class Season(Enum):
    LOW = "low"
    HIGH = "high"


def shown(function: Any) -> list[str]:
    return list(FunctionTool.from_defaults(function).metadata.get_parameters_dict()["properties"])


class TestContext:
    def test_it_is_known_in_all_its_forms(self) -> None:
        def plain(c: Context, x: int) -> int:
            return x

        def typed(c: Context[State], x: int) -> int:
            return x

        def optional(x: int, c: Optional[Context] = None) -> int:  # noqa: UP045
            return x

        def union(x: int, c: Context | None = None) -> int:
            return x

        def other_union(x: int, c: Union[None, Context[State]] = None) -> int:  # noqa: RUF036, UP007
            return x

        def annotated(c: Annotated[Context, "the context"], x: int) -> int:
            return x

        for function in (plain, typed, optional, union, other_union, annotated):
            assert FunctionTool.from_defaults(function).ctx_param_name == "c", function.__name__
            assert shown(function) == ["x"]

    def test_also_where_its_parts_are_known_to_type_checkers_only(self) -> None:
        def typed(c: Context[Unknown], x: int) -> int:
            return x

        def optional(x: int, c: Optional[Context[Unknown]] = None) -> int:  # noqa: UP045
            return x

        def union(x: int, c: None | Context[Unknown] = None) -> int:  # noqa: RUF036
            return x

        def dotted(c: engine.Context, x: int) -> int:
            return x

        def annotated(c: Annotated[Context[Unknown], "the context"], x: int) -> int:
            return x

        def quoted(c: "Context[Unknown]", x: int) -> int:  # noqa: UP037
            return x

        for function in (typed, optional, union, dotted, annotated, quoted):
            assert FunctionTool.from_defaults(function).ctx_param_name == "c", function.__name__
            assert shown(function) == ["x"]

    def test_what_only_mentions_it_is_an_argument(self) -> None:
        def names(c: Sequence[Context], x: int) -> int:
            return x

        def noted(c: Annotated[Unknown, Context], x: int) -> int:
            return x

        for function in (names, noted):
            assert [one.is_context for one in parameters_of(function)] == [False, False]

    async def test_one_with_a_default_is_optional(self) -> None:
        def note(text: str, ctx: Optional[Context] = None) -> str:  # noqa: UP045
            return f"{text} in {ctx}"

        made = FunctionTool.from_defaults(note)
        assert made.call(text="x").content == "x in None"
        assert (await run_tool(made, {"text": "x"})).content == "x in None"
        assert (await run_tool(made, {"text": "x"}, ctx="the context")).content == "x in the context"


class TestTypesThatAreNotThere:
    def test_are_an_error_that_names_parameter_and_type(self) -> None:
        def typed(x: int, item: Unknown) -> int:
            return x

        def misspelt(item: Stopp) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(
            ToolDefinitionError, match=r"'typed': parameter 'item' has the type Unknown, which is not defined"
        ):
            FunctionTool.from_defaults(typed)
        with pytest.raises(ToolDefinitionError, match=r"'misspelt': parameter 'item' has the type Stopp,"):
            FunctionTool.from_defaults(misspelt)

    def test_with_a_default_are_not_shown_to_the_model(self) -> None:
        def typed(x: int, item: Unknown | None = None) -> int:
            return x

        assert shown(typed) == ["x"]

    def test_also_those_of_the_function_around(self) -> None:
        class Local(BaseModel):
            city: str

        def unused(stop: Local) -> None: ...

        def used(stop: Local) -> str:
            assert isinstance(stop, Local)
            return stop.city

        with pytest.raises(ToolDefinitionError, match="parameter 'stop' has the type Local"):
            FunctionTool.from_defaults(unused)
        assert shown(used) == ["stop"]

    def test_are_no_matter_where_the_model_does_not_see_them(self) -> None:
        def search(text: str, client: Unknown) -> str:
            return f"{text} by {client}"

        made = FunctionTool.from_defaults(search, partial_params={"client": "us"})
        assert made.call(text="a").content == "a by us"

    def test_nor_where_somebody_wrote_words(self) -> None:
        def search(text: "what to look for") -> None: ...  # type: ignore[valid-type]  # noqa: F722

        assert shown(search) == ["text"]


async def test_arguments_arrive_as_the_objects_they_are_annotated_as() -> None:
    arrived: list[Any] = []

    def book(
        stops: list[Stop],
        guest: Guest,
        room: Room,
        rooms: dict[str, list[Room]],
        season: Season,
        board: Literal["half", "full"],
        note: Annotated[str | None, Field(description="for the house")] = None,
    ) -> str:
        arrived.extend([stops, guest, room, rooms, season, board, note])
        return "booked"

    sent = {
        "stops": [{"city": "Bern", "nights": "2"}, {"city": "Brig"}],
        "guest": {"name": "Ann", "meals": ["fish"]},
        "room": {"beds": "2"},
        "rooms": {"second floor": [{"beds": 1, "view": "lake"}]},
        "season": "high",
        "board": "half",
    }
    output = await run_tool(FunctionTool.from_defaults(book), sent)
    assert output.content == "booked"
    assert arrived == [
        [Stop(city="Bern", nights=2), Stop(city="Brig")],
        Guest("Ann", ["fish"]),
        {"beds": 2},
        {"second floor": [{"beds": 1, "view": "lake"}]},
        Season.HIGH,
        "half",
        None,
    ]


async def test_what_does_not_fit_inside_them_is_named_by_its_place() -> None:
    def book(stops: list[Stop], guest: Guest, room: Room, season: Season, board: Literal["half", "full"]) -> str:
        return "booked"

    sent = {
        "stops": [{"city": "Bern"}, {"nights": 1}],
        "guest": {"meals": []},
        "room": {"view": "lake"},
        "season": "rainy",
        "board": "none",
    }
    output = await run_tool(FunctionTool.from_defaults(book), sent)
    for part in ("stops.1.city: missing", "guest.name: missing", "room.beds: missing", "season: Input", "board: Input"):
        assert part in output.content


def test_the_description_reads_as_if_they_were_not_postponed() -> None:
    def book(
        ctx: Context,
        stop: Stop,
        room: Optional[Room] = None,  # noqa: UP045
        board: Literal["half", "full"] = "half",
        nights: Annotated[int, Field(ge=1)] = 1,
        extra: "Sequence[Unknown] | None" = None,  # noqa: UP037
    ) -> list[str]:
        """Book a room."""
        return []

    assert FunctionTool.from_defaults(book).metadata.description == (
        "book(stop: Stop, room: Optional[Room] = None, board: Literal['half', 'full'] = 'half', nights: int = 1) "
        "-> list[str]\nBook a room."
    )


def test_a_typed_dict_keeps_what_its_author_says_of_it() -> None:
    class Base(TypedDict, total=False):
        note: str

    class Suite(Base):
        """Two rooms and more."""

        rooms: list[Room]

    def book(suite: Suite | None, by_name: dict[str, Suite]) -> str:
        return "booked"

    # A class in a function is not found by its name; everything else is as if it were.
    book.__annotations__.update(suite=Suite | None, by_name=dict[str, Suite])
    defined = FunctionTool.from_defaults(book).metadata.get_parameters_dict()["$defs"]
    assert defined["Suite"]["description"] == "Two rooms and more."
    assert defined["Suite"]["required"] == ["rooms"]
    assert list(defined["Suite"]["properties"]) == ["note", "rooms"]
    assert defined["Room"]["required"] == ["beds"]

"""Pydantic models of any shape, with values for them: nested, generic, polymorphic, with unions and private parts."""

import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model

from batonflow.workflow_core import Event
from tests.promises.properties.plain_data import plain

__all__ = ["Circle", "Drawing", "Page", "Shape", "marked", "models"]

T = TypeVar("T")


class Shape(BaseModel):
    name: str = ""


class Circle(Shape):
    radius: int = 0
    _drawn: int = PrivateAttr(default=0)


class Square(Shape):
    side: float = 0.0
    inside: Shape | None = None


class Note(Event):
    """Inside other events."""

    text: str = ""


class Marked(Note):
    where: Shape = Shape()
    _hidden: Any = PrivateAttr(default=None)


class Page(BaseModel, Generic[T]):
    items: list[T] = []
    first: T | None = None


class Drawing(BaseModel):
    model_config = ConfigDict(extra="allow")

    shapes: list[Shape] = []
    by_name: dict[str, Shape] = {}


class Colour(Enum):
    RED = (1, 2)
    BLUE = "blue"


class Word(str, Enum):  # noqa: UP042 - this is what programs have
    YES = "yes"


class Right(IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: int
    y: Any = None
    seen: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    at: Point


class Pair(NamedTuple):
    left: int
    right: str


class Listed(list[Any]):
    """A list of a class of its own."""


class Table(OrderedDict[Any, Any]):
    """A dict of a class of its own, with attributes."""

    owner: Any = None


def table(items: list[tuple[Any, Any]], owner: Any) -> Table:
    made = Table(items)
    made.owner = owner
    return made


# ``datetime.fromisoformat`` reads an offset of less than a second as UTC.
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).filter(
    lambda offset: not offset or abs(offset) >= timedelta(seconds=1)
)
zones = (
    st.sampled_from([None, ZoneInfo("Europe/Berlin"), ZoneInfo("America/Lima")])
    | st.timezones()
    | st.builds(timezone, offsets)
    | st.builds(timezone, offsets, st.text(max_size=3))
)
text = st.text(max_size=3)
numbers = st.integers(-(2**60), 2**60)
floats = st.floats(allow_nan=False)
folds = st.sampled_from([0, 1])
datetimes = st.builds(lambda value, fold: value.replace(fold=fold), st.datetimes(timezones=zones), folds)
times = st.builds(lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold), st.times(), zones, folds)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
circles = st.builds(Circle, name=text, radius=numbers) | st.builds(lambda n: _drawn(Circle(), n), numbers)
shapes = st.recursive(st.builds(Shape, name=text) | circles, lambda inner: st.builds(Square, side=floats, inside=inner))
notes = st.builds(Note, text=text, more=plain) | st.builds(Marked, where=shapes, _hidden=shapes, most=shapes)
points = st.builds(Point, numbers, shapes | st.tuples(numbers), st.lists(numbers, max_size=2))

# Each type with values for it; those of the first kind may be keys of a dict, and items of a set.
HASHABLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, numbers),
    (float, floats),
    (str, text),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=4)),
    (datetime, datetimes),
    (date, st.dates()),
    (time, times),
    (timedelta, st.timedeltas()),
    (Decimal, decimals),
    (UUID, st.uuids()),
    (Path, st.sampled_from([Path("a"), Path("/b/c.txt")])),
    (Colour, st.sampled_from(Colour)),
    (Word, st.just(Word.YES)),
    (Right, st.sampled_from([Right.READ, Right.READ | Right.WRITE])),
    (Literal["a", 2], st.sampled_from(["a", 2])),  # 1 would also be True for pydantic
    (tuple[int, int], st.tuples(numbers, numbers)),
    (frozenset[str], st.frozensets(text, max_size=2)),
]
OTHERS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Shape, shapes),
    (Event, notes),
    (Note, notes),
    (Point, points),
    (Place, st.builds(Place, points)),
    (Pair, st.builds(Pair, numbers, text)),
    (Page[int], st.builds(Page[int], items=st.lists(numbers, max_size=2))),
    (Page[Shape], st.builds(Page[Shape], items=st.lists(shapes, max_size=2), first=st.none() | shapes)),
    (dict, st.dictionaries(text, plain, max_size=2)),
    (OrderedDict[str, int], st.builds(OrderedDict, st.lists(st.tuples(text, numbers), max_size=2))),
    (Counter[str], st.builds(Counter, text)),
    (deque[int], st.builds(deque, st.lists(numbers, max_size=2), st.sampled_from([None, 1]))),
    (Sequence[int], st.lists(numbers, max_size=2) | st.lists(numbers, max_size=2).map(tuple)),
]

hashable = st.sampled_from(HASHABLE)
simple = hashable | st.sampled_from(OTHERS)

marked: st.SearchStrategy[Any] = st.recursive(
    st.one_of(*(values for _, values in HASHABLE), *(values for _, values in OTHERS), plain),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(st.one_of(*(values for _, values in HASHABLE)), inner, max_size=2)
        | st.builds(Page[Any], items=st.lists(inner, max_size=1))
        | st.sets(st.one_of(*(values for _, values in HASHABLE)), max_size=2)
        | st.sets(st.frozensets(numbers, max_size=2), max_size=3)
        | st.builds(Listed, st.lists(inner, max_size=2))
        | st.builds(deque, st.lists(inner, max_size=2), st.sampled_from([None, 1]))
        | st.builds(table, st.lists(st.tuples(text, inner), max_size=2), inner)
        | st.builds(defaultdict, st.sampled_from([None, list, Listed]), st.dictionaries(text, inner, max_size=2))
    ),
    max_leaves=4,
)
"""Values where nothing is declared: state, dynamic data, results."""

Typed = tuple[Any, st.SearchStrategy[Any]]


def _drawn(circle: Circle, times: int) -> Circle:
    circle._drawn = times
    return circle


@st.composite
def _composed(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    kind, values = draw(inner)
    way = draw(st.sampled_from(["list", "set", "tuple", "row", "dict", "optional", "union", "page"]))
    if way == "list":
        return list[kind], st.lists(values, max_size=2)
    if way == "tuple":
        return tuple[kind, ...], st.lists(values, max_size=2).map(tuple)
    if way == "optional":
        return kind | None, st.none() | values
    if way == "page":
        return Page[kind], st.builds(Page[kind], items=st.lists(values, max_size=2))
    other, others = draw(hashable)
    if way == "set":
        return set[other], st.sets(others, max_size=2)
    if way == "row":
        return tuple[kind, other], st.tuples(values, others)
    if way == "dict":
        return dict[other, kind], st.dictionaries(others, values, max_size=2)
    return kind | other, values | others


types: st.SearchStrategy[Typed] = st.recursive(simple, _composed, max_leaves=3)
_numbers = itertools.count()


@st.composite
def models(draw: st.DrawFn, base: type[BaseModel] = BaseModel) -> BaseModel:
    """A model of a class of its own, with up to three fields."""
    found = draw(st.lists(types, min_size=1, max_size=3))
    fields: dict[str, Any] = {f"f{place}": (kind, Field()) for place, (kind, _) in enumerate(found)}
    strict = draw(st.booleans()) if base is BaseModel else False
    name = f"Made{next(_numbers)}"
    options: dict[str, Any] = {"__config__": ConfigDict(strict=True)} if strict else {"__base__": base}
    made: Any = create_model(name, __module__=__name__, **options, **fields)
    # A payload finds classes by their names in modules; the next examples take the place of earlier ones.
    setattr(sys.modules[__name__], name, made)
    values = {f"f{place}": draw(strategy) for place, (_, strategy) in enumerate(found)}
    model: BaseModel = made.model_construct(**values) if strict else made(**values)
    return model

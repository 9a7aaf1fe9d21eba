"""Containers of other classes than Python's five come back as they were, or are refused with the remedy."""

import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import PurePosixPath
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.durable.codec import Codec
from batonflow.values.containers import in_order
from batonflow.values.unmarked import alike
from batonflow.workflow_core import Event, JsonSerializer
from batonflow.workflow_core.errors import StoreError


class Catalogue(dict[str, Any]):
    """Has items and attributes."""

    def __init__(self, owner: str, **items: Any) -> None:
        super().__init__(**items)
        self.owner = owner


class Dotted(dict[str, Any]):
    """Has its items for attributes."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class Shown(dict[str, Any]):
    """Shows its items as attributes."""

    @property
    def __dict__(self) -> Any:
        return dict(self)


class Loud(dict[str, Any]):
    """Shows something else than it holds."""

    def items(self) -> Any:
        return [("loud", "!")]


class Names(list[str]):
    """A list of a class of its own."""


class Tags(set[str]):
    """A set of a class of its own."""


class Fixed(frozenset[int]):
    """A frozenset of a class of its own."""


class Row(tuple[int, ...]):
    """A tuple of a class of its own."""

    __slots__ = ()


class Recent(deque[int]):
    """A deque of a class of its own."""


class Groups(defaultdict[str, list[int]]):
    """A defaultdict of a class of its own."""


class Ordered(OrderedDict[str, int]):
    """An OrderedDict of a class of its own."""


class Words(Counter[str]):
    """A Counter of a class of its own."""


@dataclass
class Box(dict[str, int]):
    """Has fields and items."""

    size: int = 0


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - this is what programs have


class Slotted(dict[str, int]):
    """Holds something where only its own code finds it."""

    __slots__ = ("hidden",)


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class Route(PurePosixPath):
    """A path of a class of its own."""


class Declared(BaseModel):
    """Says which containers it holds."""

    ordered: OrderedDict[str, int] = OrderedDict()
    counted: Counter[str] = Counter()
    last: deque[int] = deque()
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    named: Mapping[str, int] = {}
    several: Sequence[str] = ()


def moved() -> OrderedDict[str, int]:
    found = OrderedDict(a=1, b=2)
    found.move_to_end("a")
    return found


def filled(made: Any, *values: tuple[str, Any]) -> Any:
    made.update(values)
    return made


KEPT = [
    moved(),
    Counter("banana"),
    defaultdict(list, a=[1]),
    defaultdict(None, a=1),
    defaultdict(Names, a=Names("a")),
    defaultdict(Counter, a=Counter("a")),
    defaultdict(Box),
    defaultdict(Declared),
    deque([1, 2], 5),
    Pair(1, (2,)),
    Catalogue("Ann", lamp=(1, {2})),
    Dotted(lamp=1),
    Shown(lamp=1),
    Loud(lamp=1),
    Names(["a"]),
    Tags(["a", "b"]),
    Fixed([1]),
    Row([1, 2]),
    Recent([1], 2),
    Groups(list, a=[1]),
    filled(Ordered(), ("b", 1), ("a", 2)),
    Words("banana"),
    filled(Box(size=3), ("lamp", 1)),
]


def through(value: Any) -> Any:
    serializer = JsonSerializer()
    return serializer.deserialize(serializer.serialize(value))


@pytest.mark.parametrize("value", KEPT, ids=lambda value: f"{type(value).__name__}-{len(value)}")
def test_a_container_comes_back_with_its_class_wherever_nothing_is_declared(value: Any):
    codec = Codec(JsonSerializer())
    event = Event(it=value, more={"a": [value]})
    recorded = [codec.read(codec.value(value)), codec.read(codec.event(event))["it"]]
    for back in (through(value), through([value])[0], *recorded):
        assert alike(back, value)
        assert type(back) is type(value)
        assert repr(back) == repr(value)


def test_attributes_order_length_and_factory_are_part_of_a_container():
    assert through(Catalogue("Ann", a=1)).owner == "Ann"
    assert list(through(moved())) == ["b", "a"]
    assert through(deque([1], 3)).maxlen == 3
    again = through(defaultdict(list))
    again["new"].append(1)
    assert again == {"new": [1]}
    dotted = through(Dotted(a=1))
    dotted.b = 2
    assert dotted == {"a": 1, "b": 2}
    assert not alike(Catalogue("Ann"), Catalogue("Ben"))
    assert not alike(deque([1], 2), deque([1], 3))
    assert not alike(moved(), OrderedDict(a=1, b=2))
    assert not alike(defaultdict(int), defaultdict(list))


def test_a_time_of_the_c_library_comes_back_with_its_zone():
    now = time.localtime(0)
    back = through({"it": now})["it"]
    assert (type(back), back, back.tm_zone, back.tm_gmtoff) == (time.struct_time, now, now.tm_zone, now.tm_gmtoff)


def test_containers_that_a_field_declares_come_back():
    model = Declared(
        ordered=moved(),
        counted=Counter("banana"),
        last=deque([1], 3),
        grouped=defaultdict(list, a=[1]),
        named=moved(),
        several=Names("ab"),
    )
    assert alike(through(model), model)
    assert "marked" not in JsonSerializer().serialize(Declared(counted=Counter("a"), several=["a"]))


def test_a_text_of_a_class_of_its_own_is_written_as_text():
    assert through({"a": [Text("b")]}) == {"a": ["b"]}
    assert through({Text("a"): 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Slotted(), r"at\.1: .*Slotted cannot be written as JSON, .*put a dict"),
        (defaultdict(lambda: 0), r"at\.1: the default_factory of this defaultdict .*take a class"),
        (defaultdict(threading.Event), r"at\.1: the default_factory of this defaultdict .*take a class"),
        (Route("a"), r"at\.1: .*Route cannot be written"),
        (Catalogue("Ann", a=object()), r"at\.1\.a: .*object cannot be written"),
        (filled(Box(size=object()), ("a", 1)), r"at\.1\.size: .*object cannot be written"),
        ((1, {"a": {2: object()}}), r"at\.1\.1\.a\.2: .*object cannot be written"),
        (Pair(1, object()), r"at\.1\.1: .*object cannot be written"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_container_that_could_not_come_back_is_refused_with_its_place_and_the_remedy(value: Any, named: str):
    with pytest.raises(ValueError, match=named):
        JsonSerializer().serialize({"at": [1, value]})
    with pytest.raises(StoreError, match=named):
        Codec(JsonSerializer()).value({"at": [1, value]})


@pytest.mark.parametrize("factory", ["os.abort", "builtins.eval", "builtins.object", "nowhere.Lost"])
def test_data_name_no_other_factory(factory: str):
    text = f'{{"__is_value": true, "value": [[], "{factory}"], "qualified_name": "collections.defaultdict"}}'
    with pytest.raises(ValueError, match="The payload names"):
        JsonSerializer().deserialize(text)


def test_data_set_no_attribute_of_python_s_own():
    text = JsonSerializer().serialize(Catalogue("Ann")).replace("owner", "__class__")
    with pytest.raises(ValueError, match="is not an attribute that data may set"):
        JsonSerializer().deserialize(text)


def test_equal_sets_of_sets_are_equal_data():
    parts = [frozenset({1}), frozenset({2}), frozenset({1, 2}), frozenset({3}), frozenset({1, 3})]
    written = [in_order(order, JsonSerializer().encode) for order in permutations(parts)]
    assert all(data == written[0] for data in written)
    assert through(set(parts)) == set(parts)

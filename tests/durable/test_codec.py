"""How events and values stand in records, and that they come back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import from_json, to_json

from batonflow.durable.codec import Codec
from batonflow.values.serializers import BaseSerializer
from batonflow.workflow_core import Event, JsonSerializer, PickleSerializer, StartEvent, StopEvent
from batonflow.workflow_core.errors import StoreError
from tests.promises.properties.plain_data import MARKS, like_marks, plain

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not hasattr(Event, name))


class Place(BaseModel):
    city: str = ""
    inside: "Place | None" = None
    tags: dict[str, Any] = {}


class Seal:
    """A component: it names its class and writes itself."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    @classmethod
    def class_name(cls) -> str:
        return "Seal"

    def to_dict(self) -> dict[str, Any]:
        return {"depth": self.depth}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Seal":
        return cls(data["depth"])


class Note(Event):
    title: str = ""
    where: Place | None = None
    anything: Any = None


class Verdict(StopEvent):
    score: float = 0.0


class Apart(Event):
    """Some of its fields are not written."""

    kept: str = ""
    handle: Any = Field(default=None, exclude=True)


class Opaque:
    """Neither plain data nor a model; pickle can write it."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.n == self.n

    __hash__ = None  # type: ignore[assignment]


class Handle:
    """Neither plain data nor a model, and equal to nothing else."""


class Reversed:
    """A serializer of one's own, which knows nothing of JSON's short way: its text is JSON from right to left."""

    def serialize(self, value: Any) -> str:
        return JsonSerializer().serialize(value)[::-1]

    def deserialize(self, value: str) -> Any:
        return JsonSerializer().deserialize(value[::-1])


places = st.recursive(
    st.builds(
        Place, city=st.text(), tags=st.dictionaries(st.sampled_from(MARKS), like_marks(st.text()) | st.booleans())
    ),
    lambda inner: st.builds(Place, city=st.text(), inside=inner),
    max_leaves=3,
)
values = plain | places | st.lists(places) | st.dictionaries(st.text(min_size=1), places)
codecs = pytest.mark.parametrize(
    "serializer", [JsonSerializer(), PickleSerializer(), Reversed()], ids=lambda s: type(s).__name__
)


def through_a_record(data: Any) -> Any:
    """What is read is what was written, not the objects themselves."""
    return from_json(to_json(data, inf_nan_mode="constants"))


# --- there and back ---------------------------------------------------------------------------------------------------


@codecs
@given(value=values)
def test_a_value_comes_back(serializer: BaseSerializer, value: Any):
    codec = Codec(serializer)
    back = codec.read(through_a_record(codec.value(value)))
    assert back == value
    assert type(back) is type(value)


@codecs
@given(
    title=st.text(),
    where=st.none() | places,
    anything=values,
    dynamic=st.dictionaries(names.filter(lambda name: name not in Note.model_fields), values, max_size=3),
)
def test_an_event_comes_back_with_its_fields_and_its_dynamic_data(
    serializer: BaseSerializer, title: str, where: Place | None, anything: Any, dynamic: dict[str, Any]
):
    codec = Codec(serializer)
    event = Note(title=title, where=where, anything=anything, **dynamic)
    back = codec.read(through_a_record(codec.event(event)))
    assert type(back) is Note
    assert back == event
    assert back.to_dict() == dynamic


@codecs
@given(result=values)
def test_the_result_of_a_stop_event_comes_back(serializer: BaseSerializer, result: Any):
    codec = Codec(serializer)
    assert codec.read(through_a_record(codec.event(StopEvent(result=result)))).result == result


@codecs
def test_a_stop_event_of_ones_own_comes_back(serializer: BaseSerializer):
    codec = Codec(serializer)
    back = codec.read(through_a_record(codec.event(Verdict(score=0.5))))
    assert back == Verdict(score=0.5)


@codecs
def test_the_class_of_an_event_is_known_from_its_record(serializer: BaseSerializer):
    codec = Codec(serializer)
    for event in (Note(title="a"), Note(where=Place()), StartEvent(n=1)):
        cls = type(event)
        assert codec.class_name(through_a_record(codec.event(event))) == f"{cls.__module__}.{cls.__qualname__}"


# --- the forms --------------------------------------------------------------------------------------------------------


def test_what_is_plain_stands_there_as_it_is():
    codec = Codec(JsonSerializer())
    assert codec.value({"a": [1, None, "x"]}) == [{"a": [1, None, "x"]}]
    assert codec.event(Note(title="t", n=1)) == [
        f"{__name__}.Note",
        {"title": "t", "where": None, "anything": None, "n": 1},
    ]
    assert codec.event(StopEvent(result=[1])) == ["batonflow.workflow_core.events.StopEvent", {"result": [1]}]


def test_what_is_not_plain_is_marked_with_its_class():
    codec = Codec(JsonSerializer())
    marked = {
        "__is_pydantic": True,
        "value": {"city": "Bergen", "inside": None, "tags": {}},
        "qualified_name": f"{__name__}.Place",
    }
    assert codec.value(Place(city="Bergen")) == [None, marked]
    assert codec.value([Place(city="Bergen")]) == [None, [marked]]
    name, written, mark = codec.event(Note(anything=Place(city="Bergen")))
    assert (name, written["anything"], mark) == (f"{__name__}.Note", marked, ["anything"])


def test_components_in_fields_that_have_a_type_come_back():
    codec = Codec(JsonSerializer())
    event = Note(where=Place(tags={"seal": Seal(4)}))
    written = through_a_record(codec.event(event))
    assert written[2] == ["where"]
    assert codec.read(written).where.tags["seal"].depth == 4
    assert codec.event(Note(where=Place(tags={"seal": 4}), anything=Place()))[2] == ["anything"]


def test_of_another_serializer_it_is_the_text():
    for serializer in (PickleSerializer(), Reversed()):
        codec = Codec(serializer)
        for event in (Note(title="t"), Note(where=Place())):
            assert codec.event(event) == serializer.serialize(event)
        assert codec.value({"a": 1}) == serializer.serialize({"a": 1})


def test_what_only_pickle_can_write_comes_back_by_pickle():
    codec = Codec(PickleSerializer())
    assert codec.read(codec.value({"thing": Opaque(3)})) == {"thing": Opaque(3)}
    assert codec.read(codec.event(StartEvent(thing=Opaque(4)))).thing == Opaque(4)


def test_a_field_that_is_left_out_of_dumps_is_left_out_of_records():
    codec = Codec(JsonSerializer())
    data = codec.event(Apart(kept="yes", handle=Opaque()))
    assert data == [f"{__name__}.Apart", {"kept": "yes"}]
    assert codec.read(data) == Apart(kept="yes")


def test_what_is_changed_after_an_event_was_written_is_not_in_it():
    codec = Codec(JsonSerializer())
    event = Note(title="before")
    data = codec.event(event)
    event.title = "after"
    assert codec.read(data).title == "before"


@given(number=st.floats(allow_nan=False), large=st.integers(min_value=2**64))
def test_numbers_keep_their_size(number: float, large: int):
    codec = Codec(JsonSerializer())
    assert codec.read(through_a_record(codec.value([number, large]))) == [number, large]


# --- what cannot be ---------------------------------------------------------------------------------------------------


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Opaque(), "a Opaque cannot be recorded: .*Opaque"),
        ([{"deep": Opaque()}], r"a list cannot be recorded: 0\.deep: .*Opaque"),
        ({1: {Handle()}}, "a dict cannot be recorded: .*Handle"),
        (endless(), "a list cannot be recorded"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_value_that_cannot_be_written_is_named_with_what_to_do(value: Any, named: str):
    remedy = "keep it out of events and state, or make it a pydantic model or plain data"
    with pytest.raises(StoreError, match=f"{named}.*{remedy}"):
        Codec(JsonSerializer()).value(value)


@pytest.mark.parametrize(
    "event",
    [Note(anything=Opaque()), Note(thing=Opaque()), Note(anything=[Opaque()]), Note(anything=endless())],
    ids=["in a field", "in dynamic data", "inside a list", "endless"],
)
def test_an_event_that_cannot_be_written_is_named_with_what_to_do(event: Note):
    remedy = "keep it out of events and state, or make it a pydantic model or plain data"
    with pytest.raises(StoreError, match=f"Note cannot be recorded: .*{remedy}"):
        Codec(JsonSerializer()).event(event)


def test_what_a_serializer_of_ones_own_refuses_is_named_in_the_same_way():
    with pytest.raises(StoreError, match=r"a Opaque cannot be recorded: .*Opaque.*pydantic model or plain data"):
        Codec(Reversed()).value(Opaque())
    with pytest.raises(StoreError, match=r"Note cannot be recorded: .*Opaque.*pydantic model or plain data"):
        Codec(Reversed()).event(Note(anything=Opaque()))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (["lost.module.Gone", {"n": 1}], r"lost\.module\.Gone"),
        ([f"{__name__}.Opaque", {"n": 1}], "Opaque"),
        ([f"{__name__}.Verdict", {"score": "no number"}], "score"),
        ([None, {"__is_pydantic": True, "value": {}, "qualified_name": "lost.Gone"}], r"lost\.Gone"),
    ],
    ids=["a class that is gone", "no event", "a value that does not fit", "a marked value"],
)
def test_what_does_not_fit_any_more_is_refused_by_name(data: Any, named: str):
    with pytest.raises(StoreError, match=rf"(?s)A record cannot be read: .*{named}"):
        Codec(JsonSerializer()).read(data)


@codecs
def test_what_is_no_text_of_the_serializer_is_refused(serializer: BaseSerializer):
    data: Any = "{ no JSON" if not isinstance(serializer, JsonSerializer) else json.dumps("x")[:-1]
    with pytest.raises(StoreError, match="A record cannot be read"):
        Codec(serializer).read(data)


def test_a_class_that_a_workflow_did_not_allow_is_not_made_from_a_record():
    data = Codec(JsonSerializer()).event(Note(title="t"))
    with pytest.raises(StoreError, match=r"disallowed type .*Note"):
        Codec(JsonSerializer(allowed_types=[Place])).read(data)

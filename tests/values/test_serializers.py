"""Serializers: how values become text, and which names in a payload count."""

import asyncio
import base64
import functools
import json
import math
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from batonflow.values.serializers import BaseSerializer, JsonSerializer
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.context import JsonPickleSerializer, PickleSerializer
from tests.contract import contract


class Colour(Enum):
    RED = "red"


class Point(BaseModel):
    x: int = 0
    when: datetime | None = None
    colour: Colour | None = None


class Holder(BaseModel):
    anything: Any = None


class Measured(BaseModel):
    metres: float | None = None


AT = datetime(2026, 1, 2, tzinfo=UTC)


class EventForReader(BaseModel):
    text: str
    by_name: dict[str, str | list[Any] | dict[str, Any]]
    colour: Colour
    at: datetime
    held: Holder


class Note(Event):
    text: str = ""
    extra: Any = None


class Lamp:
    """A component: it names its class and writes itself."""

    def __init__(self, watts: int) -> None:
        self.watts = watts

    @classmethod
    def class_name(cls) -> str:
        return "Lamp"

    def to_dict(self) -> dict[str, Any]:
        return {"watts": self.watts}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Lamp":
        return cls(data["watts"])


class Opaque:
    def __init__(self, word: str) -> None:
        self.word = word


def through(value: Any, serializer: BaseSerializer | None = None) -> Any:
    serializer = serializer or JsonSerializer()
    return serializer.deserialize(serializer.serialize(value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@contract("5.2.6")
@given(json_values)
def test_plain_data_comes_back_as_it_was(value: Any):
    assert through(value) == value
    json.loads(JsonSerializer().serialize(value))


@contract("5.2.6")
@given(json_values)
def test_plain_data_inside_an_event_comes_back_as_it_was(value: Any):
    assert through(Note(text="n", extra=value)).extra == value
    assert through(Event(dynamic=value)).dynamic == value


halves = st.text(st.sampled_from("a\ud800\udcff\\\u00e9"), max_size=3)


def with_backslashes(value: Any) -> Any:
    if isinstance(value, dict):
        return {with_backslashes(key): with_backslashes(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_backslashes(inner) for inner in value]
    return value.encode(errors="backslashreplace").decode()


@given(st.recursive(halves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(halves, inner, max_size=2)))
def test_halves_of_characters_come_back_as_text(value: Any):
    """As in names of files that are not UTF-8."""
    shown = with_backslashes(value)
    JsonSerializer().serialize(value).encode()
    assert through(value) == shown
    told = EventForReader(
        text=str(value), by_name={str(value): value}, colour=Colour.RED, at=AT, held=Holder(anything=value)
    )
    text = with_backslashes(str(value))
    assert through(told) == EventForReader(
        text=text, by_name={text: shown}, colour=Colour.RED, at=AT, held=Holder(anything=shown)
    )
    assert through(Note(extra=value, more=value)) == Note(extra=shown, more=shown)


@contract("5.2.6")
def test_numbers_that_json_has_not():
    assert math.isnan(through(math.nan))
    assert through([math.inf, -math.inf]) == [math.inf, -math.inf]


class Scored(BaseModel):
    score: float = 0.0
    by_name: dict[str, float] = {}
    anything: Any = None


class Scores(Event):
    """Wherever a number may stand in an event."""

    best: float = 0.0
    best_two: tuple[float, ...] = ()
    by_name: dict[str, float] = {}
    seen: set[float] = set()
    one: Scored = Scored()
    all: list[Scored] = []
    inside: dict[str, Any] = {}


@contract("5.2.6")
@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_numbers_that_json_has_not_wherever_they_stand(number: float):
    scored = Scored(score=number, by_name={"x": number}, anything={"deep": [number]})
    assert through(scored) == scored
    for scores in (
        Scores(best=number, best_two=(1.0, number), by_name={"x": number}, seen={number}),
        Scores(one=scored, all=[Scored(), scored], inside={"a": [number]}, more=number, most=scored),
    ):
        assert through(scores) == scores


class Way(BaseModel):
    """Says itself how some of it is written."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_timedelta="float")

    data: bytes = b""
    took: timedelta = timedelta()


def test_what_a_model_says_on_how_it_is_written_holds():
    way = Way(data=b"\xff\x00", took=timedelta(seconds=1.5))
    assert json.loads(JsonSerializer().serialize(way))["value"] == json.loads(way.model_dump_json())


class BuiltLate(BaseModel):
    model_config = ConfigDict(defer_build=True)

    score: float = 0.0
    after: "ComesLater | None" = None


class ComesLater(BaseModel):
    what: Any = None


def test_a_model_that_is_built_when_it_is_used_first():
    late = BuiltLate.model_construct(score=math.inf, after=None)
    assert json.loads(JsonSerializer().serialize(late))["value"] == {"score": math.inf, "after": None}
    assert through(BuiltLate(after=ComesLater(what=math.inf))) == BuiltLate(after=ComesLater(what=math.inf))


@contract("5.2.6")
def test_models_are_marked_with_their_class():
    text = JsonSerializer().serialize(Point(x=3))
    assert json.loads(text) == {
        "__is_pydantic": True,
        "value": {"x": 3, "when": None, "colour": None},
        "qualified_name": f"{__name__}.Point",
    }
    point = Point(x=1, when=datetime(2026, 1, 2, tzinfo=UTC), colour=Colour.RED)
    assert through(point) == point


@contract("5.2.6")
def test_components_are_marked_with_their_class():
    assert json.loads(JsonSerializer().serialize(Lamp(40))) == {
        "__is_component": True,
        "value": {"watts": 40},
        "qualified_name": f"{__name__}.Lamp",
    }
    assert through(Lamp(40)).watts == 40


@contract("5.2.6")
def test_dicts_and_lists_are_walked():
    found = through({"a": [Point(x=1), {"b": Lamp(5)}], "c": (Point(x=2), 3)})
    assert found["a"][0] == Point(x=1)
    assert found["a"][1]["b"].watts == 5
    assert found["c"] == (Point(x=2), 3)


@contract("5.2.6")
def test_models_inside_untyped_fields_keep_their_class():
    assert through(Holder(anything=Point(x=4))).anything == Point(x=4)
    assert through(Holder(anything=[Point(x=4)])).anything == [Point(x=4)]
    assert through(StopEvent(result=Point(x=4))).result == Point(x=4)
    assert through(StopEvent(result=[Point(x=4)])).result == [Point(x=4)]


def test_fields_that_are_left_out_of_dumps_are_left_out_whatever_their_type():
    class Session(BaseModel):
        user: str
        handle: Any = Field(default=None, exclude=True)
        seconds: float = Field(default=0.0, exclude=True)

    text = JsonSerializer().serialize(Session(user="ann", handle="secret", seconds=1.5))
    assert json.loads(text)["value"] == {"user": "ann"}


def test_a_model_that_dumps_itself_is_written_in_its_own_words():
    class Loud(BaseModel):
        word: str

        def model_dump(self, **options: Any) -> dict[str, Any]:
            return {"word": super().model_dump(**options)["word"].upper()}

    assert json.loads(JsonSerializer().serialize([Loud(word="a")]))[0]["value"] == {"word": "A"}


models = (
    st.builds(Point, x=st.integers(0, 2), colour=st.none() | st.just(Colour.RED))
    | st.builds(Holder, anything=json_values | st.builds(Point, x=st.integers(0, 2)))
    | st.builds(Holder, anything=st.lists(st.sampled_from([Point(x=1), "red", math.inf, -math.inf]), max_size=2))
    | st.builds(Measured, metres=st.sampled_from([None, 1.0, math.inf, -math.inf]))
    | st.builds(Note, text=st.sampled_from("ab"), extra=json_values, more=st.integers(0, 1))
    | st.builds(StopEvent, result=json_values)
)


@contract("5.2.6")
def test_what_has_no_json_is_named():
    with pytest.raises(ValueError, match="Opaque"):
        JsonSerializer().serialize({"a": [Opaque("w")]})
    with pytest.raises(ValueError, match="Opaque"):
        JsonSerializer().serialize(Event(thing=Opaque("w")))


def test_keys_of_a_dict_stay_what_they_are():
    assert through({1: "a", None: "b", 2.5: "c", (1, 2): "d"}) == {1: "a", None: "b", 2.5: "c", (1, 2): "d"}
    assert through({"state": [{1: "a", "1": "b"}]}) == {"state": [{1: "a", "1": "b"}]}


@pytest.mark.parametrize("depth", [300, 5000])
def test_what_is_too_deep_is_no_error_of_the_interpreter(depth: int):
    deep = functools.reduce(lambda inner, _: [inner], range(depth), 0)
    for value in (deep, {"a": deep}, Holder(anything=deep)):
        with pytest.raises(ValueError, match=r"depth exceeded|too deeply"):
            JsonSerializer().serialize(value)


@contract("5.2.6", "16.5")
def test_only_allowed_names_are_resolved():
    text = JsonSerializer().serialize(Point(x=1))
    careful = JsonSerializer(allowed_types=[Note])
    with pytest.raises(ValueError, match="Refusing to import disallowed"):
        careful.deserialize(text)
    assert JsonSerializer(allowed_types=[Point]).deserialize(text) == Point(x=1)
    assert JsonSerializer(allowed_types=[f"{__name__}.Point"]).deserialize(text) == Point(x=1)
    with pytest.raises(ValueError, match="Refusing"):
        JsonSerializer(allowed_types=[]).deserialize(text)


@contract("16.5")
def test_a_class_given_as_an_object_is_never_looked_up():
    class Local(BaseModel):
        x: int

    text = JsonSerializer().serialize(Local(x=1))
    with pytest.raises(ValueError, match="not a loaded class"):
        JsonSerializer().deserialize(text)
    assert JsonSerializer(allowed_types=[Local]).deserialize(text).x == 1
    assert JsonSerializer().knowing([Local]).deserialize(text).x == 1


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "subprocess.Popen", f"{__name__}.Lamp", "this.module.is.not.loaded", ""]
)
def test_a_name_that_is_no_model_is_refused(name: str):
    with pytest.raises(ValueError, match="names"):
        JsonSerializer().deserialize(json.dumps({"__is_pydantic": True, "value": {}, "qualified_name": name}))


def test_nothing_is_imported_because_a_payload_says_so():
    program = (
        "import json, sys\n"
        "from batonflow.values.serializers import JsonSerializer\n"
        "for marker in ('__is_pydantic', '__is_component'):\n"
        "    try:\n"
        "        payload = {marker: True, 'value': {}, 'qualified_name': 'antigravity.x'}\n"
        "        JsonSerializer().deserialize(json.dumps(payload))\n"
        "    except ValueError as error:\n"
        "        print('refused')\n"
        "print('antigravity' in sys.modules, 'batonflow.values.pickle_serializer' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.splitlines() == ["refused", "refused", "False False"]


# --- pickle -----------------------------------------------------------------------------------------------------------


@contract("5.2.6", "0.1")
def test_pickle_is_the_fallback_of_json():
    assert JsonPickleSerializer is PickleSerializer
    serializer = PickleSerializer()
    assert serializer.serialize({"a": 1}) == '{"a":1}'
    assert through(Opaque("kept"), serializer).word == "kept"
    assert through({"a": Opaque("kept")}, serializer)["a"].word == "kept"
    assert through(Point(x=2), serializer) == Point(x=2)
    assert isinstance(serializer, BaseSerializer)


@contract("5.2.6")
def test_the_plain_serializer_reads_no_pickle():
    text = base64.b64encode(pickle.dumps(Opaque("w"))).decode()
    with pytest.raises(ValueError, match=r"expected|invalid"):
        JsonSerializer().deserialize(text)


@contract("5.2.6")
@pytest.mark.parametrize("text", ["", "{", "not base64!", "AAAA"])
def test_neither_json_nor_pickle(text: str):
    with pytest.raises(ValueError, match="neither JSON"):
        PickleSerializer().deserialize(text)


class WithSets(JsonSerializer):
    """Knows one kind of values more, as programs written for the other library do it."""

    def serialize_value(self, value: Any) -> Any:
        return {"__set": sorted(value)} if isinstance(value, set) else super().serialize_value(value)

    def deserialize_value(self, data: Any) -> Any:
        return set(data["__set"]) if isinstance(data, dict) and "__set" in data else super().deserialize_value(data)


class Untyped(BaseModel):
    anything: Any


@pytest.mark.parametrize(
    "value",
    [{1, 2}, {"a": [{1}, "plain"]}, Untyped(anything={1, 2}), [Untyped(anything=[{3}]), {"b": Point(x=1, y=2)}], 5],
)
async def test_a_subclass_may_know_more_kinds_of_values(value: Any):
    serializer = WithSets()
    assert serializer.deserialize(serializer.serialize(value)) == value


def test_it_may_have_that_from_another_class_and_end_in_the_serializer_s_own_way():
    class Sets:
        def serialize_value(self, value: Any) -> Any:
            return {"__set": sorted(value)} if isinstance(value, set) else self.encode(value)  # type: ignore[attr-defined]

    class Mixed(Sets, JsonSerializer):
        deserialize_value = WithSets.deserialize_value

    assert Mixed().serialize({"a": [{2, 1}, "plain"]}) == '{"a":[{"__set":[1,2]},"plain"]}'


async def test_a_context_is_written_by_a_subclass_that_knows_more():
    class Keep(Workflow):
        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("seen", {1, 2})
            return StopEvent()

    handler = Keep().run()
    await handler
    written = json.loads(json.dumps(handler.ctx.to_dict(serializer=WithSets())))
    assert await Context.from_dict(Keep(), written, serializer=WithSets()).store.get("seen") == {1, 2}


def test_types_are_added_to_those_that_are_allowed():
    written = JsonSerializer().serialize([Point(x=1, y=2)])
    strict = JsonSerializer(allowed_types=[])
    assert strict.with_types(Point).deserialize(written) == [Point(x=1, y=2)]
    with pytest.raises(ValueError, match="disallowed type"):
        strict.deserialize(written)


def test_a_serializer_may_be_anything_with_the_two_methods():
    class Reversed:
        def serialize(self, value: Any) -> str:
            return JsonSerializer().serialize(value)[::-1]

        def deserialize(self, value: str) -> Any:
            return JsonSerializer().deserialize(value[::-1])

    assert isinstance(Reversed(), BaseSerializer)
    assert through({"a": Point(x=1)}, Reversed()) == {"a": Point(x=1)}


async def test_serializing_is_safe_from_several_threads():
    values = [{"n": n, "p": Point(x=n)} for n in range(20)]
    serializer = JsonSerializer().knowing([Point])
    assert await asyncio.gather(*(asyncio.to_thread(through, value, serializer) for value in values)) == values


def test_names_of_the_other_library_mean_what_stands_here_also_when_that_is_loaded(monkeypatch):
    class Theirs(BaseModel):
        """As the other library has it, when both are loaded."""

    class Special(StartEvent):
        """A user's own, in a module that happens to have that name."""

    other = ModuleType("workflows.events")
    vars(other).update(StartEvent=Theirs, Special=Special)
    monkeypatch.setitem(sys.modules, "workflows.events", other)
    text = '{"__is_pydantic": true, "value": {}, "qualified_name": "workflows.events.%s"}'
    assert type(JsonSerializer().deserialize(text % "StartEvent")) is StartEvent
    assert type(JsonSerializer().deserialize(text % "Special")) is Special


@pytest.mark.parametrize("mark", ["__is_pydantic", "__is_component"])
@pytest.mark.parametrize("value", [True, 1, {"x": 1}, Point(x=1)])
def test_data_with_the_name_of_a_mark_is_data(mark, value):
    serializer = JsonSerializer()
    data = {mark: value, "other": Point(x=2)}
    assert serializer.deserialize(serializer.serialize(data)) == data


# --- data that look like marks ----------------------------------------------------------------------------------------


class Delivery(BaseModel):
    """Its fields have types, and yet data of any kind are in it."""

    box: dict[str, str | bool | dict[str, int]] = {}
    point: Point | None = None
    inside: list["Parcel"] = []


class Parcel(BaseModel):
    what: dict[str, Any] = {}


class TypedNote(Event):
    """What became of a Note."""

    text: str = ""
    extra: Point | None = None


LIKE_A_MODEL = {"__is_pydantic": True, "qualified_name": f"{__name__}.Point", "value": {"x": 9}}
LIKE_A_COMPONENT = {"__is_component": True, "qualified_name": f"{__name__}.Lamp", "value": {"watts": 9}}
LIKE_DATA = {"__is_data": True, "qualified_name": "dict", "value": {"a": 1}}


@pytest.mark.parametrize("data", [LIKE_A_MODEL, LIKE_A_COMPONENT, LIKE_DATA, {**LIKE_A_MODEL, "more": LIKE_DATA}])
def test_plain_data_stay_data_wherever_they_stand(data):
    for value in (data, [data], {"inside": data}, {"value": data, "point": Point(x=1)}):
        assert through(value) == value
    assert through(Note(extra=data, more=data, all=[data, Point(x=1)])) == Note(
        extra=data, more=data, all=[data, Point(x=1)]
    )
    assert through(StopEvent(result=data)).result == data
    assert through(Parcel(what=data)) == Parcel(what=data)
    assert through(Delivery(inside=[Parcel(what=data)])) == Delivery(inside=[Parcel(what=data)])


def test_no_class_is_looked_for_that_data_name():
    for data in (LIKE_A_MODEL, LIKE_A_COMPONENT):
        nowhere = {**data, "qualified_name": "nowhere.Lost"}
        assert through(Delivery(inside=[Parcel(what=nowhere)])).inside[0].what == nowhere
        box = {"__is_pydantic": True, "qualified_name": "nowhere.Lost", "value": {"x": 1}}
        assert through(Delivery(box=box)).box == box


def test_components_among_data_of_typed_fields_are_components_again():
    class Shelf(BaseModel):
        parcels: list[Parcel]

    serializer = JsonSerializer().knowing([Shelf])
    back = through(Shelf(parcels=[Parcel(what={"lamp": Lamp(40)})]), serializer)
    assert back.parcels[0].what["lamp"].watts == 40


def test_payloads_that_do_not_say_where_the_marks_are_are_read():
    for written in (Note(extra=Point(x=7), more=Point(x=8)), StopEvent(result=Point(x=9))):
        data = json.loads(JsonSerializer().serialize(written))
        assert data.pop("marked")
        assert JsonSerializer().deserialize(json.dumps(data)) == written


def test_a_field_that_has_got_a_type_since_it_was_written_is_read():
    data = json.loads(JsonSerializer().serialize(Note(extra=Point(x=7))))
    data["qualified_name"] = f"{__name__}.TypedNote"
    assert JsonSerializer().deserialize(json.dumps(data)).extra == Point(x=7)

"""Values that JSON lacks come back from text, records and snapshots; what cannot come back is refused when written."""

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, computed_field, field_validator

from batonflow.agents import AgentOutput, ToolCallResult
from batonflow.agents.memory import ChatSummaryMemoryBuffer, Memory
from batonflow.durable.codec import Codec
from batonflow.llms import ChatMessage
from batonflow.tools import ToolOutput
from batonflow.values.serializers import as_json
from batonflow.values.unmarked import alike
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.context.state_store import DictState, InMemoryStateStore
from batonflow.workflow_core.errors import ContextSerdeError, StateOutsideContextWarning, StoreError
from tests.workflow_core.flows import until

T = TypeVar("T")
NAIVE = datetime.fromisoformat("2026-01-02T03:04:05")


class Shape(BaseModel):
    name: str = ""


class Circle(Shape):
    radius: int = 0


class Drawing(Event):
    shapes: list[Shape] = []
    by_name: dict[str, Shape] = {}
    main: Shape | None = None


class Inner(Event):
    x: int = 0


class Outer(Event):
    inner: Event


class Grid(Event):
    cells: dict[tuple[int, int], str] = {}


class Page(BaseModel, Generic[T]):
    items: list[T] = []


class Blob(Event):
    data: bytes


class Secretive(Event):
    n: int = 0
    _count: int = PrivateAttr(default=0)
    _seen: dict[str, Any] = PrivateAttr(default_factory=dict)


class Unions(BaseModel):
    when: datetime | str = ""
    price: Decimal | float = 0.0
    items: list[int] | set[int] | tuple[int, ...] = []
    shape: Shape | Circle = Shape()


class Colour(Enum):
    RED = (255, 0, 0)
    BLUE = "blue"


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Chosen(BaseModel):
    colour: Literal[Colour.BLUE] | int = 0
    right: Right = Right.READ
    word: Literal["a"] = "a"


@dataclass
class Point:
    x: int
    y: Any = None
    tags: list[str] = field(default_factory=list)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total += self.x


@dataclass(frozen=True, slots=True)
class Place:
    at: Point


class Pair(NamedTuple):
    left: int
    right: str


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    when: datetime
    shape: Shape
    row: tuple[int, ...] = ()


class Shapes(RootModel[list[Shape]]):
    """Has no names."""


class Sized(BaseModel):
    model_config = ConfigDict(extra="forbid")

    side: int

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Stripped(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _strip(cls, value: str) -> str:
        return value.strip()


class Holder(BaseModel):
    anything: Any = None


def through(value: Any) -> Any:
    serializer = JsonSerializer()
    return serializer.deserialize(serializer.serialize(value))


def secretive() -> Secretive:
    made = Secretive(n=1, _count=5)
    made._seen["a"] = (1, Circle(radius=2))
    return made


TYPED = [
    Drawing(shapes=[Circle(radius=7), Shape(name="s")], by_name={"c": Circle()}, main=Circle(radius=1)),
    Outer(inner=Inner(x=3)),
    Outer(inner=Drawing(shapes=[Circle(radius=7)])),
    Grid(cells={(1, 2): "a", (3, 4): "b"}),
    Blob(data=b"\xff\x00"),
    Blob(data=b"text"),
    secretive(),
    Unions(when=NAIVE, price=Decimal("1.50"), items={1}, shape=Circle(radius=1)),
    Unions(when="2026-01-02", price=1.5, items=(1,)),
    Chosen(colour=Colour.BLUE, right=Right.READ | Right.WRITE),
    Strict(when=NAIVE, shape=Circle(), row=(1,)),
    Shapes([Circle(radius=1)]),
    Shapes([Shape()]),
    Sized(side=3),
    Stripped(text=" a "),
    Page[int](items=[1]),
    Page[Page[Shape]](items=[Page[Shape](items=[Circle(radius=1)])]),
    Page[list[Sequence[int]]](items=[[[1], (2,)]]),
    Page[Callable[..., int]](items=[]),
    Holder(anything=Page[int | None](items=[None])),
    Holder(anything=Page[Literal["a, [b]", 1]](items=["a, [b]"])),
    Holder(anything=Page[dict[str, list[Decimal]]](items=[{"a": [Decimal(1)]}])),
]
UNTYPED = [
    NAIVE.replace(microsecond=6),
    datetime(2026, 7, 1, tzinfo=UTC),
    datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # which no clock there has shown
    NAIVE.replace(fold=1),
    NAIVE.replace(fold=1, tzinfo=UTC),
    NAIVE.replace(fold=1, tzinfo=timezone(timedelta(hours=1))),
    NAIVE.replace(tzinfo=timezone(timedelta(hours=1), "CET")),
    NAIVE.replace(tzinfo=timezone(timedelta(seconds=-1, microseconds=5), "odd"), fold=1),
    date(2026, 1, 2),
    time(1, 2, 3),
    time(1, 2, fold=1),
    time(1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
    time(1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
    timedelta(days=-1, microseconds=5),
    Decimal("1.10"),
    UUID(int=5),
    {1, 2},
    frozenset({"a"}),
    b"\xff",
    bytearray(b"\xff"),
    Path("a/b"),
    PureWindowsPath("c:/a"),
    Colour.RED,
    Right.READ | Right.WRITE,
    (1, (2, [3])),
    Pair(1, "b"),
    Point(1, (2,), ["c"]),
    Place(Point(1)),
    deque([1], 3),
    {1: "a", None: "b", (1, 2): "c", Colour.BLUE: "d"},
    {"plain": [{"deep": {1: {2}}}]},
]


@pytest.mark.parametrize("value", TYPED, ids=lambda value: type(value).__name__)
def test_models_come_back_with_what_their_fields_do_not_tell(value: BaseModel):
    assert alike(through(value), value)
    assert alike(through(Holder(anything=[value])), Holder(anything=[value]))
    assert alike(through(StopEvent(result=value)).result, value)
    if isinstance(value, Event):
        codec = Codec(JsonSerializer())
        assert alike(codec.read(codec.event(value)), value)


@pytest.mark.parametrize("value", UNTYPED, ids=lambda value: type(value).__name__)
def test_values_that_json_lacks_come_back_where_nothing_is_declared(value: Any):
    assert alike(through(value), value)
    event = Event(it=value, more={"a": [value]})
    assert alike(through(event), event)
    codec = Codec(JsonSerializer())
    assert alike(codec.read(codec.value(value)), value)
    assert alike(codec.read(codec.event(event)), event)


class Times(BaseModel):
    """Declares what its values are, and not in which zones."""

    at: datetime | None = None
    every: time | None = None
    both: datetime | time | None = None


@pytest.mark.parametrize("value", [one for one in UNTYPED if isinstance(one, datetime | time)], ids=repr)
def test_times_come_back_with_their_zones_and_folds_where_fields_declare_them(value: datetime | time):
    model = Times(at=value) if isinstance(value, datetime) else Times(every=value)
    model.both = value
    assert alike(through(model), model)
    assert alike(through({value: [value]}), {value: [value]})


def test_times_of_earlier_records_are_read():
    written = ["2026-10-25T02:30:00+01:00", "Europe/Berlin"]
    text = as_json({"__is_value": True, "value": written, "qualified_name": "datetime.datetime"}).decode()
    wanted = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert alike(JsonSerializer().deserialize(text), wanted)


def test_what_fields_tell_is_written_as_before():
    written = JsonSerializer().serialize(Unions(when="now", price=1.5, items=[1]))
    assert '"value":{"when":"now","price":1.5,"items":[1],"shape":{"name":""}}' in written
    assert "marked" not in written


def test_dynamic_data_may_have_the_names_of_fields_and_of_what_holds_them():
    codec = Codec(JsonSerializer())
    event = Inner(x=1, _data={"x": 2, "_data": {"y": 3}, "result": 4})
    for back in (through(event), codec.read(codec.event(event))):
        assert back.x == 1
        assert back.to_dict() == event.to_dict()


def test_a_dataclass_comes_back_as_it_was_and_not_as_it_began():
    point = Point(1)
    point.total = 50
    vars(point)["found"] = {1}
    back = through(point)
    assert (back.total, back.found) == (50, {1})


def test_a_dataclass_that_has_got_a_field_since_then_takes_its_default():
    written = JsonSerializer().serialize(Point(1)).replace(',"tags":[]', "")
    assert JsonSerializer().deserialize(written).tags == []
    with pytest.raises(ValueError, match=r"has the field x now"):
        JsonSerializer().deserialize(written.replace('"x":1,', ""))


@pytest.mark.parametrize("name", ["builtins.eval", "os.system", "nowhere.Lost", "builtins.int", "pydantic.BaseModel"])
def test_no_other_class_is_made_of_a_mark(name: str):
    text = f'{{"__is_value": true, "value": {{}}, "qualified_name": "{name}"}}'
    with pytest.raises(ValueError, match="The payload names"):
        JsonSerializer().deserialize(text)
    with pytest.raises(ValueError, match="The payload names"):
        JsonSerializer().deserialize(
            f'{{"__is_pydantic": true, "value": {{}}, "qualified_name": "{__name__}.Page[{name}[builtins.int]]"}}'
        )


def test_only_allowed_classes_are_made_of_marks():
    text = JsonSerializer().serialize([Point(1), Colour.RED, {1}])
    with pytest.raises(ValueError, match="disallowed type"):
        JsonSerializer(allowed_types=[Point]).deserialize(text)
    assert JsonSerializer(allowed_types=[Point, Colour]).deserialize(text) == [Point(1), Colour.RED, {1}]


# --- what is refused --------------------------------------------------------------------------------------------------


class Doubled(BaseModel):
    """What is read is not what was written."""

    word: str

    @field_validator("word")
    @classmethod
    def _double(cls, value: str) -> str:
        return value * 2


class Particular(Event):
    """Takes what it does not write."""

    def __init__(self, *, first: int, second: int) -> None:
        super().__init__(total=first + second)


class Hidden(BaseModel):
    """A field that must be given is not written."""

    key: str = Field(exclude=True)


class Bounded(BaseModel):
    n: Annotated[int, Field(ge=0)] = 0


def changed(model: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(model, name, value)
    return model


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Holder(anything={"a": [1, object()]}), r"Holder\.anything\.a\.1: .*object cannot be written"),
        (Event(a={"b": object()}), r"Event\.a\.b: .*object cannot be written"),
        (Secretive(_seen={"a": object()}), r"Secretive\._seen\.a: .*object cannot be written"),
        (
            changed(Shape(), name=5),
            r"name: Shape declares this field as str, and the int in it could not be read again",
        ),
        (changed(Unions(), when=5.5), r"when: Unions declares .*float.*put a value of the declared type there"),
        (changed(Bounded(), n=-1), r"n: Bounded declares this field"),
        (Doubled(word="a"), r"Doubled: it would be another one when it is read again: let its validators"),
        (Particular(first=1, second=2), r"Particular: it could not be read again: .*__init__"),
        (Hidden(key="a"), r"Hidden\.key is left out .*give it a default"),
        ([Place(Point(1, object()))], r"object cannot be written"),
    ],
)
def test_what_could_not_be_read_again_is_refused_by_its_key_type_and_remedy(value: Any, named: str):
    with pytest.raises(ValueError, match=rf"(?s){named}"):
        JsonSerializer().serialize(value)
    if isinstance(value, Event):
        with pytest.raises(StoreError, match=rf"(?s){named}.*keep it out of events and state"):
            Codec(JsonSerializer()).event(value)


def test_secrets_are_written_as_stars():
    class Login(BaseModel):
        key: SecretStr

    written = JsonSerializer().serialize(Login(key=SecretStr("hush")))
    assert "hush" not in written
    assert "**" in written


# --- where values are written -----------------------------------------------------------------------------------------


class Board(BaseModel):
    shapes: list[Shape] = []
    when: datetime | str = ""
    _moves: int = PrivateAttr(default=0)


@pytest.mark.parametrize("value", [UNTYPED[2], {1, 2}, b"\xff", Point(1, (2,), ["c"]), {1: "a", (1, 2): "c"}], ids=repr)
async def test_the_state_of_a_snapshot_holds_them(value: Any):
    store = InMemoryStateStore(DictState())
    await store.set("it", value)
    again = InMemoryStateStore.from_dict(store.to_dict(JsonSerializer()), JsonSerializer())
    assert alike(await again.get("it"), value)


async def test_typed_state_comes_back_from_a_snapshot_and_from_a_store():
    class Draws(Workflow):
        @step
        async def draw(self, ctx: Context[Board], ev: StartEvent) -> Inner:
            async with ctx.store.edit_state() as board:
                board.shapes = [Circle(radius=7)]
                board.when = NAIVE
                board._moves = 3
            return Inner()

        @step
        async def show(self, ctx: Context[Board], ev: Inner) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            state = await ctx.store.get_state()
            return StopEvent(result=(state.shapes, state.when, state._moves))

    def waits(handler: Any) -> bool:
        return bool(handler.ctx.to_dict()["workers"]["show"]["collected_waiters"])

    wanted = ([Circle(radius=7)], NAIVE, 3)
    store = MemoryStore()
    handler = Draws(timeout=None, store=store).run(run_id="r")
    await until(lambda: waits(handler))
    payload = handler.ctx.to_dict()
    await handler.interrupt()
    flow = Draws(timeout=None, store=store)
    for again in (flow.resume("r"), Draws(timeout=None).run(ctx=Context.from_dict(flow, payload))):
        await until(lambda again=again: waits(again))
        again.ctx.send_event(HumanResponseEvent())
        assert alike(await again, wanted)


async def test_the_data_of_a_durable_state_store_are_no_empty_state():
    payload = {"store_type": "sqlite", "run_id": "r", "db_path": "state.db"}
    with pytest.raises(ContextSerdeError, match=r"durable state store \(sqlite\)"):
        InMemoryStateStore.from_dict(payload, JsonSerializer())


async def test_an_object_that_cannot_be_copied_is_written_through():
    class Live:
        slot = 0

        def __copy__(self) -> "Live":
            raise TypeError("there is one of it")

    live = Live()
    store = InMemoryStateStore(DictState())
    await store.set("live", live)
    await store.set("live.slot", 7)
    assert (await store.get("live")) is live
    assert live.slot == 7


async def test_names_put_into_the_copy_of_the_state_alone_are_warned_of():
    class Counts(Workflow):
        @step
        async def lost(self, ctx: Context, ev: StartEvent) -> StopEvent:
            state = await ctx.store.get_state()
            state["count"] = 1
            return StopEvent()

    with pytest.warns(StateOutsideContextWarning, match=r"Step lost changed 'count'.*use ctx\.store\.set, set_state"):
        await Counts().run()


@pytest.mark.filterwarnings("error")
async def test_a_copy_of_the_state_that_is_put_back_is_not_warned_of():
    class Counts(Workflow):
        @step
        async def kept(self, ctx: Context, ev: StartEvent) -> Inner:
            state = await ctx.store.get_state()
            state["count"] = 1
            await ctx.store.set_state(state)
            return Inner()

        @step
        async def also_kept(self, ctx: Context, ev: Inner) -> StopEvent:
            state = await ctx.store.get_state()
            state["more"] = [1]
            await ctx.store.set("more", [1])
            return StopEvent(result=(await ctx.store.get_state()).to_dict())

    assert await Counts().run() == {"count": 1, "more": [1]}


@pytest.mark.filterwarnings("error")
async def test_names_of_a_copy_that_are_written_in_another_way_too_are_not_warned_of():
    class Counts(Workflow):
        @step
        async def counts(self, ctx: Context, ev: StartEvent) -> StopEvent:
            state = await ctx.store.get_state()
            state["count"] = state["total"] = state["last"] = 1
            await ctx.store.set("count", 2)
            async with ctx.store.edit_state() as draft:
                draft["total"] = 3
            await ctx.store.set_state(DictState(last=4))
            return StopEvent(result=(await ctx.store.get_state()).to_dict())

    assert await Counts().run() == {"last": 4}


# --- agents -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "told"),
    [(b"\xff", "b'\\xff'"), (ValueError("no"), "ValueError('no')"), ({"a": 1, "b": {2}}, {"a": 1, "b": [2]})],
    ids=["bytes", "an exception", "data"],
)
def test_the_output_of_an_agent_is_json_whatever_its_tools_returned(returned: Any, told: Any):
    output = ToolOutput(
        tool_name="t", content="c", raw_input={"args": (), "kwargs": {"x": returned}}, raw_output=returned
    )
    result = ToolCallResult(tool_name="t", tool_kwargs={}, tool_id="1", tool_output=output, return_direct=False)
    whole = AgentOutput(response=ChatMessage("c"), tool_calls=[result], current_agent_name="a")
    again = AgentOutput.model_validate_json(whole.model_dump_json())
    assert isinstance(again.tool_calls[0], ToolCallResult)
    assert again.tool_calls[0].tool_output.raw_output == told
    assert again.tool_calls[0].tool_output.raw_input == {"args": (), "kwargs": {"x": told}}
    assert output.raw_output is returned


@pytest.mark.parametrize("kind", [Memory, ChatSummaryMemoryBuffer])
async def test_memories_can_be_pickled(kind: Any):
    memory = kind.from_defaults(chat_history=[ChatMessage("a")])
    await memory.aput(ChatMessage("b"))
    again = pickle.loads(pickle.dumps(memory))
    assert again == memory
    await again.aput(ChatMessage("c"))
    assert [message.content for message in again.get_all()] == ["a", "b", "c"]


class Loose(BaseModel):
    """Takes data beside its fields."""

    model_config = ConfigDict(extra="allow")
    name: str = "a"


def test_data_beside_the_fields_of_a_model_come_back() -> None:
    given = Loose(price=Decimal("1.10"), tags={"x"}, raw=b"\xff", when=datetime(2026, 1, 1, tzinfo=UTC), sub=Loose())
    serializer = JsonSerializer()
    read = serializer.deserialize(serializer.serialize(given))
    assert read == given
    assert [type(value) for value in read.model_extra.values()] == [Decimal, set, bytes, datetime, Loose]

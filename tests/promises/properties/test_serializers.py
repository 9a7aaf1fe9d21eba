"""What is written comes back equal; what is broken is refused with one kind of error."""

import asyncio
import copy
import json
import warnings
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.values.types import UnreconstructedException
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    PickleSerializer,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import ContextSerdeError
from batonflow.workflow_core.retry_policy import retry_policy, wait_fixed
from tests.promises.properties.plain_data import plain

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not hasattr(Event, name))


class Note(Event):
    title: str = ""
    weights: dict[str, float] = {}
    inner: Event | None = None


@given(plain)
def test_plain_data_survives_both_serializers(value):
    for serializer in (JsonSerializer(), PickleSerializer()):
        assert serializer.deserialize(serializer.serialize(value)) == value


@given(
    title=st.text(),
    weights=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    dynamic=st.dictionaries(names.filter(lambda name: name not in Note.model_fields), plain, max_size=4),
)
def test_an_event_comes_back_with_its_fields_its_dynamic_data_and_the_event_inside(title, weights, dynamic):
    event = Note(title=title, weights=weights, inside=Note(title=title, **dynamic), **dynamic)
    serializer = JsonSerializer()
    back = serializer.deserialize(serializer.serialize(event))
    assert type(back) is Note
    assert (back.title, back.weights) == (title, weights)
    assert {name: value for name, value in back.to_dict().items() if name != "inside"} == dynamic
    assert type(back.inside) is Note
    assert back.inside.to_dict() == dynamic


@given(plain)
def test_the_result_of_a_stop_event_survives(result):
    serializer = JsonSerializer()
    assert serializer.deserialize(serializer.serialize(StopEvent(result=result))).result == result


class Unloadable(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


@given(text=st.text(), cls=st.sampled_from([ValueError, LookupError, ConnectionError, TimeoutError, RuntimeError]))
def test_an_exception_comes_back_as_its_type_with_its_message(text, cls):
    event = StepFailedEvent(
        step_name="s",
        input_event=Note(title=text),
        exception=cls(text),
        attempts=1,
        elapsed_seconds=0.0,
        failed_at="2030-01-01T00:00:00Z",
    )
    serializer = JsonSerializer()
    back = serializer.deserialize(serializer.serialize(event))
    assert type(back.exception) is cls
    assert back.exception.args == (text,)
    assert type(back.input_event) is Note
    assert back.input_event.title == text


@given(code=st.integers(), text=st.text())
def test_an_exception_that_cannot_be_built_again_keeps_its_text(code, text):
    event = StepFailedEvent(
        step_name="s",
        input_event=Note(),
        exception=Unloadable(code, text),
        attempts=1,
        elapsed_seconds=0.0,
        failed_at="2030-01-01T00:00:00Z",
    )
    serializer = JsonSerializer()
    back = serializer.deserialize(serializer.serialize(event)).exception
    assert isinstance(back, UnreconstructedException | Unloadable)
    assert str(back) == f"{code}: {text}"


@given(st.text() | plain.map(json.dumps))
def test_reading_any_text_gives_a_value_or_a_value_error(text):
    with suppress(ValueError):
        JsonSerializer().deserialize(text)


class Word(HumanResponseEvent):
    text: str


class Part(Event):
    n: int


class Whole(Event):
    pass


class Everything(Workflow):
    """Stops with something in every corner of its snapshot: queue, retry, wait, buffer, stream, join, state."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Part] | Whole:
        await ctx.store.set("user.name", "Ann")
        ctx.send_event(Whole())
        return [Part(n=n) for n in range(4)]

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_fixed(1000)))
    async def work(self, ctx: Context, ev: Part) -> Part | None:
        if ev.n == 0:
            raise ConnectionError("later")
        await ctx.once("seen", lambda: ev.n)
        await ctx.wait_for_event(Word, requirements={"text": str(ev.n)})
        return None

    @step
    async def gather(self, ctx: Context, ev: Whole) -> StopEvent | None:
        ctx.collect_events(ev, [Whole, Whole])
        return None

    @step
    async def join(self, whole: Whole, word: Word) -> StopEvent:
        return StopEvent()

    @step
    async def all_parts(self, parts: list[Part]) -> StopEvent:
        return StopEvent()


def _snapshot() -> dict[str, Any]:
    async def take() -> dict[str, Any]:
        handler = Everything(timeout=None).run()
        for _ in range(20):
            await asyncio.sleep(0)
        payload = handler.ctx.to_dict()
        await handler.cancel_run()
        return payload

    return json.loads(json.dumps(asyncio.run(take())))


SNAPSHOT = _snapshot()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a nested value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


def test_the_snapshot_that_is_corrupted_below_holds_something_everywhere():
    worker = SNAPSHOT["workers"]
    assert worker["work"]["queue"]
    assert worker["work"]["in_progress"]
    assert worker["work"]["collected_waiters"]
    assert worker["gather"]["collected_events"]
    assert worker["join"]["joins"]
    assert SNAPSHOT["streams"]
    assert isinstance(Context.from_dict(Everything(), SNAPSHOT), Context)


@pytest.mark.parametrize("number", ["work_item_seq", "waiter_seq"])
def test_an_infinite_number_in_a_snapshot_is_refused_with_context_serde_error(number):
    with pytest.raises(ContextSerdeError, match="invalid format"):
        Context.from_dict(Everything(), {**SNAPSHOT, number: float("inf")})


@given(data=st.data(), value=plain)
def test_a_corrupt_snapshot_is_read_or_refused_with_context_serde_error(data, value):
    payload = copy.deepcopy(SNAPSHOT)
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(payload)
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        kind = data.draw(st.sampled_from(["replace", "delete", "cut"]))
        if kind == "delete":
            del container[key]
        elif kind == "cut" and isinstance(container[key], str):
            container[key] = container[key][: len(container[key]) // 2]
        else:
            container[key] = copy.deepcopy(value)
        if not _places(payload):
            break
    with warnings.catch_warnings(), suppress(ContextSerdeError):
        warnings.simplefilter("ignore")
        Context.from_dict(Everything(), payload)


@given(plain)
def test_anything_else_is_no_snapshot(value):
    with suppress(ContextSerdeError):
        Context.from_dict(Everything(), value)

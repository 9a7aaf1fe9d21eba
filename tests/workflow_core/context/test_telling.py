"""Words in the place of values that no serializer can write, where words will do."""

import pickle
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.workflow_core import Event, StopEvent
from batonflow.workflow_core.context.serializers import JsonSerializer, PickleSerializer
from batonflow.workflow_core.context.telling import written


class Mute:
    """It cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("mute")


class Report(BaseModel):
    """What a probe was given and found."""

    __batonflow_told__: ClassVar[frozenset[str]] = frozenset({"given", "found"})

    place: str
    given: dict[Any, Any] = {}
    found: Any = None


class Reported(Event):
    report: Report


class Sent(BaseModel):
    data: Any


def again(value: Any) -> Any:
    return JsonSerializer().deserialize(written(JsonSerializer(), value))


def test_what_can_be_written_is_written_as_it_is() -> None:
    for value in ({"a": [1, "b"]}, Reported(report=Report(place="Brest", found={"depth": {1, 2}}))):
        assert written(JsonSerializer(), value) == JsonSerializer().serialize(value)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (b"\xff", repr(b"\xff")),
        ([1, (b"\xff",)], [1, [repr(b"\xff")]]),
        (Mute(), "<Mute>"),
        ({"a": b"\xff", "b": {2}}, None),
    ],
)
def test_what_cannot_is_told_in_words(found: Any, told: Any) -> None:
    report = Report(place="Brest", given={"to": "Brest", "data": b"\xff"}, found=found)
    read = again(Reported(report=report)).report
    assert (read.place, read.given) == ("Brest", {"to": "Brest", "data": repr(b"\xff")})
    assert read.found == ({"a": repr(b"\xff"), "b": [2]} if told is None else told)
    assert report.given["data"] == b"\xff"


def test_names_that_json_has_not_are_told_too() -> None:
    assert again(Report(place="Brest", found={(1, 2): b"\xff"})).found == {"1,2": repr(b"\xff")}


def test_it_is_found_wherever_it_is() -> None:
    report = Report(place="Brest", found=b"\xff")
    told = report.model_copy(update={"found": repr(b"\xff")})
    assert again({"a": [report, 1]}) == {"a": [told, 1]}
    assert again(Reported(report=report, more=[report])).get("more") == [told]
    assert again(StopEvent(result=report)).result == told
    assert again(Sent(data=(report,))).data == [told]


async def test_nothing_else_is_changed() -> None:
    said = (await ScriptedLLM([tool_call("add", a=2)]).achat([ChatMessage("2 + 40?")])).message
    read = again([said, Report(place="Brest", found=b"\xff")])
    assert read[0] == said


def test_only_where_words_will_do() -> None:
    for value in (b"\xff", Sent(data=b"\xff"), {"a": object()}, Reported(report=Report(place="a"), x=object())):
        with pytest.raises(ValueError, match=r"UnicodeDecodeError|cannot be written|utf-8"):
            written(JsonSerializer(), value)


def test_data_inside_of_themselves_are_refused() -> None:
    around: list[Any] = []
    around.extend([around, Report(place="Brest", found=b"\xff")])
    with pytest.raises(ValueError, match="contains itself"):
        written(JsonSerializer(), around)


def test_fields_inside_of_themselves_are_told() -> None:
    around: list[Any] = [1]
    around.append(around)
    assert again(Report(place="Brest", found=around)).found == [1, "[1, [...]]"]


def test_what_a_serializer_of_the_programs_own_can_write_stays() -> None:
    serializer = PickleSerializer()
    report = Report(place="Brest", found=pickle.PickleBuffer)
    assert serializer.deserialize(written(serializer, report)) == report

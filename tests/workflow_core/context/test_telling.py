"""Words in the place of values that no serializer can write, where words will do."""

import pickle
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.values import JsonSerializer, PickleSerializer
from batonflow.values.words import written
from batonflow.workflow_core import Event, StopEvent


class Mute:
    """It cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("mute")


class Handle:
    """It cannot be written, and says what it is."""

    def __repr__(self) -> str:
        return "<handle>"


HANDLE = Handle()


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
        (HANDLE, "<handle>"),
        ([1, (HANDLE,)], [1, ["<handle>"]]),
        (Mute(), "<Mute>"),
        ({"a": HANDLE, "b": b"\xff"}, {"a": "<handle>", "b": b"\xff"}),
    ],
)
def test_what_cannot_is_told_in_words(found: Any, told: Any) -> None:
    report = Report(place="Brest", given={"to": "Brest", "data": HANDLE}, found=found)
    read = again(Reported(report=report)).report
    assert (read.place, read.given) == ("Brest", {"to": "Brest", "data": "<handle>"})
    assert read.found == told
    assert report.given["data"] is HANDLE


def test_keys_that_json_lacks_stay_where_the_values_are_told() -> None:
    assert again(Report(place="Brest", found={(1, 2): HANDLE})).found == {(1, 2): "<handle>"}


def test_it_is_found_wherever_it_is() -> None:
    report = Report(place="Brest", found=HANDLE)
    told = report.model_copy(update={"found": "<handle>"})
    assert again({"a": [report, 1]}) == {"a": [told, 1]}
    assert again(Reported(report=report, more=[report])).get("more") == [told]
    assert again(StopEvent(result=report)).result == told
    assert again(Sent(data=(report,))).data == [told]  # a tuple with words in it is a list of words


async def test_nothing_else_is_changed() -> None:
    said = (await ScriptedLLM([tool_call("add", a=2)]).achat([ChatMessage("2 + 40?")])).message
    read = again([said, Report(place="Brest", found=HANDLE)])
    assert read[0] == said


def test_only_where_words_will_do() -> None:
    for value in (HANDLE, Sent(data=HANDLE), {"a": object()}, Reported(report=Report(place="a"), x=object())):
        with pytest.raises(ValueError, match="cannot be written"):
            written(JsonSerializer(), value)


def test_data_inside_of_themselves_are_refused() -> None:
    around: list[Any] = []
    around.extend([around, Report(place="Brest", found=HANDLE)])
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

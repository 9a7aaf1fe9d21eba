"""The fields of an answer as data: known to programs without its class, and silent where only the class can judge."""

import gc
from typing import Annotated, Any
from weakref import ref

from pydantic import BeforeValidator, Field, field_validator, model_validator

from batonflow.values.answer_fields import answer_fields, needed, unfit
from batonflow.workflow_core import HumanResponseEvent


class Plain(HumanResponseEvent):
    port: str
    depth: int
    draught: float = 2.5
    marks: list[str] = []
    more: str | None = None


class Judged(HumanResponseEvent):
    depth: int = Field(gt=0)
    port: Annotated[str, BeforeValidator(str)]
    yes: bool
    other: str = Field(validation_alias="another")

    @field_validator("yes", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return value == "aye"


class Rewritten(HumanResponseEvent):
    yes: bool

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return {"yes": True}


class Made(HumanResponseEvent):
    yes: bool

    def __init__(self, **data: Any) -> None:
        super().__init__(**{"yes": True, **data})


def test_types_and_what_is_needed() -> None:
    assert answer_fields(Plain) == {
        "port": ("string", True),
        "depth": ("integer", True),
        "draught": ("number", False),
        "marks": ("array", False),
        "more": ("", False),
    }
    assert needed(answer_fields(Plain), {"port": "Emden"}) == (
        "needs depth (integer); may have draught (number), marks (array), more"
    )
    assert unfit(answer_fields(Plain), {"port": "Emden", "depth": "5", "extra": 1}) == []
    assert unfit(answer_fields(Plain), {"depth": 0.5}) == ["port is missing", "depth has to be an integer, and is 0.5"]


def test_nothing_is_told_of_fields_that_the_class_changes() -> None:
    assert answer_fields(Judged) == {"depth": ("", True), "port": ("", True), "yes": ("", True)}
    assert answer_fields(Rewritten) == answer_fields(Made) == answer_fields(HumanResponseEvent) == {}


def test_no_class_is_kept() -> None:
    def made() -> ref[type]:
        class Local(HumanResponseEvent):
            yes: bool

        answer_fields(Local)
        return ref(Local)

    known = made()
    gc.collect()
    assert known() is None

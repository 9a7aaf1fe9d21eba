"""Exceptions come back from records and snapshots with their class, arguments and attributes, or with their text."""

from pathlib import Path
from typing import Any

import pytest

from batonflow.values.types import dump_exception, load_exception
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from batonflow.workflow_core.events import StepFailedEvent, WorkflowFailedEvent
from tests.workflow_core.flows import until


class Declined(Exception):
    """Has an ``__init__`` that takes something else than a text."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.details = {"reason": reason}

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.details['reason']}"


class Answered(Exception):
    """Carries what cannot be written."""

    def __init__(self, response: Any) -> None:
        super().__init__("answered")
        self.response = response


class Numbered(OSError):
    """Has what it carries where only the class of C finds it."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "numbered")


def noted(error: Exception) -> Exception:
    error.add_note("in the harbour")
    return error


def test_the_end_of_a_stream_shows_nothing_of_what_an_exception_carries():
    error = Declined(402, reason="no funds")
    event = WorkflowFailedEvent(step_name="pay", exception=error)
    shown = event.model_dump(mode="json")["exception"]
    assert shown.keys() == {"exception_type", "exception_message"}
    assert shown["exception_message"] == str(error)


@pytest.mark.parametrize("error", [Answered(object()), Numbered(5)], ids=repr)
def test_an_exception_that_its_parts_do_not_make_is_written_as_its_text(error: Exception):
    told = dump_exception(error)
    assert told.keys() == {"exception_type", "exception_message"}
    assert str(error) in str(load_exception(told))


def test_data_set_no_attribute_of_an_exception_that_python_made():
    told = dump_exception(Declined(402, reason="a"))
    told["exception_attributes"]["__class__"] = told["exception_attributes"]["__dict__"] = "b"
    assert vars(load_exception(told)) == {"code": 402, "details": {"reason": "a"}}


async def test_an_exception_is_the_same_for_its_handler_after_a_restart(tmp_path: Path):
    class Pays(Workflow):
        @step
        async def pay(self, ev: StartEvent) -> StopEvent:
            raise Declined(402, reason="no funds")

        @catch_error
        async def refused(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
            assert isinstance(ev.exception, Declined)
            await ctx.wait_for_event(HumanResponseEvent, timeout=None)
            return StopEvent(result=[str(ev.exception), *vars(ev.exception).values()])

    store = SQLiteStore(tmp_path / "runs.db")
    handler = Pays(store=store, timeout=None).run(run_id="r")
    await until(lambda: handler.is_waiting)
    await handler.interrupt()
    again = Pays(store=store, timeout=None).resume("r")
    await until(lambda: again.is_waiting)
    again.ctx.send_event(HumanResponseEvent())
    assert await again == ["declined with 402: no funds", 402, {"reason": "no funds"}]
    await store.aclose()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a"), ValueError(), ValueError("a", 1), KeyError("k"), FileNotFoundError(2, "none", "/x"),
        Declined(402, reason="no funds"), noted(ValueError("a")),
    ],
    ids=repr,
)  # fmt: skip
def test_an_exception_comes_back_with_its_class_and_its_arguments(error: Exception):
    again = load_exception(dump_exception(error))
    assert type(again) is type(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
    assert str(again) == str(error)

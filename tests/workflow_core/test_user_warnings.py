"""Warnings of the library point at the line of the user's program that they are about."""

import gc
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from pydantic import BaseModel

from batonflow import AgentWorkflow, FunctionAgent, ScriptedLLM
from batonflow.tools import ToolMetadata
from batonflow.workflow_core import Context, Event, MemoryStore, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.retry_policy import ConstantDelayRetryPolicy

PACKAGES = Path(__file__).resolve().parents[2]


class Flow(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("memory", lambda: None)
        return StopEvent()


async def hides_a_method() -> None:
    class Query(Event):
        pass

    Query(items=[1])  # here


async def leaves_a_value_out() -> None:
    flow = Flow()
    handler = flow.run()
    await handler
    handler.ctx.to_dict()  # here


async def uses_an_earlier_policy() -> None:
    ConstantDelayRetryPolicy(1)  # here


async def uses_an_earlier_form() -> None:
    ToolMetadata("It waits.", name="wait").to_openai_function()  # here


async def misspells_an_option() -> None:
    agent = FunctionAgent(llm=ScriptedLLM(["Done."]))
    await agent.run("Go.", max_iteration=3)  # here


async def names_a_stranger() -> None:
    agents = [FunctionAgent(name="one", llm=ScriptedLLM(["Done."]), can_handoff_to=["nobody"])]
    AgentWorkflow(agents=agents, root_agent="one")  # here


async def reads_an_answer_of_another_form() -> None:
    class Tides(BaseModel):
        high: int

    output = await FunctionAgent(llm=ScriptedLLM(["Done."])).run("Go.")
    output.structured_response = {"low": 1}
    output.get_pydantic_model(Tides)  # here


class Changes(Workflow):
    @step  # here
    async def go(self, ev: StartEvent) -> StopEvent:
        self.seen = ev
        return StopEvent()


async def changes_an_attribute() -> None:
    await Changes(store=MemoryStore()).run()


class Copies(Workflow):
    @step  # here
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        (await ctx.store.get_state()).seen = 1
        return StopEvent()


async def changes_a_copy() -> None:
    await Copies().run()


@pytest.mark.parametrize(
    ("program", "within"),
    [
        (hides_a_method, None),
        (leaves_a_value_out, None),
        (uses_an_earlier_policy, None),
        (uses_an_earlier_form, None),
        (misspells_an_option, None),
        (names_a_stranger, None),
        (reads_an_answer_of_another_form, None),
        (changes_an_attribute, Changes),
        (changes_a_copy, Copies),
    ],
)
async def test_a_warning_points_at_the_line_of_the_program(program: Callable[[], Any], within: type | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await program()
    lines, first = inspect.getsourcelines(within or program)
    [line] = [first + number for number, text in enumerate(lines) if "# here" in text]
    assert [(Path(one.filename).name, one.lineno) for one in caught] == [("test_user_warnings.py", line)]


async def test_a_class_that_was_warned_of_is_not_kept() -> None:
    def made() -> ref[type]:
        class Query(Event):
            pass

        with pytest.warns(UserWarning, match="is a method"):
            Query(items=[1])
        return ref(Query)

    known = made()
    gc.collect()
    assert known() is None


def test_no_other_way_to_warn_is_used() -> None:
    """All warnings go through the one function that looks for the user's line."""
    files = [file for name in ("agents", "llms", "tools", "workflow_core") for file in (PACKAGES / name).rglob("*.py")]
    assert [file for file in files if "warnings.warn(" in file.read_text() and file.name != "user_warnings.py"] == []

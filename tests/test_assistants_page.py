"""The page for assistants quotes the errors to which mistakes lead, and llms.txt names each page."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import batonflow
from batonflow import (
    AgentWorkflow,
    Budget,
    Event,
    FunctionAgent,
    ScriptedLLM,
    StartEvent,
    StopEvent,
    Workflow,
    step,
    tool,
)
from batonflow.llms import tool_call

PACKAGE = Path(batonflow.__file__).parent
PAGE = (PACKAGE / "AGENTS.md").read_text()
INDEX = (PACKAGE / "llms.txt").read_text()
QUOTED = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)


def scripted(*turns: Any, **options: Any) -> FunctionAgent:
    return FunctionAgent(llm=ScriptedLLM(turns), **options)


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def look() -> str:
    """Look."""
    return "nothing"


def without_a_stop_event() -> None:
    class Part(Event):
        pass

    class Endless(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Part:
            return Part()

    Endless().run_sync()


def without_annotation() -> None:
    class Untyped(Workflow):
        @step
        async def begin(self, ev: StartEvent):
            return StopEvent()


def with_a_hidden_step() -> None:
    class Mine(FunctionAgent):
        async def call_tool(self, ctx, ev):
            return await super().call_tool(ctx, ev)


def with_another_input() -> None:
    async def twice() -> None:
        agent = scripted("Yes.", "No.", store="memory:")
        await agent.run("One.", run_id="a")
        await agent.run("Two.", run_id="a")

    asyncio.run(twice())


def with_a_slow_step() -> None:
    class Slow(Workflow):
        @step
        async def wait(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(60)
            return StopEvent()

    Slow(timeout=0.01).run_sync()


MISTAKES: dict[str, Callable[[], Any]] = {
    "needs a running event loop": lambda: scripted("Yes.").run("?"),
    "has no option system_promt": lambda: scripted(system_promt="You help."),
    "run() ignores unknown option": lambda: scripted("Yes.").run_sync("?", max_iteration=3),
    "names no model": lambda: FunctionAgent(llm="gpt-5.6"),
    "The script has": lambda: scripted().run_sync("?"),
    "turns is a list of turns": lambda: ScriptedLLM("Hello."),
    "must have a description of their own in a team": lambda: AgentWorkflow(
        agents=[scripted(name="a"), scripted(name="b")], root_agent="a"
    ),
    "needs deps of type": lambda: scripted("Yes.", deps_type=dict).run_sync("?"),
    "hides a step: decorate it with @step": with_a_hidden_step,
    "must be annotated with their type": without_annotation,
    "must be returned by any step": without_a_stop_event,
    "Operation timed out after": with_a_slow_step,
    "waiting: call_tool for ApprovalResponse": lambda: scripted(
        tool_call("pay", amount=1), tools=[pay], timeout=0.2
    ).run_sync("Pay."),
    "Max iterations of": lambda: scripted(*[tool_call("look")] * 3, tools=[look]).run_sync("?", max_iterations=2),
    "the price of the model": lambda: scripted("Yes.").run_sync("?", budget=Budget(max_cost=1)),
    "was started with other input": with_another_input,
}


def test_each_row_is_tried() -> None:
    assert list(MISTAKES) == QUOTED


@pytest.mark.parametrize("quoted", MISTAKES)
def test_a_mistake_leads_to_the_quoted_error(quoted: str) -> None:
    with pytest.raises(Exception, match=re.escape(quoted)):  # warnings are errors here
        MISTAKES[quoted]()


def test_the_stream_does_not_raise_and_awaiting_does() -> None:
    async def run() -> None:
        handler = scripted(ConnectionError("dead")).run("?")
        assert [type(event).__name__ async for event in handler.stream_events()][-1] == "WorkflowFailedEvent"
        with pytest.raises(ConnectionError):
            await handler

    asyncio.run(run())


def test_the_index_has_the_usual_form_and_names_each_page() -> None:
    title, _, summary, *rest = INDEX.splitlines()
    assert title == "# batonflow"
    assert summary.startswith("> ")
    assert [line for line in rest if line.startswith("#") and not line.startswith("## ")] == []
    docs = PACKAGE.parent / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.glob("*/*.md")}
    assert set(re.findall(r"\(\.\./docs/([^)]+)\)", INDEX)) == pages

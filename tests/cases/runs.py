"""Workflows and agents whose runs become cases."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batonflow import (
    Context,
    Event,
    FunctionAgent,
    HumanResponseEvent,
    InputRequiredEvent,
    ScriptedLLM,
    StartEvent,
    StopEvent,
    Workflow,
    step,
    tool,
)  # fmt: skip
from batonflow.cases import Case, case_of_run
from batonflow.llms import tool_call
from batonflow.workflow_core import MemoryStore

__all__ = ["Ask", "Charges", "Part", "agent_of", "depth", "done", "pay", "saved"]

done: list[str] = []
"""The effects outside, in their order."""


def depth(harbour: str) -> str:
    """Measure the depth."""
    done.append(f"measured {harbour}")
    return "eight metres"


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    done.append(f"paid {amount}")
    return f"paid {amount}"


def agent_of(
    *turns: Any, prompt: str = "You know harbours.", tools: Any = (depth, pay), **options: Any
) -> FunctionAgent:
    """An agent with a script in place of a model."""
    script = turns or (tool_call("depth", harbour="Emden"), "Eight metres.")
    options = {"workflow_name": "harbours", **options}
    return FunctionAgent(llm=ScriptedLLM(list(script)), system_prompt=prompt, tools=list(tools), **options)


class Part(Event):
    number: int


class Charges(Workflow):
    """Effects in deliveries that go on at the same time."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Part | None:
        for number in range(3):
            ctx.send_event(Part(number=number))
        return None

    @step
    async def charge(self, ctx: Context, ev: Part) -> StopEvent | None:
        await asyncio.sleep(0.01 * (3 - ev.number))
        receipt = await ctx.effect("charge", self.pay, ev.number)
        noted = await ctx.once("note", self.note, ev.number)
        await ctx.store.set(f"receipts.{ev.number}", f"{receipt}, {noted}")
        return None if ctx.collect_events(ev, [Part] * 3) is None else StopEvent(result=await self.receipts(ctx))

    async def pay(self, number: int) -> str:
        done.append(f"charged {number}")
        return f"receipt {number}"

    def note(self, number: int) -> str:
        done.append(f"noted {number}")
        return f"note {number}"

    async def receipts(self, ctx: Context) -> Any:
        return await ctx.store.get("receipts")


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    who: str
    yes: bool


class Ask(Workflow):
    """Questions to people: with a wait, with a type, and an event without a question."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text="Sail?"), requirements={"who": "ann"})
        number = await ctx.ask("How many?", int)
        part = await ctx.wait_for_event(Part)
        return StopEvent(result=[answer.yes, number, part.number])


async def saved(
    workflow: Workflow, folder: Path, *, answer: Callable[[Any], Any] | None = None, **options: Any
) -> Case:
    """Run a workflow, save the run as a case, and read the case from its file."""
    store = MemoryStore()
    handler = Workflow.with_store(workflow, store).run(run_id="run-1", **options)
    if answer is not None:
        await answer(handler)
    await handler
    done.clear()
    return Case.read((await case_of_run(store, "run-1")).write(folder))

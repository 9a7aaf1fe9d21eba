"""Workflows that the tests serve."""

import asyncio

from pydantic import BaseModel

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)


class Begin(StartEvent):
    name: str
    times: int = 1


class Progress(Event):
    number: int


class Unseen(Event):
    """Only ever streamed."""

    text: str


class Asked(InputRequiredEvent):
    text: str


class Answered(HumanResponseEvent):
    text: str
    loud: bool = False


class Nudge(HumanResponseEvent):
    text: str


class Greet(Workflow):
    @step
    async def greet(self, ctx: Context, ev: Begin) -> StopEvent:
        for number in range(ev.times):
            ctx.write_event_to_stream(Progress(number=number))
        await ctx.store.set("greeted", ev.name)
        return StopEvent(result=f"Hello, {ev.name}!")


class Plain(Workflow):
    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=dict(ev.items()))


class Fail(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("the kettle is empty")


class Slow(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Unseen(text="begun"))
        await asyncio.sleep(ev.get("seconds", 3600))
        return StopEvent(result="slept")


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("user", {"name": "nobody"})
        answer = await ctx.wait_for_event(Answered, waiter_event=Asked(text="Who?"), timeout=None)
        await ctx.store.set("user.name", answer.text)
        return StopEvent(result=answer.text)


class Tally(BaseModel):
    count: int = 0
    of: dict[str, int] = {}


class Count(Workflow):
    """Asks, and has a state with a class of its own."""

    @step
    async def count(self, ctx: Context[Tally], ev: StartEvent) -> StopEvent:
        await ctx.store.set("count", 1)
        await ctx.wait_for_event(Answered, waiter_event=Asked(text="More?"), timeout=None)
        return StopEvent(result=(await ctx.store.get_state()).count)


class Steered(Workflow):
    """Two steps that take the same event."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("begun", True)

    @step
    async def left(self, ev: Nudge) -> StopEvent:
        return StopEvent(result=f"left {ev.text}")

    @step
    async def right(self, ctx: Context, ev: Nudge) -> StopEvent | None:
        return StopEvent(result=f"right {ev.text}") if ev.text == "right" else None

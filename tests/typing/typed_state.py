"""A workflow with typed state, as a type checker in strict mode sees it."""

import asyncio
from typing import Annotated, assert_type

from pydantic import BaseModel

from batonflow.workflow_core import Context, Workflow, catch_error, step
from batonflow.workflow_core.collect import Collect, Take
from batonflow.workflow_core.context import JsonSerializer
from batonflow.workflow_core.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)
from batonflow.workflow_core.handler import WorkflowHandler
from batonflow.workflow_core.resource import Resource


class Tally(BaseModel):
    words: int = 0


class Line(Event):
    text: str


class Counted(Event):
    words: int


class Answer(HumanResponseEvent):
    text: str


class Total(StopEvent):
    words: int


class Dictionary:
    def knows(self, word: str) -> bool:
        return word.isalpha()


def open_dictionary() -> Dictionary:
    return Dictionary()


class CountWords(Workflow):
    @step
    async def split(self, ctx: Context[Tally], ev: StartEvent) -> list[Line]:
        await ctx.store.set("words", 0)
        return [Line(text=line) for line in str(ev.get("text", "")).splitlines()]

    @step(num_workers=2)
    async def count(
        self, ctx: Context[Tally], ev: Line, words: Annotated[Dictionary, Resource(open_dictionary)]
    ) -> Counted:
        found = sum(words.knows(word) for word in ev.text.split())
        async with ctx.store.edit_state() as state:
            assert_type(state, Tally)
            state.words += found
        ctx.write_event_to_stream(Counted(words=found))
        assert_type(ctx.retry_info().retry_number, int)
        return Counted(words=found)

    @step
    async def report(
        self, ctx: Context[Tally], counts: Annotated[list[Counted], Collect(Take(10))]
    ) -> Total | InputRequiredEvent | None:
        if not counts:
            answer = await ctx.wait_for_event(Answer, requirements={"text": "yes"}, timeout=60)
            assert_type(answer, Answer)
            ctx.send_event(Counted(words=len(answer.text)), step="report")
            return None
        state = await ctx.store.get_state()
        assert_type(state, Tally)
        return Total(words=state.words)

    @catch_error(for_steps=["count"], max_recoveries=2)
    async def rescue(self, ev: StepFailedEvent) -> Counted:
        assert_type(ev.step_name, str)
        return Counted(words=0)


class Gather(Workflow):
    @step
    def begin(self, ctx: Context, ev: StartEvent) -> Counted:
        return Counted(words=1)

    @step
    async def gather(self, ctx: Context, ev: Counted) -> StopEvent | None:
        events = ctx.collect_events(ev, [Counted])
        assert_type(events, list[Event] | None)
        return None if events is None else StopEvent(result=len(events))


async def main() -> None:
    workflow = CountWords(timeout=10, num_concurrent_runs=2)
    handler = workflow.run(text="a relay\nteam's baton")
    assert_type(handler, WorkflowHandler)
    assert_type(handler.run_id, str)
    async for event in handler.stream_events():
        assert_type(event, Event)
        if isinstance(event, InputRequiredEvent):
            await handler.send_event(Answer(text="yes"))
    total = await handler
    assert isinstance(total, Total)
    print(total.words)

    snapshot = handler.ctx.to_dict(JsonSerializer())
    restored = Context.from_dict(workflow, snapshot)
    print(await Gather().run(ctx=None), restored.is_running)
    await handler.cancel_run(timeout=1.0)
    assert_type(handler.is_done(), bool)


if __name__ == "__main__":
    asyncio.run(main())

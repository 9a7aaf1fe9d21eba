"""Results of workflows, as type checkers see them. A line with ``# E`` at its end is an error in pyright and mypy."""

import asyncio
from typing import Any, assert_type

from batonflow import Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step


class Question(StartEvent):
    topic: str


class Total(StopEvent):
    words: int


class Count(Workflow[Total]):
    @step
    async def count(self, ev: Question) -> Total:
        return Total(words=len(ev.topic))


class Words(Workflow[int]):
    @step
    async def count(self, ev: Question) -> StopEvent:
        return StopEvent(result=len(ev.topic))


class Plain(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="plain")


async def main() -> None:
    handler = Count().run(Question(topic="tides"))
    assert_type(handler, WorkflowHandler[Total])
    assert isinstance(handler, WorkflowHandler)
    total = await handler
    assert_type(total, Total)
    assert isinstance(total, Total)
    assert_type(total.words, int)
    assert isinstance(total.words, int)

    number = await Words().run(topic="tides")
    assert_type(number, int)
    assert isinstance(number, int)

    anything = await Plain().run()
    assert_type(anything, Any)
    assert isinstance(anything, str)

    async for event in Count().run(topic="tides").stream_events():
        assert_type(event, Event)
        assert isinstance(event, Event)


def at_once() -> None:
    total = Count().run_sync(Question(topic="tides"))
    assert_type(total, Total)
    assert isinstance(total, Total)
    number = Words().run_sync(start_event=Question(topic="tides"))
    assert_type(number, int)
    assert isinstance(number, int)


async def stored() -> None:
    kept = Count(store="memory:")
    total = await kept.run(Question(topic="sea"), run_id="one")
    again = await kept.resume("one")
    assert_type(again, Total)
    assert isinstance(again, Total)
    assert again.words == total.words
    handlers = await kept.recover()
    assert_type(handlers, list[WorkflowHandler[Total]])
    assert isinstance(handlers, list)


async def refused() -> None:
    Count().run(Question(subject="tides"))  # E
    Count().run(Question(topic=3))  # E

    wrong: str = await Words().run(topic="tides")  # E
    handler: WorkflowHandler[Total] = Words().run(topic="tides")  # E
    print(wrong, handler)


def widened(flow: Count) -> Workflow[StopEvent]:
    return flow


if __name__ == "__main__":
    asyncio.run(main())
    at_once()
    asyncio.run(stored())

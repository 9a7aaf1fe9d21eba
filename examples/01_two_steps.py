"""The smallest workflow with an event of its own: two steps, one event between them."""

import asyncio

from batonflow import Event, StartEvent, StopEvent, Workflow, step


class Cleaned(Event):
    words: list[str]


class LongestWord(Workflow):
    @step
    async def clean(self, ev: StartEvent) -> Cleaned:
        return Cleaned(words=[word.strip(".,!?").lower() for word in ev.text.split()])

    @step
    async def choose(self, ev: Cleaned) -> StopEvent:
        return StopEvent(result=max(ev.words, key=len))


async def main() -> None:
    print(await LongestWord(timeout=10).run(text="Spring tides follow the new moon."))


asyncio.run(main())

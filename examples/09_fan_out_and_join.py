"""One event for each part, four workers on them, and a join when all are there: with sent events, and with a list."""

import asyncio

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class Part(Event):
    text: str


class Counted(Event):
    text: str
    words: int


class BySending(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Part | None:
        await ctx.store.set("parts", len(ev.texts))
        for text in ev.texts:
            ctx.send_event(Part(text=text))
        return None

    @step(num_workers=4)
    async def count(self, ctx: Context, ev: Part) -> Counted:
        async with ctx.store.edit_state() as state:
            state["seen"] = state.get("seen", 0) + 1
        return Counted(text=ev.text, words=len(ev.text.split()))

    @step
    async def join(self, ctx: Context, ev: Counted) -> StopEvent | None:
        counted = ctx.collect_events(ev, [Counted] * await ctx.store.get("parts"))
        if counted is None:
            return None
        return StopEvent(result=(sum(part.words for part in counted), await ctx.store.get("seen")))


class ByList(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Part]:
        return [Part(text=text) for text in ev.texts]

    @step(num_workers=4)
    async def count(self, ev: Part) -> Counted:
        return Counted(text=ev.text, words=len(ev.text.split()))

    @step
    async def join(self, parts: list[Counted]) -> StopEvent:
        return StopEvent(result=sum(part.words for part in parts))


async def main() -> None:
    texts = ["the moon pulls", "the sea", "and the earth turns under both"]
    print("by sending:", await BySending(timeout=10).run(texts=texts))
    print("by list:", await ByList(timeout=10).run(texts=texts))


asyncio.run(main())

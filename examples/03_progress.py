"""Steps that tell how far they are: whoever holds the handler reads the stream while the run goes on."""

import asyncio

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class Progress(Event):
    text: str


class Page(Event):
    number: int
    of: int


class Printer(Workflow):
    @step
    async def open(self, ctx: Context, ev: StartEvent) -> Page:
        ctx.write_event_to_stream(Progress(text=f"printing {ev.title!r}"))
        return Page(number=1, of=ev.pages)

    @step
    async def print_page(self, ctx: Context, ev: Page) -> Page | StopEvent:
        await asyncio.sleep(0.01)
        ctx.write_event_to_stream(Progress(text=f"page {ev.number} of {ev.of}"))
        if ev.number == ev.of:
            return StopEvent(result=f"{ev.of} pages")
        return Page(number=ev.number + 1, of=ev.of)


async def main() -> None:
    handler = Printer(timeout=10).run(title="Tide tables", pages=3)
    async for event in handler.stream_events():
        if isinstance(event, Progress):
            print(event.text)
    print("result:", await handler)


asyncio.run(main())

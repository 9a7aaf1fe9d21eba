"""Three steps around a model: what it writes is streamed word by word, and the whole workflow is drawn into a file."""

import asyncio
import tempfile
from pathlib import Path

from models import model_or

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.draw import draw_all_possible_flows


class Prepared(Event):
    prompt: str


class Written(Event):
    text: str


class Said(Event):
    text: str


class Narrator(Workflow):
    @step
    async def prepare(self, ctx: Context, ev: StartEvent) -> Prepared:
        ctx.write_event_to_stream(Said(text="thinking"))
        return Prepared(prompt=f"Tell me about {ev.topic}.")

    @step
    async def write(self, ctx: Context, ev: Prepared) -> Written:
        llm = model_or("Twice a day the sea breathes.")
        text = ""
        async for piece in await llm.astream_complete(ev.prompt):
            ctx.write_event_to_stream(Said(text=(piece.delta or "").strip()))
            text = piece.text
        return Written(text=text)

    @step
    async def finish(self, ev: Written) -> StopEvent:
        return StopEvent(result=ev.text)


async def main() -> None:
    handler = Narrator(timeout=10).run(topic="tides")
    async for event in handler.stream_events():
        if isinstance(event, Said) and event.text:
            print(event.text)
    print("whole:", await handler)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "narrator.html"
        draw_all_possible_flows(Narrator, filename=str(page))
        print("drawn:", "<svg" in page.read_text())


asyncio.run(main())

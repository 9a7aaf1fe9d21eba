"""Deep research: clarify the question, plan topics, search each topic, write a report, and revise it by feedback."""

import asyncio
import sys

from batonflow import LLM, Context, Event, StartEvent, StopEvent, Workflow, llm_from, step


class Question(StartEvent):
    text: str


class Clear(Event):
    question: str


class Plan(Event):
    question: str
    topics: list[str]


class Draft(Event):
    question: str
    notes: list[str]
    feedback: tuple[str, ...] = ()


class Report(StopEvent):
    text: str
    revisions: int


class DeepResearch(Workflow[Report]):
    def __init__(self, llm: LLM, store: str | None = None) -> None:
        super().__init__(timeout=None, store=store)
        self._llm = llm

    async def answer(self, prompt: str) -> str:
        return (await self._llm.acomplete(prompt)).text.strip()

    async def search(self, topic: str) -> str:
        """Find facts on a topic; override it with a search of your own."""
        return await self.answer(f"State facts on {topic}")

    @step
    async def clarify(self, ctx: Context, ev: Question) -> Clear:
        unclear = await ctx.once("unclear", self.answer, f"Ask one question if this is unclear, else say OK: {ev.text}")
        if unclear == "OK":
            return Clear(question=ev.text)
        return Clear(question=f"{ev.text} ({unclear} {await ctx.ask(unclear)})")

    @step
    async def plan(self, ev: Clear) -> Plan:
        lines = await self.answer(f"Name the topics to search for, one a line: {ev.question}")
        return Plan(question=ev.question, topics=[line.strip("- ") for line in lines.splitlines() if line.strip()])

    @step
    async def search_all(self, ctx: Context, ev: Plan) -> Draft:
        found = await ctx.map(self.search, ev.topics, workers=2, timeout=120, on_error="collect")
        notes = [f"{topic}: {note}" for topic, note in zip(ev.topics, found, strict=True) if isinstance(note, str)]
        return Draft(question=ev.question, notes=notes)

    @step
    async def write(self, ctx: Context, ev: Draft) -> Draft | Report:
        prompt = "\n".join([f"Write a report on {ev.question}", *(f"Heed: {one}" for one in ev.feedback), *ev.notes])
        text = await ctx.once("text", self.answer, prompt)
        if feedback := await ctx.ask(f"{text}\n\nWhat should change (nothing: leave it empty)?"):
            return Draft(question=ev.question, notes=ev.notes, feedback=(*ev.feedback, feedback))
        return Report(text=text, revisions=len(ev.feedback))


async def main(flow: DeepResearch, run_id: str, question: str) -> None:
    handler = flow.run(start_event=Question(text=question), run_id=run_id)
    async for request in handler.inputs():
        request.respond(await asyncio.to_thread(input, f"{request.event.prefix}\n> "))
    print((await handler).text)


if __name__ == "__main__":
    asyncio.run(main(DeepResearch(llm_from(sys.argv[1]), store="research.db"), *sys.argv[2:4]))

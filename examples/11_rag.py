"""Retrieve, rerank, generate: three steps over a retriever of your own; the result is a stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from models import model_or

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step

TEXTS = ["The moon pulls the sea.", "Bread needs yeast.", "The sea rises twice a day.", "Salt keeps fish."]


@dataclass
class Node:
    text: str
    score: float


class WordIndex:
    """Finds texts that share words with a question."""

    async def aretrieve(self, question: str) -> list[Node]:
        wanted = set(question.lower().strip("?").split())
        return [Node(text, len(wanted & set(text.lower().strip(".").split()))) for text in TEXTS]


class Retrieved(Event):
    nodes: list[Node]


class Reranked(Event):
    nodes: list[Node]


class AskTheTexts(Workflow):
    @step
    async def retrieve(self, ctx: Context, ev: StartEvent) -> Retrieved:
        await ctx.store.set("question", ev.question)
        return Retrieved(nodes=await ev.index.aretrieve(ev.question))

    @step
    async def rerank(self, ev: Retrieved) -> Reranked:
        return Reranked(nodes=sorted(ev.nodes, key=lambda node: -node.score)[:2])

    @step
    async def generate(self, ctx: Context, ev: Reranked) -> StopEvent:
        question = await ctx.store.get("question")
        facts = " ".join(node.text for node in ev.nodes)
        llm = model_or(f"From what I read: {facts}")

        async def words() -> AsyncIterator[str]:
            async for piece in await llm.astream_complete(f"{facts}\n\n{question}"):
                yield piece.delta or ""

        return StopEvent(result=words())


async def main() -> None:
    answer = await AskTheTexts(timeout=10).run(question="When does the sea move?", index=WordIndex())
    async for word in answer:
        print(word, end="", flush=True)
    print()


asyncio.run(main())

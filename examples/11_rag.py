"""Retrieve, rerank, generate: three steps over an index of documents; the result is a stream."""

import asyncio
from collections.abc import AsyncIterator

from models import model_or

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.retrieval import Document, LLMRerank, NodeWithScore, VectorStoreIndex

TEXTS = ["The moon pulls the sea.", "Bread needs yeast.", "The sea rises twice a day.", "Salt keeps fish."]


class Asked(StartEvent):
    question: str


class Retrieved(Event):
    nodes: list[NodeWithScore]


class Reranked(Event):
    nodes: list[NodeWithScore]


class AskTheTexts(Workflow):
    def __init__(self, index: VectorStoreIndex) -> None:
        super().__init__(timeout=10)
        self.index = index

    @step
    async def retrieve(self, ctx: Context, ev: Asked) -> Retrieved:
        await ctx.store.set("question", ev.question)
        return Retrieved(nodes=await self.index.as_retriever(similarity_top_k=3).aretrieve(ev.question))

    @step
    async def rerank(self, ctx: Context, ev: Retrieved) -> Reranked:
        ranker = LLMRerank(llm=model_or("Doc: 1, Relevance: 9\nDoc: 2, Relevance: 5"), top_n=2)
        question = await ctx.store.get("question")
        return Reranked(nodes=await ranker.apostprocess_nodes(ev.nodes, query_str=question))

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
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS])
    answer = await AskTheTexts(index).run(question="When does the sea move?")
    async for word in answer:
        print(word, end="", flush=True)
    print()


asyncio.run(main())

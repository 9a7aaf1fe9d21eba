"""A process that asks a stored query and hangs in one of its requests: ``killed_query.py FOLDER HANG_AT FORM``."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from batonflow import ScriptedLLM, StartEvent, StopEvent, Workflow, step
from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval.query_engine import RetrieverQueryEngine
from batonflow.retrieval.rerank import LLMRerank

FOLDER, HANG_AT, FORM = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as file:
        file.write(f"{line}\n")


class Notes(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        note("retrieve")
        texts = ("Bread needs yeast.", "The moon pulls the sea.")
        return [NodeWithScore(node=TextNode(text=text, id_=f"n{at}"), score=0.5) for at, text in enumerate(texts, 1)]


async def turn(request: Any) -> str:
    text = str(request.messages[-1].content)
    name = "rerank" if "Relevance" in text else "refine" if "<answer>" in text else "answer"
    if name == HANG_AT:
        note(f"{name} hangs")
        await asyncio.sleep(60)
    note(name)
    return "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 3" if name == "rerank" else f"text of {name}"


class Outer(Workflow):
    """A workflow with the query in a step."""

    def __init__(self, engine: RetrieverQueryEngine, **options: Any) -> None:
        super().__init__(**options)
        self.engine = engine

    @step
    async def ask(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await self.engine.aquery("What moves the sea?"))


async def main() -> None:
    llm = ScriptedLLM([turn] * 9)
    engine = RetrieverQueryEngine.from_args(
        Notes(), llm, node_postprocessors=[LLMRerank(llm=llm)], response_mode="refine", streaming=FORM == "streaming"
    )
    if FORM == "nested":
        response = await Outer(engine, store=FOLDER / "runs.db").run(run_id="outer-1")
    else:
        response = await engine.run("What moves the sea?", run_id="sea-1", store=FOLDER / "runs.db")
    note(f"{response} from {' '.join(found.node.node_id for found in response.source_nodes)}")


asyncio.run(main())

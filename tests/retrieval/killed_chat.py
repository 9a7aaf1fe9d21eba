"""A process that answers a stored message and hangs in one of its requests: ``killed_chat.py FOLDER HANG_AT FORM``."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from batonflow import ScriptedLLM, StartEvent, StopEvent, Workflow, step
from batonflow.agents.memory import ChatMemoryBuffer, SQLiteChatStore
from batonflow.llms import ChatMessage
from batonflow.nodes import BaseRetriever, NodeWithScore, QueryBundle, TextNode
from batonflow.retrieval import CondensePlusContextChatEngine

FOLDER, HANG_AT, FORM = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as file:
        file.write(f"{line}\n")


class Notes(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        note(f"retrieve {query_bundle.query_str}")
        return [NodeWithScore(node=TextNode(text="The moon pulls the sea."), score=0.5)]


async def turn(request: Any) -> str:
    name = "condense" if "<conversation>" in str(request.messages[-1].content) else "answer"
    if name == HANG_AT:
        note(f"{name} hangs")
        await asyncio.sleep(60)
    note(name)
    return "What pulls the sea?" if name == "condense" else "The moon does."


class Outer(Workflow):
    """A workflow with the message in a step."""

    def __init__(self, engine: CondensePlusContextChatEngine, **options: Any) -> None:
        super().__init__(**options)
        self.engine = engine

    @step
    async def ask(self, ev: StartEvent) -> StopEvent:
        answer = await self.engine.achat("And what pulls it?")
        if HANG_AT == "after":
            note("after hangs")
            await asyncio.sleep(60)
        return StopEvent(result=answer)


async def main() -> None:
    memory = ChatMemoryBuffer.from_defaults(chat_store=SQLiteChatStore(FOLDER / "memory.db"))
    if not memory.get_all():
        memory.put(ChatMessage("Tell me of the sea.", role="user"))
    engine = CondensePlusContextChatEngine.from_defaults(Notes(), ScriptedLLM([turn] * 9), memory=memory)
    if FORM == "nested":
        answer = await Outer(engine, store=FOLDER / "runs.db").run(run_id="outer-1")
    else:
        answer = await engine.run("And what pulls it?", run_id="sea-1", store=FOLDER / "runs.db")
    note(f"{answer} from {len(answer.source_nodes)}, {len(memory.get_all())} messages")


asyncio.run(main())

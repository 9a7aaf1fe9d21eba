"""Turns of an agent that calls a tool, kept in a SQLite file by two libraries; run by `durable.py`.

    python benchmarks/durable_turns.py ENGINE FOLDER BEFORE

BEFORE is how many messages the conversation has already. Prints as JSON the seconds of CPU of one turn, all threads of
the process, and what it adds to the file.
"""

import asyncio
import json
import random
import string
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

TURNS = 20
SAMPLES = 3
CHARACTERS = 120


def said(number: int) -> str:
    """What stands in a message: something that cannot be compressed to nothing."""
    return "".join(random.Random(number).choices(string.ascii_lowercase + " ", k=CHARACTERS))


def calls_of(number: int) -> list[tuple[str, str, dict[str, int]]]:
    return [(f"c{number}", "add", {"x": number})]


async def add(x: int) -> int:
    """Add one."""
    return x + 1


def batonflow(path: Path | None, before: int) -> Callable[[], Awaitable[str]]:
    from fake_model import model

    from batonflow.agents import FunctionAgent
    from batonflow.llms import ChatMessage

    async def plan(messages: Sequence[ChatMessage]) -> AsyncIterator[tuple[str, Any]]:
        done = sum(1 for message in messages if message.role == "tool")
        yield ("calls", calls_of(done)) if done < TURNS else ("delta", "done")

    history = [ChatMessage(said(number), role=("user", "assistant")[number % 2]) for number in range(before)]
    agent = FunctionAgent(name="Agent", llm=model(plan), tools=[add], store=path, timeout=None)

    async def once() -> str:
        answer = str(await agent.run(user_msg="go", chat_history=history, max_iterations=TURNS + 1))
        if agent.run_store is not None:
            await agent.run_store.aclose()
        return answer

    return once


def langgraph(path: Path | None, before: int) -> Callable[[], Awaitable[str]]:
    import warnings

    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.prebuilt import create_react_agent

    class Planned(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "planned"

        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> Any:
            done = sum(1 for message in messages if isinstance(message, ToolMessage))
            calls = [{"id": i, "name": n, "args": a} for i, n, a in calls_of(done)] if done < TURNS else []
            message = AIMessage(content="" if calls else "done", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

    warnings.simplefilter("ignore")
    history = [(HumanMessage, AIMessage)[number % 2](content=said(number)) for number in range(before)]

    async def once() -> str:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            graph: Any = create_react_agent(Planned(), [tool(add)], checkpointer=saver)
            config = {"configurable": {"thread_id": "one"}, "recursion_limit": 10 * TURNS}
            found = await graph.ainvoke({"messages": [*history, HumanMessage(content="go")]}, config)
        return found["messages"][-1].content

    return once


ENGINES: dict[str, tuple[Callable[..., Any], bool]] = {
    "batonflow, without a store": (batonflow, False),
    "batonflow": (batonflow, True),
    "LangGraph, async": (langgraph, True),
}


async def measure(engine: str, folder: Path, before: int) -> dict[str, float]:
    """Runs of many turns, each in a file of its own, after one that is not counted; the best of them."""
    make, kept = ENGINES[engine]
    found: list[float] = []
    for sample in range(SAMPLES + 1):
        once = make(folder / f"{sample}.db" if kept else None, before)
        began = time.process_time()
        assert await once() == "done"
        found.append((time.process_time() - began) / TURNS)
    return {"cpu": min(found[1:]), "bytes": _bytes_of(folder) / (SAMPLES + 1) / TURNS}


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.db*"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))

"""A process that answers messages of sessions; it is told each by a line, and several processes share a store."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from batonflow.agents import FunctionAgent
from batonflow.llms import ScriptedLLM
from tests.promises.crash.stores import store_in

SECONDS_TO_THINK = 0.01


async def answer(request: Any) -> str:
    """Answer with the number of messages before, and the message."""
    await asyncio.sleep(SECONDS_TO_THINK)
    return f"{len(request.messages) - 1} {request.messages[-1].content}"


async def reply(agent: FunctionAgent[Any, Any], session: str, request_id: str, text: str) -> None:
    """Answer one message."""
    try:
        output = await agent.run(text, session=session, request_id=request_id, if_busy="wait")
        said = {"id": request_id, "answer": str(output)}
    except Exception as error:  # noqa: BLE001 - the test prints it
        said = {"id": request_id, "error": repr(error)}
    print(json.dumps(said), flush=True)


async def work(folder: Path) -> None:
    store = store_in(folder)
    agent = FunctionAgent(llm=ScriptedLLM([answer] * 10_000), store=store)
    await store.list_runs()  # open
    print("{}", flush=True)
    replies: set[asyncio.Task[None]] = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = asyncio.create_task(reply(agent, *json.loads(line)))
        replies.add(task)
        task.add_done_callback(replies.discard)
    await asyncio.gather(*replies)
    await store.aclose()


def main(folder: str) -> None:
    """One of the processes."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    asyncio.run(work(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])

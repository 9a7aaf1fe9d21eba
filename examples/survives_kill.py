"""The team of `19_team_with_approval.py` in a process that is killed again and again, and still ends as if it were not.

Each time the process is killed (SIGKILL, which nothing can catch), another one runs the same program: the same run id
makes it carry on. What the tools did stands in a file, as what the world saw of it.

    python examples/survives_kill.py        until a process happens to live long enough, which takes up to a minute
    python examples/survives_kill.py 3      at most three kills, then it is left in peace
"""

import asyncio
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from batonflow import AgentWorkflow, FunctionAgent, ToolRetry, tool
from batonflow.llms import ScriptedLLM, tool_call
from batonflow.llms.stream import ChatRequest

WORLD = Path("world.txt")


def seen(line: str) -> None:
    """What happened outside the run, line by line."""
    with WORLD.open("a") as world:
        world.write(f"{line}\n")


@tool(idempotent=True)
async def search(topic: str) -> str:
    """Look up facts about a topic."""
    await asyncio.sleep(0.05)
    if topic != "tides":
        raise ToolRetry("there is only a note on tides")
    return "The moon pulls the sea; high water comes twice a day."


@tool(requires_approval=True)
async def publish(title: str, body: str) -> str:
    """Publish the article."""
    seen(f"published {title!r}")
    await asyncio.sleep(0.05)
    return f"{title!r}, {len(body.split())} words"


def has_seen_anything() -> bool:
    """Whether anything happened outside."""
    return WORLD.exists()


def researches(request: ChatRequest) -> Any:
    """What the researcher's model says goes by the conversation alone, as with a real one."""
    asked = sum(message.role == "tool" for message in request.messages)
    if asked < 2:
        return tool_call("search", topic=("tide", "tides")[asked])
    return tool_call("handoff", to_agent="writer", reason="the facts are there")


def writes(request: ChatRequest) -> Any:
    """The writer's model."""
    told = str(request.messages[-1].content)
    if "words" in told or "it is published" in told:
        return "The article is out."
    return tool_call("publish", title="Tides", body="Twice a day.")


def team() -> AgentWorkflow:
    """The team, as every process builds it."""
    researcher = FunctionAgent(
        name="researcher",
        description="Finds facts.",
        tools=[search],
        can_handoff_to=["writer"],
        llm=ScriptedLLM([researches] * 9, delay=0.01),
    )
    writer = FunctionAgent(
        name="writer", description="Writes.", tools=[publish], llm=ScriptedLLM([writes] * 9, delay=0.01)
    )
    return AgentWorkflow(agents=[researcher, writer], root_agent="researcher", store="runs.db")


async def work() -> None:
    """The program: nothing in it knows that it may be killed."""
    handler = team().run("Write about tides.", run_id="tides-1")
    async for request in handler.approvals():
        if request.reason == "unknown_outcome" and has_seen_anything():
            request.deny("I looked: it is published")
        else:
            request.approve()
    print(await handler)


def main(most: float) -> None:
    """Kill the program at random moments, so many times at most, until one of them lives long enough to finish."""
    dice, kills = random.Random(), 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            process = subprocess.Popen(
                [sys.executable, __file__, "work"], cwd=folder, stdout=subprocess.PIPE, text=True
            )
            try:
                output, _ = process.communicate(timeout=dice.uniform(0.5, 1.0) if kills < most else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
                continue
            break
        print(output.strip())
        print(f"killed {kills} times; the world saw: {(Path(folder) / WORLD).read_text().strip()}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(work()) if "work" in sys.argv else main(float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)

"""The server that benchmarks/server.py measures, on a SQLite file: ours, or LlamaIndex's with the same two workflows.

    python benchmarks/server_program.py batonflow|peer FOLDER PORT       serves
    python benchmarks/server_program.py batonflow|peer FOLDER direct     runs the first one without HTTP, and says
                                                                         how many seconds a run takes

Ours has an agent that talks, too. LlamaIndex's library keeps runs in its server only: without it they are not stored.
"""

import asyncio
import statistics
import sys
import time
from pathlib import Path

import uvicorn

ENGINE, FOLDER, PORT = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

if ENGINE == "batonflow":
    from batonflow import FunctionAgent, ScriptedLLM
    from batonflow.server import WorkflowServer
    from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step

    server = WorkflowServer(store=FOLDER / "runs.db")
    server.add_workflow("talker", FunctionAgent(llm=ScriptedLLM(["tides " * 2000], delay=0.0005)))
else:
    from llama_agents.server import SqliteWorkflowStore, WorkflowServer
    from workflows import Context, Workflow, step
    from workflows.events import Event, StartEvent, StopEvent

    server = WorkflowServer(workflow_store=SqliteWorkflowStore(str(FOLDER / "runs.db")))


class Tick(Event):
    """Says when it was written."""

    number: int
    at: float


class Greeting(Workflow):
    """One step."""

    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        """Answer at once."""
        return StopEvent(result=f"Hello, {ev.name}!")


class Ticking(Workflow):
    """Streams an event again and again."""

    @step
    async def tick(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Write down the time."""
        for number in range(ev.ticks):
            await asyncio.sleep(ev.pause)
            ctx.write_event_to_stream(Tick(number=number, at=time.time()))
        return StopEvent(result=ev.ticks)


async def direct() -> None:
    """Run without a server."""
    kept = {"store": FOLDER / "direct.db"} if ENGINE == "batonflow" else {}
    flow = Greeting(timeout=None, **kept)
    seconds: list[float] = []
    for _ in range(310):
        began = time.perf_counter()
        await flow.run(name="Ann")
        seconds.append(time.perf_counter() - began)
    print(statistics.median(seconds[10:]))


async def main() -> None:
    """Serve until the process is ended."""
    server.add_workflow("greeting", Greeting(timeout=None))
    server.add_workflow("ticking", Ticking(timeout=None))
    config = uvicorn.Config(
        server.app, host="127.0.0.1", port=int(PORT), log_level="error", access_log=False, ws="none"
    )
    await uvicorn.Server(config).serve()


asyncio.run(direct() if PORT == "direct" else main())

"""A program that serves; tests start it and kill it. Arguments: the store, the port, seconds of idle release."""

import asyncio
import sys
from pathlib import Path

from batonflow.server import WorkflowServer
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from tests.server.flows import Ask, Progress


class Counted(Event):
    number: int


class Chain(Workflow):
    """Several steps, each of which writes down that it ran."""

    @step
    async def one(self, ctx: Context, ev: StartEvent) -> Counted:
        ctx.write_event_to_stream(Progress(number=1))
        await asyncio.sleep(0.05)
        return Counted(number=ev.number)

    @step
    async def two(self, ctx: Context, ev: Counted) -> StopEvent:
        ctx.write_event_to_stream(Progress(number=2))
        while not Path(sys.argv[1]).with_suffix(".go").exists():  # noqa: ASYNC110 - until the test lets it
            await asyncio.sleep(0.02)
        return StopEvent(result=ev.number)


async def main() -> None:
    server = WorkflowServer(store=sys.argv[1], idle_timeout=float(sys.argv[3]))
    server.add_workflow("chain", Chain(timeout=None, workflow_name="chain"))
    server.add_workflow("ask", Ask(timeout=None))
    await server.serve(port=int(sys.argv[2]))


if __name__ == "__main__":
    asyncio.run(main())

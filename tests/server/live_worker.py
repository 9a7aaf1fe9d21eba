"""A worker in a process of its own, whose run streams within one step. Arguments: folder, address, schema."""

import asyncio
import sys
import time

from batonflow.durable.stores.postgres import PostgresStore
from batonflow.fleet import Worker
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step

__all__ = ["Said", "Speaks", "main"]


class Said(Event):
    n: int
    at: float


class Speaks(Workflow):
    """Streams events with the times of their creation."""

    @step
    async def speak(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(ev.count):
            ctx.write_event_to_stream(Said(n=n, at=time.time()))
            await asyncio.sleep(ev.pause)
        return StopEvent(result=ev.count)


def main(_: str, address: str, schema: str) -> None:
    """Drive runs until the process is killed."""
    sys.stdin.readline()
    print("at work", flush=True)
    store = PostgresStore(address, schema)
    asyncio.run(Worker(Speaks(timeout=None, workflow_name="speaks"), store=store).run())

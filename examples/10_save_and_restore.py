"""A run that asks a person, is saved into a database, and is answered in another process."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from batonflow import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step


class Publish(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("title", ev.title)
        question = InputRequiredEvent(prefix=f"Publish {ev.title!r}? ")
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question)
        return StopEvent(result=f"{await ctx.store.get('title')}: {answer.response}")


async def ask(database: Path) -> None:
    handler = Publish(timeout=60).run(title="Tides")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            print(event.prefix)
            break
    with sqlite3.connect(database) as db:
        db.execute("create table runs (snapshot text)")
        db.execute("insert into runs values (?)", [json.dumps(handler.ctx.to_dict())])
    await handler.cancel_run()


async def answer(database: Path) -> None:
    with sqlite3.connect(database) as db:
        snapshot = json.loads(db.execute("select snapshot from runs").fetchone()[0])
    flow = Publish(timeout=60)
    handler = flow.run(ctx=Context.from_dict(flow, snapshot))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    print(await handler)


if len(sys.argv) > 1:
    asyncio.run(answer(Path(sys.argv[1])))
else:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        asyncio.run(ask(file))
        done = subprocess.run([sys.executable, __file__, str(file)], capture_output=True, text=True, check=True)
        print("the other process:", done.stdout.strip())

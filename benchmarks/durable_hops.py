"""What keeping a run costs by the hop, and what taking it up again costs; run by `durable.py`.

    python benchmarks/durable_hops.py NAME FOLDER

Prints what was measured as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batonflow.durable import lease as drive
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

HOPS = 3000
LONG = 10_000
WAITING = 1000
SAMPLES = 5


class Hop(Event):
    n: int


class Hops(Workflow):
    last = HOPS
    stays = False

    @step
    async def begin(self, ev: StartEvent) -> Hop:
        return Hop(n=1)

    @step
    async def go(self, ev: Hop) -> Hop | StopEvent:
        if ev.n < self.last:
            return Hop(n=ev.n + 1)
        if self.stays:
            await asyncio.Event().wait()
        return StopEvent()


class Waits(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("text"))


async def hop(store: Callable[[int], Any]) -> dict[str, float]:
    """CPU seconds of a hop, all threads of the process; the best of some runs."""
    found: list[float] = []
    for sample in range(SAMPLES):
        flow = Hops(store=store(sample), timeout=None)
        began = time.process_time()
        await flow.run()
        found.append((time.process_time() - began) / HOPS)
        if flow.run_store is not None:
            await flow.run_store.aclose()
    return {"cpu": min(found)}


async def long_run(folder: Path, every: int) -> dict[str, float]:
    """A run of many hops is left by its process, and taken up by another store object."""
    drive.SNAPSHOT_EVERY = every
    path = folder / "long.db"
    flow = Hops(store=SQLiteStore(path), timeout=None)
    flow.last, flow.stays = LONG, True
    handler = flow.run(run_id="long")
    while (info := await flow.run_store.info("long")) is None or info.seq < LONG:  # type: ignore[union-attr]  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await handler.interrupt()
    await flow.run_store.aclose()  # type: ignore[union-attr]
    size = _bytes_of(folder)
    again = Hops(store=SQLiteStore(path), timeout=None)
    again.last, again.stays = LONG, True
    began = time.perf_counter()
    handler = again.resume("long")
    while not await handler.ctx.running_steps():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    seconds = time.perf_counter() - began
    await handler.interrupt()
    await again.run_store.aclose()  # type: ignore[union-attr]
    return {"wall": seconds, "bytes": size / LONG}


async def waiting_runs(folder: Path) -> dict[str, float]:
    """Runs that wait for a person and have left memory are listed and answered, one by one."""
    path = folder / "waiting.db"
    flow = Waits(store=SQLiteStore(path), timeout=None, idle_release=0)
    for number in range(WAITING):
        flow.run(run_id=f"w{number}")
    while len(await flow.run_store.list_runs(status="waiting", limit=WAITING)) < WAITING:  # type: ignore[union-attr]  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await flow.run_store.aclose()  # type: ignore[union-attr]
    again = Waits(store=SQLiteStore(path), timeout=None)
    began = time.perf_counter()
    found = await again.run_store.list_runs(status="waiting", limit=WAITING)  # type: ignore[union-attr]
    listed = time.perf_counter() - began
    answered: list[float] = []
    for info in found[:200]:
        began = time.perf_counter()
        handler = again.resume(info.run_id)
        handler.ctx.send_event(HumanResponseEvent(text="yes"))
        assert await handler == "yes"
        answered.append(time.perf_counter() - began)
    for info in found[200:]:
        await again.send_to_run(info.run_id, HumanResponseEvent(text="yes"))
    began = time.perf_counter()
    handlers = await again.recover()
    assert {await handler for handler in handlers} == {"yes"}
    recovered = (time.perf_counter() - began) / len(handlers)
    await again.run_store.aclose()  # type: ignore[union-attr]
    return {"list": listed / len(found), "answer": sorted(answered)[len(answered) // 2], "recover": recovered}


def _bytes_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("long.db*") if each.is_file())


async def main(name: str, folder: Path) -> dict[str, float]:
    match name:
        case "hop":
            return await hop(lambda _: None)
        case "hop, memory":
            return await hop(lambda _: "memory:")
        case "hop, SQLite":
            return await hop(lambda sample: SQLiteStore(folder / f"{sample}.db"))
        case "long run":
            return await long_run(folder, 1000)
        case "long run without snapshots":
            return await long_run(folder, LONG * 10)
        case "waiting runs":
            return await waiting_runs(folder)
    raise SystemExit(f"there is no measurement {name!r}")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2])))))

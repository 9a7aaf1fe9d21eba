"""A fleet that kills its own workers: every run ends, and no step that was recorded is done again.

Three workers drive twelve orders of five steps each. Four times one of them is killed by SIGKILL, and a new one takes
its place. Each step notes itself in a file, so that the program can count what was done twice.

    python examples/fleet.py                                        on a SQLite file
    BATONFLOW_STORE=postgresql://app@db/test python examples/fleet.py   on PostgreSQL
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step
from batonflow.durable.store_protocol import RunStore
from batonflow.durable.stores.opening import open_store
from batonflow.fleet import Worker

ORDERS, STEPS, WORKERS, KILLS = 12, 5, 3, 4


class Parcel(Event):
    number: int


def note(text: str) -> None:
    """Add a line to the notes of all workers."""
    with Path(os.environ["FLEET_NOTES"]).open("a") as notes:
        notes.write(text + "\n")


class Order(Workflow):
    """Packs parcels one after the other."""

    @step
    async def begin(self, ev: StartEvent) -> Parcel:
        return Parcel(number=1)

    @step
    async def pack(self, ctx: Context, ev: Parcel) -> Parcel | StopEvent:
        note(f"{ctx.run_id} {ev.number}")
        await asyncio.sleep(0.2)
        return StopEvent(result=f"{STEPS} parcels") if ev.number == STEPS else Parcel(number=ev.number + 1)


flow = Order(timeout=None, workflow_name="order")


def start_worker(store: str) -> "subprocess.Popen[bytes]":
    """Start this program as a worker."""
    return subprocess.Popen([sys.executable, __file__, "worker", store])


async def drive(address: str) -> None:
    """Drive a fleet until all orders are packed."""
    store = open_store(address)
    kept = flow.with_store(store)
    batch = uuid4().hex[:8]
    ids = [await kept.enqueue(run_id=f"order-{batch}-{number}") for number in range(ORDERS)]
    workers = [start_worker(address) for _ in range(WORKERS)]
    kills = 0
    began = time.monotonic()
    try:
        while (ended := await count_ended(ids, store)) < ORDERS:
            await asyncio.sleep(0.5)
            if kills < KILLS and ended < ORDERS and noted():
                victim = workers.pop(random.randrange(len(workers)))
                victim.kill()
                victim.wait()
                kills += 1
                print(f"killed worker {victim.pid}; {ended} of {ORDERS} orders are packed", file=sys.stderr)
                workers.append(start_worker(address))
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
        await store.aclose()
    done = Counter(noted())
    again = done.total() - len(done)
    print(
        f"{kills} killed in {time.monotonic() - began:.1f} s; {again} steps were at work then, and done again",
        file=sys.stderr,
    )
    print(f"{ORDERS} of {ORDERS} orders are packed, in {len(done)} steps")


async def count_ended(ids: list[str], store: RunStore) -> int:
    """Count the orders that are packed."""
    return sum([info is not None and info.is_over for info in [await store.info(run_id) for run_id in ids]])


def noted() -> list[str]:
    """Return the notes of all workers."""
    notes = Path(os.environ["FLEET_NOTES"])
    return notes.read_text().splitlines() if notes.exists() else []


def main() -> None:
    """Run a worker, or the fleet."""
    if sys.argv[1:2] == ["worker"]:
        asyncio.run(Worker(flow, store=sys.argv[2], concurrency=3).run())
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLEET_NOTES"] = f"{folder}/notes"
        store = os.environ.get("BATONFLOW_STORE") or f"{folder}/runs.db"
        print(f"runs are kept in {'PostgreSQL' if store.startswith('postgres') else 'a SQLite file'}", file=sys.stderr)
        asyncio.run(drive(store))


if __name__ == "__main__":
    main()

"""Count the calls of functions between `resume()` of a killed run and the body of its interrupted step.

    python benchmarks/recovery.py [--write docs/evidence/performance.md]

Calls of functions of the package in the thread of the event loop are counted, and the files that they are in.
"""

import asyncio
import sys
from types import FrameType
from typing import Any

from reporting import Table, report

import batonflow
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import Event, StartEvent, StopEvent, Workflow, step

PACKAGE = batonflow.__path__[0]
MARKS = ("<!-- recovery begin -->", "<!-- recovery end -->")


class Middle(Event):
    n: int


class Two(Workflow):
    """Two steps; the second one is interrupted the first time."""

    reached: asyncio.Event | None = None

    @step
    async def first(self, ev: StartEvent) -> Middle:
        return Middle(n=1)

    @step
    async def second(self, ev: Middle) -> StopEvent:
        sys.setprofile(None)
        if self.reached is not None:
            self.reached.set()
            await asyncio.Event().wait()
        return StopEvent(result=ev.n)


async def recovered() -> tuple[int, int]:
    """Return the calls of a recovery, and the files that they are in."""
    store = MemoryStore()
    begun = Two(store=store)
    begun.reached = asyncio.Event()
    handler = begun.run(run_id="r")
    await begun.reached.wait()
    await handler.interrupt()
    calls, files = 0, set[str]()

    def count(frame: FrameType, what: str, _: Any) -> None:
        nonlocal calls
        if what == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls += 1
            files.add(frame.f_code.co_filename)

    again = Two(store=store)
    sys.setprofile(count)
    assert await again.resume("r") == 1
    return calls, len(files)


async def measured() -> Table:
    """Return the figures as a table."""
    await recovered()  # fills the caches of the process
    calls, files = await recovered()
    return [
        "| recovery of a two-step run until the body of its second step | |",
        "|---|---:|",
        f"| calls of functions of the package | {calls} |",
        f"| their files | {files} |",
    ]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, lambda _: [asyncio.run(measured())]))

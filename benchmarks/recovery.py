"""Count the calls of functions between `resume()` of a killed run and the body of its interrupted step.

    python benchmarks/recovery.py [--write docs/evidence/performance.md]

Calls of Python functions in the thread of the event loop are counted: all of them, those of the package, and the files
of the package that they are in.
"""

import asyncio
import sys
from collections import Counter
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


async def recovered() -> Counter[str]:
    """Return the calls of a recovery, by file."""
    store = MemoryStore()
    begun = Two(store=store)
    begun.reached = asyncio.Event()
    handler = begun.run(run_id="r")
    await begun.reached.wait()
    await handler.interrupt()
    calls = Counter[str]()

    def count(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            calls[frame.f_code.co_filename] += 1

    again = Two(store=store)
    sys.setprofile(count)
    assert await again.resume("r") == 1
    return calls


async def measured() -> Table:
    """Return the figures as a table."""
    await recovered()  # fills the caches of the process
    calls = await recovered()
    own = {name: count for name, count in calls.items() if name.startswith(PACKAGE)}
    return [
        "| recovery of a two-step run until the body of its second step | |",
        "|---|---:|",
        f"| calls of functions of the package | {sum(own.values())} |",
        f"| with those of asyncio and other libraries | {calls.total()} |",
        f"| files of the package | {len(own)} |",
    ]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, lambda _: [asyncio.run(measured())]))

"""Runs that note how far they are, and what they do while another program holds their database."""

import asyncio
import logging
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step

__all__ = ["WHOLE", "LockTally", "Row", "Rows", "locked_meanwhile", "opened", "raw", "rows", "soak_locks"]

SECONDS = 30.0


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, **options)
    try:
        yield store
    finally:
        await store.aclose()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program on the file."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        yield connection
    finally:
        connection.close()


class Row(Event):
    n: int
    text: str


class Rows(Workflow):
    """Passes larger and larger texts on, and notes in its state how far it is."""

    texts = 8

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Row:
        return Row(n=0, text=ev.text)

    @step
    async def go(self, ctx: Context, ev: Row) -> Row | StopEvent:
        await ctx.once("written", str)  # what was done before is written then
        await ctx.store.set("rows", [*await ctx.store.get("rows", []), ev.n])
        if ev.n == self.texts:
            return StopEvent(result=await ctx.store.get("rows"))
        return Row(n=ev.n + 1, text=f"{ev.text}{ev.n}")  # another text, which the store does not have yet


WHOLE = list(range(Rows.texts + 1))


def rows(store: SQLiteStore) -> Rows:
    return Rows(store=store, timeout=None)


async def locked_meanwhile(path: Path, seconds: float) -> float:
    """Another program holds the database for a while in the middle of a run; how long the run took."""
    async with opened(path) as store:

        class Locked(Rows):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Row:
                connection.execute("BEGIN IMMEDIATE")
                asyncio.get_running_loop().call_later(seconds, connection.execute, "COMMIT")
                return Row(n=0, text=ev.text)

        await store.list_runs()
        with raw(path) as connection:
            began = time.monotonic()
            assert await Locked(store=store, timeout=None).run(run_id="r", text="x") == WHOLE
            return time.monotonic() - began


@dataclass(slots=True)
class LockTally:
    """How long runs took whose database was held by another program, and what went wrong."""

    waited: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: "LockTally") -> None:
        """Count another part of the same."""
        self.waited += other.waited
        self.failures += other.failures


def soak_locks(_: str, seeds: Sequence[int]) -> LockTally:
    """Hold the database for long; part of `make soak`."""
    logging.getLogger("batonflow").setLevel(logging.CRITICAL)
    tally = LockTally()
    for _seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tally.waited.append(asyncio.run(locked_meanwhile(Path(folder) / "runs.db", SECONDS)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                tally.failures.append(repr(error))
    return tally

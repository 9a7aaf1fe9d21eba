"""A workflow of three steps, one after the other, kept by several engines in a SQLite file; run by `durable.py`.

    python benchmarks/durable_programs.py ENGINE FOLDER RUNS

Prints as JSON the seconds of wall clock and of CPU for one run, the runs one after the other, and what it adds to the
file.
"""

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Once = Callable[[int], Awaitable[None]]
Program = tuple[Once, Callable[[], Awaitable[None]]]
"""One run, and the end of all."""
PAYLOAD = b'{"n":1,"text":"' + b"x" * 250 + b'"}'


def batonflow(folder: Path, kept: Any) -> Program:
    from batonflow.durable.stores.memory import MemoryStore
    from batonflow.durable.stores.sqlite import SQLiteStore

    if kept == "nowhere":
        return batonflow_in(None)
    return batonflow_in(MemoryStore() if kept == "memory" else SQLiteStore(folder / "runs.db", durability=kept))


def batonflow_in(store: Any) -> Program:
    """The workflow of batonflow with a store, or without one."""
    from batonflow.workflow_core import Event, StartEvent, StopEvent, Workflow, step

    class First(Event):
        n: int

    class Second(Event):
        n: int

    class Three(Workflow):
        @step
        async def one(self, ev: StartEvent) -> First:
            return First(n=ev.n)

        @step
        async def two(self, ev: First) -> Second:
            return Second(n=ev.n + 1)

        @step
        async def three(self, ev: Second) -> StopEvent:
            return StopEvent(result=ev.n + 1)

    flow = Three(store=store)

    async def once(number: int) -> None:
        assert await flow.run(n=number) == number + 2

    async def close() -> None:
        if flow.run_store is not None:
            await flow.run_store.aclose()

    return once, close


def langgraph(folder: Path, durability: Any) -> Program:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    return langgraph_in(lambda: AsyncSqliteSaver.from_conn_string(str(folder / "runs.db")), durability)


def langgraph_in(opened: Callable[[], Any], durability: Any) -> Program:
    """The graph of LangGraph with the checkpointer of a context manager."""
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        n: int

    async def add(state: State) -> State:
        return {"n": state["n"] + 1}

    async def keep(state: State) -> State:
        return state

    graph = StateGraph(State)
    for name, node, before in (("one", keep, START), ("two", add, "one"), ("three", add, "two")):
        graph.add_node(name, node)
        graph.add_edge(before, name)
    graph.add_edge("three", END)
    compiled: list[Any] = []

    async def once(number: int) -> None:
        if not compiled:
            context = opened()
            saver = await context.__aenter__()
            await saver.setup()
            compiled.extend((graph.compile(checkpointer=saver), context))
        config = {"configurable": {"thread_id": str(number)}}
        found = await compiled[0].ainvoke({"n": number}, config, durability=durability)
        assert found["n"] == number + 2

    async def close() -> None:
        await compiled[1].__aexit__(None, None, None)

    return once, close


def dbos(folder: Path, durability: Any) -> Program:
    return dbos_at(f"sqlite:///{folder / 'runs.db'}")


def dbos_at(url: str) -> Program:
    """The workflow of DBOS with a database."""
    from dbos import DBOS

    DBOS(config={"name": "three", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.step()
    async def keep(n: int) -> int:
        return n

    @DBOS.step()
    async def add(n: int) -> int:
        return n + 1

    @DBOS.workflow()
    async def three(n: int) -> int:
        return await add(await add(await keep(n)))

    DBOS.launch()

    async def once(number: int) -> None:
        assert await three(number) == number + 2

    async def close() -> None:
        DBOS.destroy()

    return once, close


def raw(folder: Path, durability: Any) -> Program:
    """Two commits of a record to a table, as the floor of a run."""
    connection = sqlite3.connect(folder / "runs.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={durability}")
    connection.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB)")

    async def once(number: int) -> None:
        for _ in range(2):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO records (body) VALUES (?)", (PAYLOAD,))
            connection.execute("COMMIT")

    async def close() -> None:
        connection.close()

    return once, close


ENGINES: dict[str, tuple[Callable[..., Any], Any]] = {
    "two raw commits": (raw, "NORMAL"),
    "two raw commits, synced": (raw, "FULL"),
    "batonflow, without a store": (batonflow, "nowhere"),
    "batonflow, in memory": (batonflow, "memory"),
    "batonflow": (batonflow, "process"),
    "batonflow, power": (batonflow, "power"),
    "LangGraph, async": (langgraph, "async"),
    "LangGraph, sync": (langgraph, "sync"),
    "DBOS": (dbos, None),
}


async def measure(engine: str, folder: Path, runs: int) -> dict[str, float]:
    """One run after the other, after a few to warm up; the best tenth counts."""
    make, durability = ENGINES[engine]
    once, close = make(folder, durability)
    for number in range(5):
        await once(-1 - number)
    walls: list[float] = []
    cpu = time.process_time()
    for number in range(runs):
        began = time.perf_counter()
        await once(number)
        walls.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu) / runs
    await close()
    walls.sort()
    return {"wall": walls[len(walls) // 10], "cpu": cpu, "bytes": _bytes_of(folder) / (runs + 5)}


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("runs.db*") if path.is_file())


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    print(json.dumps(asyncio.run(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))

"""A workflow of three steps, kept in PostgreSQL by several engines; run by `fleet.py`.

    python benchmarks/fleet_programs.py ENGINE ADDRESS RUNS

Prints as JSON the seconds of wall clock and of CPU for one run, the runs one after the other, and the runs in a second
when fifty are under way at once.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from durable_programs import PAYLOAD, Program, batonflow, batonflow_in, dbos_at, langgraph_in

AT_ONCE = 50


def postgres(address: str, durability: Any) -> Program:
    from batonflow.durable.stores.postgres import PostgresStore

    return batonflow_in(PostgresStore(address, durability=durability))


def langgraph(address: str, durability: Any) -> Program:
    from contextlib import asynccontextmanager

    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    @asynccontextmanager
    async def opened() -> Any:
        given = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(address, min_size=4, max_size=4, kwargs=given, open=False) as pool:
            yield AsyncPostgresSaver(pool)

    return langgraph_in(opened, durability)


def dbos(address: str, durability: Any) -> Program:
    return dbos_at(address)


def sqlite(address: str, durability: Any) -> Program:
    return batonflow(Path(tempfile.mkdtemp()), durability)


def raw(address: str, durability: Any) -> Program:
    """Two commits of a record to a table, as the floor of a run."""
    import psycopg

    connection = psycopg.connect(address, autocommit=True)
    connection.execute("CREATE TABLE IF NOT EXISTS records (id bigserial PRIMARY KEY, body bytea)")

    async def once(number: int) -> None:
        for _ in range(2):
            connection.execute("INSERT INTO records (body) VALUES (%s)", (PAYLOAD,))

    async def close() -> None:
        connection.close()

    return once, close


ENGINES: dict[str, tuple[Callable[..., Program], Any]] = {
    "two raw commits": (raw, None),
    "batonflow": (postgres, "power"),
    "batonflow, SQLite, power": (sqlite, "power"),
    "LangGraph, async": (langgraph, "async"),
    "LangGraph, sync": (langgraph, "sync"),
    "DBOS": (dbos, None),
}


async def measure(engine: str, address: str, runs: int) -> dict[str, float]:
    """Measure runs one after the other, and then many at once. The best tenth counts, after a few to warm up."""
    make, durability = ENGINES[engine]
    once, close = make(address, durability)
    for number in range(5):
        await once(-1 - number)
    walls: list[float] = []
    cpu = time.process_time()
    for number in range(runs):
        began = time.perf_counter()
        await once(number)
        walls.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu) / runs
    waiting = iter(range(runs, 5 * runs))

    async def work() -> None:
        for number in waiting:
            await once(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    at_once = (time.perf_counter() - began) / (4 * runs)
    await close()
    walls.sort()
    return {"wall": walls[len(walls) // 10], "cpu": cpu, "at once": at_once}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))

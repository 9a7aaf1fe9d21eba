"""Measure the search over stored runs: the time of the index, its part of the file, and the time of an answer.

    python benchmarks/search.py --write docs/evidence/performance.md

Each run is an agent with one call of a tool. CPU times of this process, all threads.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from reporting import Table, report

from batonflow import FunctionAgent, ScriptedLLM
from batonflow.durable.search import RunQuery, find_runs, update_index
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.llms import tool_call

MARKS = ("<!-- search begin -->", "<!-- search end -->")
RUNS = (300, 3_000)
QUERIES = {
    "a word of one run": RunQuery(text="harbour1234567 deep"),
    "a word of all runs": RunQuery(text="fathoms"),
    "the beginning of a word, and a model": RunQuery(text="fath", model="scripted"),
    "a model that no run has": RunQuery(model="other"),
}


def depth(harbour: str) -> str:
    """Return the depth of a harbour."""
    return f"{harbour} measures eleven fathoms at low water, and fifteen at high water. " * 5


async def fill(store: SQLiteStore, count: int) -> None:
    for number in range(count):
        harbour = f"harbour{number}"
        turns = [tool_call("depth", harbour=harbour), f"{harbour} is deep enough. " * 10]
        await FunctionAgent(tools=[depth], llm=ScriptedLLM(turns), store=store).run(f"How deep is {harbour}?")


async def measured(folder: Path, count: int) -> list[str]:
    """A row of the table for a store with a number of runs."""
    store = SQLiteStore(folder / f"{count}.db")
    began = time.process_time()
    await fill(store, count)
    running = time.process_time() - began
    await store.aclose()
    before = store.path.stat().st_size
    store = SQLiteStore(store.path)
    began = time.process_time()
    await update_index(store)
    indexing = time.process_time() - began
    answers: list[str] = []
    for query in QUERIES.values():
        times: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            await find_runs(store, query, limit=50)
            times.append(time.perf_counter() - began)
        answers.append(f"{1000 * median(times):.1f}")
    await store.aclose()
    grown = 100 * (store.path.stat().st_size - before) / before
    return [f"{count:,}", f"{indexing / running:.2f}", f"{grown:.0f} %", *answers]


def tables(_: argparse.Namespace) -> list[Table]:
    """The table of the figures."""
    head = ["runs", "CPU of the index, of the runs' own", "it adds to the file"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [asyncio.run(measured(Path(folder), count)) for count in RUNS]
    return [
        [
            f"| {' | '.join([*head, *(f'{name}, ms' for name in QUERIES)])} |",
            "|" + "---:|" * (len(head) + len(QUERIES)),
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    ]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, tables))

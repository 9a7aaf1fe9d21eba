"""Measure what stores cost, beside LangGraph's checkpointer and DBOS when they are installed somewhere.

    python benchmarks/durable.py                                   ours, and raw commits on the same disk
    python benchmarks/durable.py --peer-python PYTHON --write docs/evidence/performance.md

PYTHON is an interpreter with `benchmarks/requirements-peer-durable.txt`. Every measurement is a process of its own in a
folder of its own, all on the disk of the temporary folder; figures of one run of this command belong together.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from durable_programs import ENGINES
from reporting import Table, report
from run import HERE, ROOT, better, sample

MARKS = ("<!-- durable begin -->", "<!-- durable end -->")
RUNS = {
    "two raw commits": 300,
    "batonflow": 300,
    "batonflow, in memory": 300,
    "LangGraph, async": 40,
    "LangGraph, sync": 40,
    "DBOS": 30,
}
DEFAULT_RUNS = 100
OF_PEERS = ("LangGraph, async", "LangGraph, sync", "DBOS")
ROUNDS = 2


def measured(python: str, program: str, *arguments: str) -> dict[str, float]:
    """The best of some processes."""
    found: dict[str, float] | None = None
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            command = [python, "-B", str(HERE / program), arguments[0], folder, *arguments[1:]]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"{arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
        found = better(found, json.loads(done.stdout.splitlines()[-1]))
        print(f"measured {arguments[0]}", flush=True)
    assert found is not None
    return found


def of_engines(peer: str | None, program: str, given: dict[str, int]) -> dict[str, dict[str, float]]:
    """The best of each engine with the number that it is given; without a peer's interpreter ours alone."""
    return {
        engine: measured(peer or "" if engine in OF_PEERS else sys.executable, program, engine, str(number))
        for engine, number in given.items()
        if peer is not None or engine not in OF_PEERS
    }


def runs_table(peer: str | None) -> list[str]:
    """A three-step run, kept in a SQLite file by several engines. The floor is the run without a store."""
    lines = [
        "| three-step run, one after the other | wall, ms | CPU, ms | bytes in the file | wall / ours | CPU / floor |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    counts = {engine: RUNS.get(engine, DEFAULT_RUNS) for engine in ENGINES}
    found = of_engines(peer, "durable_programs.py", counts)
    ours, least = found["batonflow"]["wall"], found["batonflow, without a store"]["cpu"]
    for engine, row in found.items():
        times = f"{row['wall'] * 1e3:.3g} | {row['cpu'] * 1e3:.3g}"
        ratios = f"{row['wall'] / ours:.3g} | {row['cpu'] / least:.3g}"
        lines.append(f"| {engine} | {times} | {row['bytes']:,.0f} | {ratios} |")
    return lines


def hops_table() -> list[str]:
    """What a hop costs with a journal, and without one."""
    floor = sample(sys.executable, "floor", "hop", 3000, 3)["seconds"]
    lines = ["| hop | CPU, µs | of the hop without a store | in floors |", "|---|---:|---:|---:|"]
    names = ("hop", "hop, memory", "hop, SQLite")
    found = {name: measured(sys.executable, "durable_hops.py", name)["cpu"] for name in names}
    for name, seconds in found.items():
        lines.append(f"| {name} | {seconds * 1e6:.3g} | {seconds / found['hop']:.2f} | {seconds / floor:.2f} |")
    return lines


def resume_table() -> list[str]:
    """What taking runs up again costs."""
    long = measured(sys.executable, "durable_hops.py", "long run")
    all_of_it = measured(sys.executable, "durable_hops.py", "long run without snapshots")
    waiting = measured(sys.executable, "durable_hops.py", "waiting runs")
    return [
        "| taking up again | |",
        "|---|---:|",
        f"| a run of 10,000 hops, with snapshots | {long['wall'] * 1e3:.3g} ms |",
        f"| the same without snapshots | {all_of_it['wall'] * 1e3:.3g} ms |",
        f"| what such a run adds to the file, by the hop | {long['bytes']:,.0f} bytes |",
        f"| listing 1,000 waiting runs, each | {waiting['list'] * 1e3:.3g} ms |",
        f"| one of them: taken up, answered, ended | {waiting['answer'] * 1e3:.3g} ms |",
        f"| 800 of them at once, each answered before: taken up and ended, each | {waiting['recover'] * 1e3:.3g} ms |",
    ]


def turns_table(peer: str | None) -> list[str]:
    """A turn of an agent that calls a tool, in conversations of some lengths."""
    lines = [
        "| turn of an agent, with so many messages before | CPU, ms | bytes in the file | CPU / ours |",
        "|---|---:|---:|---:|",
    ]
    for before in (0, 100, 1000):
        engines = ("batonflow, without a store", "batonflow", "LangGraph, async")
        found = of_engines(peer, "durable_turns.py", dict.fromkeys(engines, before))
        ours = found["batonflow"]["cpu"]
        for engine, row in found.items():
            figures = f"{row['cpu'] * 1e3:.3g} | {row['bytes']:,.0f} | {row['cpu'] / ours:.3g}"
            lines.append(f"| {before:,}: {engine} | {figures} |")
    return lines


def tables(options: argparse.Namespace) -> list[Table]:
    """Everything that is measured."""
    return [runs_table(options.peer_python), turns_table(options.peer_python), hops_table(), resume_table()]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, tables, peers=["langgraph", "langgraph-checkpoint-sqlite", "dbos"]))

"""Measure what a conversation costs in a store: the time of a turn, the bytes of its records, and taking it up again.

    python benchmarks/conversations.py --write docs/evidence/performance.md

A turn is a run of an agent that continues the one before: a message, a call, its result and an answer, with 1,000
characters of new text in each message but the call. The model answers at once. Each figure is of a process of its own.
"""

import argparse
import asyncio
import json
import os
import random
import sqlite3
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fake_model import model
from reporting import Table, report
from run import HERE, ROOT

from batonflow.agents import FunctionAgent
from batonflow.agents.memory import ChatMemoryBuffer
from batonflow.llms import ChatMessage
from batonflow.workflow_core import Context

MARKS = ("<!-- conversations begin -->", "<!-- conversations end -->")
CHARACTERS = 1000
SAMPLES = 20
TURNS = 300
WHOLE = 10**9
ROUNDS = 5


def texts() -> Iterator[str]:
    """Texts that cannot be compressed to nothing."""
    letters = string.ascii_lowercase + " "
    made = ["".join(random.Random(number).choices(letters, k=CHARACTERS)) for number in range(4 * TURNS + SAMPLES)]
    while True:
        yield from made


def agent_in(store: Path | None, new: Iterator[str], calls: int = 1) -> FunctionAgent:
    """An agent that makes some calls in each turn."""

    async def plan(messages: Sequence[ChatMessage]) -> AsyncIterator[tuple[str, Any]]:
        done = next(at for at, message in enumerate(reversed(messages)) if message.role == "user") // 2
        if done < calls:
            yield "calls", [(f"call {len(messages)} {done}", "look_up", {"number": done})]
        else:
            yield "delta", next(new)

    async def look_up(number: int) -> str:
        """Look a text up."""
        del number  # each call gets a new text
        return next(new)

    return FunctionAgent(name="Agent", llm=model(plan), tools=[look_up], store=store, timeout=None)


def history(new: Iterator[str], before: int) -> ChatMemoryBuffer:
    """A memory that shows everything, with some messages."""
    messages = [ChatMessage(next(new), role=("user", "assistant")[number % 2]) for number in range(before)]
    return ChatMemoryBuffer.from_defaults(messages, token_limit=WHOLE)


async def turn(folder: Path, before: int, stored: bool) -> dict[str, float]:
    """The CPU of one turn after some messages, all threads of the process, the least of the samples."""
    new = texts()
    agent = agent_in(folder / "runs.db" if stored else None, new)
    ctx = Context(agent)
    await agent.run(next(new), ctx=ctx, memory=history(new, before))
    found: list[float] = []
    for _ in range(SAMPLES):
        began = time.process_time()
        await agent.run(next(new), ctx=ctx)
        found.append(time.process_time() - began)
    return {"ms": min(found) * 1000}


async def many_turns(folder: Path, session: bool) -> dict[str, float]:
    """The file of many turns in a small window, and the records of the third and the last turn."""
    new, path = texts(), folder / "runs.db"
    agent = agent_in(path, new)
    ctx = Context(agent)
    said = 0
    for number in range(1, TURNS + 1):
        given: dict[str, Any] = {"session": "s"} if session else {"ctx": ctx, "run_id": f"s:{number}"}
        await agent.run(next(new), **given)
        said += 3 * CHARACTERS
    store: Any = agent.run_store
    sizes = [sum(len(one.body) for one in (await store.load(f"s:{number}")).commits) for number in (3, TURNS)]
    await store.aclose()
    size = path.stat().st_size
    return {"MB": size / 1e6, "of text": size / said, "growth": sizes[1] / sizes[0]}


async def calls(folder: Path, count: int) -> dict[str, float]:
    """The bytes of a call of a tool in one run of many."""
    path = folder / "runs.db"
    agent = agent_in(path, texts(), count)
    await agent.run("Go.", max_iterations=2 * count)
    assert agent.run_store is not None
    await agent.run_store.aclose()  # type: ignore[attr-defined]
    with sqlite3.connect(path) as connection:
        size = sum(connection.execute(f"SELECT sum(length(body)) FROM {name}").fetchone()[0] for name in STORED)
    return {"bytes": size / count}


STORED = ("commits", "parts", "results")


async def restore(folder: Path, before: int) -> dict[str, float]:
    """The CPU of loading and restoring a run in the midst of a turn, the least of the samples."""
    from batonflow.durable.recovery import recorded_run, run_of

    new = texts()
    agent = agent_in(folder / "runs.db", new)
    ctx = Context(agent)
    await agent.run(next(new), ctx=ctx, memory=history(new, before))
    await agent.run(next(new), ctx=ctx, run_id="r")
    store: Any = agent.run_store
    found: list[float] = []
    for _ in range(SAMPLES):
        began = time.process_time()
        loaded = await store.load("r", 9)
        run_of(agent, "r", recorded_run(agent, loaded))
        found.append(time.process_time() - began)
    return {"ms": min(found) * 1000}


MEASURES: dict[str, Callable[[Path], Any]] = {
    "turn 0": lambda folder: turn(folder, 0, stored=True),
    "turn 1000": lambda folder: turn(folder, 1000, stored=True),
    "bare 0": lambda folder: turn(folder, 0, stored=False),
    "bare 1000": lambda folder: turn(folder, 1000, stored=False),
    "turns": lambda folder: many_turns(folder, session=False),
    "session": lambda folder: many_turns(folder, session=True),
    "calls 10": lambda folder: calls(folder, 10),
    "calls 160": lambda folder: calls(folder, 160),
    "restore 1000": lambda folder: restore(folder, 1000),
}
TIMED = ("turn", "bare", "restore")


def measured(name: str) -> dict[str, float]:
    """A figure, measured by a process of its own; the best of several for times."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS if name.startswith(TIMED) else 1):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-B", str(HERE / "conversations.py"), "--measure", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        best = found if not best or found.get("ms", 0) < best.get("ms", 0) else best
    print(f"measured {name}", flush=True)
    return best


def tables(_: argparse.Namespace) -> list[Table]:
    """The tables of the figures."""
    found = {name: measured(name) for name in MEASURES}
    ms = {name: one["ms"] for name, one in found.items() if "ms" in one}
    size = {count: found[f"calls {count}"]["bytes"] for count in (10, 160)}
    turns, session = found["turns"], found["session"]
    return [
        [
            "| CPU of a turn, ms | 0 messages before | 1,000 before | ratio |",
            "|---|---:|---:|---:|",
            f"| without a store | {ms['bare 0']:.2f} | {ms['bare 1000']:.2f} | {ms['bare 1000'] / ms['bare 0']:.2f} |",
            f"| SQLite | {ms['turn 0']:.2f} | {ms['turn 1000']:.2f} | {ms['turn 1000'] / ms['turn 0']:.2f} |",
        ],
        [
            "| a conversation in a SQLite file | |",
            "|---|---:|",
            f"| file of {TURNS} turns with 3 kB of new text each, MB | {turns['MB']:.2f} |",
            f"| the same, of the text | {turns['of text']:.1f} |",
            f"| records of turn {TURNS}, of those of turn 3 | {turns['growth']:.2f} |",
            f"| file of a session of {TURNS} turns, of the text | {session['of text']:.1f} |",
            f"| a call in a run of 160, of a call in a run of 10 | {size[160] / size[10]:.2f} |",
            f"| load and restore of a run with 1,000 messages, CPU, ms | {ms['restore 1000']:.1f} |",
        ],
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(asyncio.run(MEASURES[sys.argv[2]](Path(place)))))
    else:
        sys.exit(report(__doc__, MARKS, tables))

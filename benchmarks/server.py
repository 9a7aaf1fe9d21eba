"""Measure what serving costs, beside LlamaIndex's server when it is installed somewhere.

    python benchmarks/server.py                                   ours
    python benchmarks/server.py --peer-python PYTHON --write docs/evidence/performance.md

PYTHON is an interpreter with `benchmarks/requirements-peer-server.txt`. The server is a process of its own with a
SQLite file, and this process its only client, over loopback; both libraries are driven by the same requests. Figures of
one run of this command belong together.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from reporting import Table, report
from run import HERE, ROOT

MARKS = ("<!-- server begin -->", "<!-- server end -->")
CALLS = 300
READERS, RUNS = 1000, 100


@dataclass
class Server:
    """A server process."""

    url: str
    port: int
    process: "subprocess.Popen[bytes]"

    def cpu(self) -> float:
        """Processor seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident MiB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@contextmanager
def served(engine: str, python: str) -> Iterator[Server]:
    """A server of one library on a free port, with a file of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-B", str(HERE / "server_program.py"), engine, folder, str(port)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} if engine == "batonflow" else dict(os.environ)
        process = subprocess.Popen(command, env=environment)
        try:
            server = Server(f"http://127.0.0.1:{port}", port, process)
            _wait_for(server)
            yield server
        finally:
            process.terminate()
            process.wait()


def direct(engine: str, python: str) -> float:
    """Seconds of the same run without HTTP, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-B", str(HERE / "server_program.py"), engine, folder, "direct"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} if engine == "batonflow" else dict(os.environ)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def _wait_for(server: Server) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if server.process.poll() is not None:
            raise SystemExit(f"the server ended with code {server.process.returncode}")
        try:
            if httpx2.get(f"{server.url}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise SystemExit("the server did not begin")


def calls(server: Server) -> dict[str, float]:
    """One-step runs, one after the other on one connection: seconds until the answer, and of the server's processor."""
    with httpx2.Client(base_url=server.url, timeout=60) as client:

        def call() -> float:
            began = time.perf_counter()
            answer = client.post("/workflows/greeting/run", json={"start_event": {"name": "Ann"}})
            assert answer.json()["status"] == "completed", answer.text
            return time.perf_counter() - began

        for _ in range(10):
            call()
        cpu = server.cpu()
        seconds = [call() for _ in range(CALLS)]
        spent = (server.cpu() - cpu) / CALLS
        before = [_timed(lambda: client.get("/health")) for _ in range(CALLS)]
    return {
        "wall": statistics.median(seconds),
        "p95": statistics.quantiles(seconds, n=20)[-1],
        "cpu": spent,
        "health": statistics.median(before),
    }


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def latency(server: Server) -> dict[str, float]:
    """How long after it was written an event reaches a reader; the first of each stream, and all of them."""
    first: list[float] = []
    every: list[float] = []
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        for _ in range(30):
            body = {"start_event": {"ticks": 5, "pause": 0.02}}
            run = client.post("/workflows/ticking/run-nowait", json=body).json()["handler_id"]
            delays: list[float] = []
            with client.stream("GET", f"/events/{run}", params={"sse": "true", "after_sequence": "-1"}) as response:
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        now, envelope = time.time(), json.loads(line[5:])
                        if envelope["type"] == "Tick":
                            delays.append(now - envelope["value"]["at"])
            assert len(delays) == 5, delays
            first.append(delays[0])
            every += delays
    return {"first": statistics.median(first), "first p95": statistics.quantiles(first, n=20)[-1],
            "all p95": statistics.quantiles(every, n=20)[-1]}  # fmt: skip


async def readers(server: Server, seconds: float) -> dict[str, float]:
    """A thousand readers of a hundred runs at once, for a while: what is lost, and what the server's memory does."""
    ticks = int(seconds)
    body = {"start_event": {"ticks": ticks, "pause": 1.0}}
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        idle = server.memory()
        runs = [
            (await client.post("/workflows/ticking/run-nowait", json=body)).json()["handler_id"] for _ in range(RUNS)
        ]
    reading = [asyncio.create_task(_read(server, runs[number % RUNS])) for number in range(READERS)]
    await asyncio.sleep(seconds / 4)
    early = server.memory()
    cpu, began = server.cpu(), time.monotonic()
    peak = early
    while not all(task.done() for task in reading):
        await asyncio.sleep(1)
        peak = max(peak, server.memory())
    busy = (server.cpu() - cpu) / (time.monotonic() - began)
    found = [task.result() for task in reading]
    lost = sum(numbers != list(range(ticks)) for numbers, _ in found)
    delays = [delay for _, delays in found for delay in delays]
    return {"idle": idle, "early": early, "peak": peak, "lost": lost, "events": len(delays), "busy": busy,
            "p50": statistics.median(delays), "p95": statistics.quantiles(delays, n=20)[-1]}  # fmt: skip


async def _read(server: Server, run: str) -> tuple[list[int], list[float]]:
    """The numbers of the events that one reader got, and how late each was."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = f"GET /events/{run}?sse=true&after_sequence=-1 HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n"
    writer.write(request.encode())
    numbers: list[int] = []
    delays: list[float] = []
    while line := await reader.readline():
        if line.startswith(b"data:"):
            now, envelope = time.time(), json.loads(line[5:])
            if envelope["type"] != "Tick":
                break
            numbers.append(envelope["value"]["number"])
            delays.append(now - envelope["value"]["at"])
    writer.close()
    return numbers, delays


def tables(options: argparse.Namespace) -> list[Table]:
    """Everything that is measured."""
    peer, seconds = options.peer_python, options.seconds
    engines = {"batonflow": sys.executable} | ({"llama-agents-server": peer} if peer else {})
    found: dict[str, dict[str, float]] = {}
    late: dict[str, dict[str, float]] = {}
    for engine, python in engines.items():
        name = "batonflow" if engine == "batonflow" else "peer"
        with served(name, python) as server:
            found[engine] = calls(server)
            found[engine]["added"] = found[engine]["wall"] - direct(name, python)
            print(f"{engine}: calls", flush=True)
            late[engine] = latency(server)
            print(f"{engine}: events", flush=True)
    with served("batonflow", sys.executable) as server:
        many = asyncio.run(readers(server, seconds))
    base = found["llama-agents-server"] if peer else None
    one = [
        "| one-step run over HTTP, SQLite | median, ms | p95, ms | more than without HTTP, ms | server's CPU, ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for engine, row in found.items():
        cells = [f"{row[name] * 1e3:.2f}" for name in ("wall", "p95", "added", "cpu")]
        one.append(f"| {engine} | {' | '.join(cells)} |")
    if base is not None:
        parts = [f"{found['batonflow'][name] / base[name]:.3f}" for name in ("wall", "p95", "added", "cpu")]
        one.append(f"| batonflow / llama-agents-server | {' | '.join(parts)} |")
    ours = found["batonflow"]
    one.append(f"| `GET /health` of batonflow, for comparison | {ours['health'] * 1e3:.2f} | | | |")
    two = [
        "| from the writing of a streamed event to its reader | first, median, ms | first, p95, ms | all, p95, ms |",
        "|---|---:|---:|---:|",
    ]
    for engine, row in late.items():
        two.append(
            f"| {engine} | {row['first'] * 1e3:.2f} | {row['first p95'] * 1e3:.2f} | {row['all p95'] * 1e3:.2f} |"
        )
    memory = f"{many['idle']:.0f}, {many['early']:.0f}, {many['peak']:.0f} MiB"
    three = [
        f"| {READERS:,} readers of {RUNS} runs for {seconds:.0f} s | |",
        "|---|---:|",
        f"| events that arrived | {many['events']:,.0f} |",
        f"| readers that missed one | {many['lost']:.0f} |",
        f"| late by, median and p95 | {many['p50'] * 1e3:.0f} and {many['p95'] * 1e3:.0f} ms |",
        f"| the server's memory: idle, a quarter through, at most | {memory} |",
        f"| of one core | {many['busy']:.0%} |",
    ]
    return [one, two, three]


if __name__ == "__main__":
    sys.exit(report(__doc__, MARKS, tables, peers=["llama-agents-server"], seconds=60.0))

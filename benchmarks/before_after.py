"""Compare the speed of this checkout with that of an earlier commit: ``python benchmarks/before_after.py COMMIT``.

The same programs run on both, in turn, each in a process of its own. The figure is the least CPU time of the samples.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = '''
import asyncio, sys, tempfile, time
from pathlib import Path

try:
    import batonflow.workflow_core as core, batonflow.agents as agents, batonflow.llms as llms
except ImportError:
    import workflow_core as core, agents, llms


class Hop(core.Event):
    left: int


class Hopping(core.Workflow):
    @core.step
    async def begin(self, ev: core.StartEvent) -> Hop:
        return Hop(left=ev.hops)

    @core.step
    async def hop(self, ev: Hop) -> Hop | core.StopEvent:
        return Hop(left=ev.left - 1) if ev.left else core.StopEvent(result=0)


class First(core.Event):
    n: int


class Second(core.Event):
    n: int


class Three(core.Workflow):
    @core.step
    async def one(self, ev: core.StartEvent) -> First:
        return First(n=1)

    @core.step
    async def two(self, ev: First) -> Second:
        return Second(n=ev.n + 1)

    @core.step
    async def three(self, ev: Second) -> core.StopEvent:
        return core.StopEvent(result=ev.n)


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def main(name):
    with tempfile.TemporaryDirectory() as folder:
        if name == "hop":
            flow = Hopping(timeout=None)
            work, units = (lambda: flow.run(hops=2000)), 2000
        elif name == "durable hop":
            flow = Hopping(timeout=None, store=str(Path(folder) / "runs.db"))
            work, units = (lambda: flow.run(hops=2000)), 2000
        elif name == "three-step run":
            flow = Three(timeout=None)
            work, units = (lambda: flow.run()), 1
        else:
            def work():
                turns = [llms.tool_call("add", a=1, b=2), "3"]
                return agents.FunctionAgent(llm=llms.ScriptedLLM(turns), tools=[add]).run("What is 1 + 2?")
            units = 1
        repeats = 1 if units > 1 else 200
        best = None
        for _ in range(8):
            begun = time.process_time()
            for _ in range(repeats):
                await work()
            took = (time.process_time() - begun) / repeats / units
            best = took if best is None else min(best, took)
    print(best * 1e6)


asyncio.run(main(sys.argv[1]))
'''
NAMES = ("hop", "three-step run", "tool turn", "durable hop")


def sample(name: str, folder: Path) -> float:
    """Return the microseconds of one unit of a program."""
    command = [sys.executable, "-B", "-c", PROGRAM, name]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=folder)
    return float(done.stdout)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=5, help="the number of processes for each figure")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as earlier:
        packed = subprocess.run(["git", "archive", given.commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(earlier, filter="data")
        print(f"| program | before ({given.commit[:8]}), µs | after, µs | after / before |\n|---|---:|---:|---:|")
        for name in NAMES:
            before, after = [], []
            for _ in range(given.rounds):
                before.append(sample(name, Path(earlier)))
                after.append(sample(name, ROOT))
            was, now = min(before), min(after)
            print(f"| {name} | {was:.3g} | {now:.3g} | {now / was:.2f} |", flush=True)


if __name__ == "__main__":
    main()

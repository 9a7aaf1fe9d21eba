"""A run inside a step of another engine goes on where it stood when the engine runs its step again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.server.conftest import eventually

pytestmark = pytest.mark.external("postgresql")

STEPS = 20

PROGRAM = f"""
import asyncio, sys
from dbos import DBOS, SetWorkflowID
from batonflow import Event, StartEvent, StopEvent, Workflow, step

def note(line):
    with open("noted", "a") as noted:
        noted.write(line + "\\n")

class Part(Event):
    n: int
    total: int

class Report(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Part:
        return Part(n=1, total=0)

    @step
    async def write(self, ev: Part) -> Part | StopEvent:
        note(f"body {{ev.n}}")
        await asyncio.sleep(0.05)
        total = ev.total + ev.n
        return StopEvent(result=total) if ev.n == {STEPS} else Part(n=ev.n + 1, total=total)

flow = Report(timeout=None, workflow_name="report", store=sys.argv[1])

@DBOS.step(retries_allowed=True, max_attempts=10, interval_seconds=0.5)
async def write_report(topic):
    note("step")
    return await flow.run(topic=topic, run_id=f"{{DBOS.workflow_id}}:{{DBOS.step_id}}")

@DBOS.workflow()
async def nightly(topic):
    return await write_report(topic)

async def main():
    DBOS(config={{"name": "reports", "system_database_url": sys.argv[1], "log_level": "ERROR"}})
    DBOS.launch()
    with SetWorkflowID("nightly-1"):
        handle = await DBOS.start_workflow_async(nightly, "tides")
    print(await handle.get_result())
    await flow.run_store.aclose()
    await asyncio.to_thread(DBOS.destroy)

asyncio.run(main())
"""


async def test_a_run_inside_a_step_of_dbos_goes_on_after_a_kill(database: str, tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    (tmp_path / "program.py").write_text(PROGRAM)
    noted = tmp_path / "noted"

    async def begin() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "program.py",
            database,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def bodies() -> list[int]:
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [int(line.removeprefix("body ")) for line in lines if line.startswith("body ")]

    async def is_in_the_middle() -> bool:
        return len(bodies()) >= 8

    killed = await begin()
    await asyncio.wait_for(eventually(is_in_the_middle), 60)
    os.kill(killed.pid, signal.SIGKILL)
    assert await killed.communicate() == (b"", b"")
    assert len(before := bodies()) < STEPS

    output, errors = await asyncio.wait_for((await begin()).communicate(), 60)
    assert (output, errors) == (f"{sum(range(STEPS + 1))}\n".encode(), b"")
    assert noted.read_text().splitlines().count("step") >= 2  # the engine ran its step again
    assert sorted(set(bodies())) == list(range(1, STEPS + 1))
    # At most the body that was cut off is repeated, and the one whose commit had not arrived.
    assert bodies()[len(before)] >= before[-1] - 1
    assert len(bodies()) <= STEPS + 2

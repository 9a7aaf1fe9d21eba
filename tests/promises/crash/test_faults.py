"""What a run does when its store fails: the handler says so, nothing is half written, and it goes on when it can."""

# ruff: noqa: ASYNC240 - nothing else runs on the loops of these tests

import asyncio
import base64
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batonflow.clock import Source, use_source
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)
from batonflow.workflow_core.errors import RunInterruptedError, StoreCorruptedError, StoreError
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.promises.crash.locking import WHOLE, Row, Rows, locked_meanwhile, opened, raw, rows
from tests.promises.crash.outside import ROOT

GENEROUS = 20.0
HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Runs that fail have nothing to say."""
    caplog.set_level(logging.CRITICAL, logger="batonflow")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def is_intact(path: Path) -> bool:
    with raw(path) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def steps_recorded(store: SQLiteStore, run_id: str) -> list[int]:
    """How far a run is by its records, of which each holds all that belongs together."""
    run = await store.replay(run_id, rows(store))
    last = run.records[-1]["commit"]
    for record in run.records:
        if record["kind"] == "segment" and record["step"] == "go" and record["outcome"][0] == "returned":
            assert record["writes"]
    return run.state_at(last).get("rows", [])


# No store makes less of this than three quarters.
LONG = base64.b64encode(random.Random(7).randbytes(40_000)).decode()


async def test_a_full_disk_in_the_middle_of_a_run(path: Path) -> None:
    text = LONG
    async with opened(path, max_bytes=300_000) as small:
        with pytest.raises(StoreError, match="no space left for the database"):
            await rows(small).run(run_id="r", text=text)
        written = await steps_recorded(small, "r")
        assert written == WHOLE[: len(written)]
        assert 0 < len(written) < len(WHOLE)
    async with opened(path) as larger:
        assert await steps_recorded(larger, "r") == written
        assert await rows(larger).run(run_id="r", text=text) == WHOLE
    assert is_intact(path)


async def in_a_child(program: str, *arguments: str) -> str:
    """What a program says that tampers with its own process."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


async def test_a_limit_on_the_size_of_files_in_the_middle_of_a_run(path: Path) -> None:
    said = await in_a_child(
        """
import asyncio, logging, resource, sys
from pathlib import Path
from batonflow.workflow_core.errors import StoreError
from tests.promises.crash.test_faults import LONG, opened, rows, steps_recorded

logging.getLogger("batonflow").setLevel(logging.CRITICAL)

async def main():
    async with opened(Path(sys.argv[1])) as store:
        await store.list_runs()
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        for _ in range(2):
            try:
                await rows(store).run(run_id="r", text=LONG)
            except StoreError as error:
                print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        written = await steps_recorded(store, "r")
        print(0 < len(written) < 9, await rows(store).run(run_id="r", text=LONG))

asyncio.run(main())
""",
        str(path),
    )
    first, second, last = said.splitlines()
    assert first == second
    assert "limits on the size of files" in first
    assert last == f"True {WHOLE}"
    assert is_intact(path)


async def test_a_database_that_is_locked_for_a_while_only_makes_a_run_wait(path: Path) -> None:
    assert await locked_meanwhile(path, 1.2) >= 1.2


async def test_a_database_that_is_deleted_under_a_run(path: Path) -> None:
    class Deletes(Rows):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Row:
            for file in path.parent.glob("runs.db*"):
                if file.is_file():
                    file.unlink()
            return Row(n=0, text=ev.text)

    async with opened(path) as store:
        with pytest.raises(StoreError, match=r"runs\.db is not there any more"):
            await Deletes(store=store, timeout=None).run(run_id="r", text="x")
        assert not path.exists()


async def test_one_changed_bit_in_a_commit_stops_this_run_and_no_other(path: Path) -> None:
    marked = "the text of the run that is damaged"
    async with opened(path) as store:
        for run_id, text in (("damaged", marked), ("sound", "another text")):
            await asyncio.wait_for(interrupted_at(rows_of_two_lives(store), run_id, text), GENEROUS)
    data = bytearray(path.read_bytes())
    position = data.index(marked.encode())
    data[position] ^= 1
    path.write_bytes(data)
    async with opened(path) as store:
        with pytest.raises(StoreCorruptedError, match=r"Commit \d+ of run 'damaged' .*runs\.db is damaged"):
            await rows(store).resume("damaged")
        assert await rows(store).resume("sound") == WHOLE
        assert await rows(store).run(run_id="new", text="a new run") == WHOLE


class Halfway(Rows):
    """Stays in its fifth step."""

    @step
    async def go(self, ctx: Context, ev: Row) -> Row | StopEvent:
        if ev.n == 4:
            await asyncio.Event().wait()
        return await super().go(ctx, ev)


def rows_of_two_lives(store: SQLiteStore) -> Rows:
    return Halfway(store=store, timeout=None, workflow_name=rows(store).workflow_name)


async def interrupted_at(workflow: Workflow, run_id: str, text: str) -> None:
    """Leave a run in the store that has come halfway."""
    handler = workflow.run(run_id=run_id, text=text)
    await until(lambda: handler.execution_counts.executions.get("go", 0) >= 4)
    await handler.interrupt()
    with pytest.raises(RunInterruptedError):
        await handler


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(GENEROUS):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody with fewer rights")
async def test_without_the_right_to_write_a_run_does_not_begin(tmp_path: Path) -> None:
    # A directory of its own below /tmp: those above pytest's are closed to other users.
    folder = Path("/tmp") / f"batonflow-run-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    try:
        said = await in_a_child(
            """
import asyncio, logging, os, sys
from pathlib import Path
from batonflow.workflow_core.errors import StoreError
from tests.promises.crash.test_faults import opened, rows

logging.getLogger("batonflow").setLevel(logging.CRITICAL)
os.setuid(65534)

async def main():
    async with opened(Path(sys.argv[1])) as store:
        handler = rows(store).run(run_id="r", text="x")
        print(handler.run_id)
        try:
            await handler
        except StoreError as error:
            print(error)

asyncio.run(main())
""",
            str(folder / "runs.db"),
        )
        first, second = said.splitlines()
        assert first == "r"
        assert f"The database {folder / 'runs.db'} cannot be written" in second
        assert f"make files in {folder}" in second
    finally:
        shutil.rmtree(folder)


# --- the wall clock jumps ---------------------------------------------------------------------------------------------


class Jumping(Source):
    """A wall clock that is put forward or back by ``ahead`` seconds; the other clock knows nothing of that."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.now = lambda: time.time() + self.ahead


class Asked(InputRequiredEvent):
    pass


class Answered(HumanResponseEvent):
    text: str


class Timers(Workflow):
    """Fails once and is tried again after ``pause`` seconds; then waits for an answer for as long."""

    pause = 0.3

    def __init__(self, store: SQLiteStore) -> None:
        super().__init__(store=store, timeout=None, workflow_name="timers", disable_validation=True)
        self.tried: list[float] = []

    @step(retry_policy=retry_policy(wait=wait_fixed(0.3), stop=stop_after_attempt(2)))
    async def fail_once(self, ctx: Context, ev: StartEvent) -> Row:
        self.tried.append(time.monotonic())
        if ctx.retry_info().retry_number == 0:
            raise OSError("once")
        return Row(n=0, text="")

    @step
    async def wait(self, ctx: Context, ev: Row) -> StopEvent:
        began = time.monotonic()
        try:
            await ctx.wait_for_event(Answered, waiter_event=Asked(), timeout=self.pause)
        except TimeoutError:
            return StopEvent(result=["timed out", time.monotonic() - began])
        return StopEvent(result=["answered"])


SLACK = 0.02
"""By how much two clocks of a machine may differ over a moment, in seconds."""


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
async def test_a_wall_clock_that_jumps_under_a_run_moves_none_of_its_timers(path: Path, jump: float) -> None:
    clock = Jumping()
    with use_source(clock):
        async with opened(path) as store, opened(path) as other:
            workflow = Timers(store)
            handler = workflow.run(run_id="r")
            await until(lambda: workflow.tried)
            clock.ahead = jump
            assert (await other.info("r")).lease_left > 0
            assert await Timers(other).recover() == []  # it is still driven
            said, waited = await asyncio.wait_for(handler, GENEROUS)
            assert said == "timed out"
            assert waited >= workflow.pause - SLACK
            assert workflow.tried[1] - workflow.tried[0] >= workflow.pause - SLACK


@pytest.mark.parametrize("jump", [HOUR, DAY])
async def test_after_the_wall_clock_was_put_forward_timers_of_another_process_are_due(path: Path, jump: float) -> None:
    await left_behind(path, pause=jump / 2)
    async with process(path, ahead=jump) as (_, workflow):
        (handler,) = await workflow.recover()
        assert (await asyncio.wait_for(handler, GENEROUS))[0] == "timed out"


@pytest.mark.parametrize("jump", [-HOUR, -DAY])
async def test_after_the_wall_clock_was_put_back_timers_are_late_and_not_lost(path: Path, jump: float) -> None:
    await left_behind(path, pause=60)
    async with process(path, ahead=jump) as (_, workflow):
        (handler,) = await workflow.recover()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ended(handler), 0.3)
        await handler.interrupt()
    async with process(path, ahead=61) as (_, workflow):  # it was put right, and time has passed
        (handler,) = await workflow.recover()
        assert (await asyncio.wait_for(handler, GENEROUS))[0] == "timed out"


class Late(Timers):
    """Is tried again after a minute."""

    @step(retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(2)))
    async def fail_once(self, ctx: Context, ev: StartEvent) -> Row:
        return await super().fail_once(ctx, ev)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
async def test_a_retry_is_due_by_the_wall_clock_of_the_process_that_makes_it(path: Path, jump: float) -> None:
    async with process(path, 0, Late) as (_, workflow):
        await tried_and_left(workflow, workflow.run(run_id="r"))
    async with process(path, jump, Late) as (_, workflow):
        (handler,) = await workflow.recover()
        if jump > 0:
            await tried_and_left(workflow, handler)
            return
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ended(handler), 0.3)
        assert workflow.tried == []
        await handler.interrupt()
    async with process(path, 61, Late) as (_, workflow):  # it was put right, and time has passed
        (handler,) = await workflow.recover()
        await tried_and_left(workflow, handler)


async def tried_and_left(workflow: Timers, handler: WorkflowHandler) -> None:
    """Wait for an attempt, and leave the run to the next process."""
    await until(lambda: workflow.tried)
    await handler.interrupt()
    with pytest.raises(RunInterruptedError):
        await handler


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
async def test_a_lease_is_not_shortened_by_a_wall_clock_of_another_process(path: Path, jump: float) -> None:
    async with opened(path) as store:
        workflow = rows_of_two_lives(store)
        handler = workflow.run(run_id="r", text="x")
        await until(lambda: handler.execution_counts.executions.get("go", 0) >= 4)
        with use_source(Jumping(jump)):
            async with opened(path) as other:
                assert await rows(other).recover() == []
                assert (await other.info("r")).owner == store.owner
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler


async def ended(handler: Awaitable[Any]) -> Any:
    return await handler


async def left_behind(path: Path, pause: float) -> None:
    """A run that waits, with a timeout, and whose process is gone."""
    async with process(path, ahead=0) as (_, workflow):
        workflow.pause = pause
        handler = workflow.run(run_id="r")
        await until(handler.open_inputs)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler


@asynccontextmanager
async def process(path: Path, ahead: float, make: type[Timers] = Timers) -> AsyncIterator[tuple[SQLiteStore, Timers]]:
    """A store and a workflow of their own, with a wall clock that goes wrong by so many seconds."""
    with use_source(Jumping(ahead)):
        async with opened(path) as store:
            yield store, make(store)


# --- power ------------------------------------------------------------------------------------------------------------


SYNCED = """
import asyncio, sys
from pathlib import Path
from tests.promises.crash.test_faults import opened, rows

async def main():
    async with opened(Path(sys.argv[1]), durability=sys.argv[2]) as store:
        await rows(store).run(run_id="r", text="x")

asyncio.run(main())
"""


@pytest.mark.external("strace")
async def test_if_power_may_fail_the_disk_is_waited_for_once_in_each_transaction(tmp_path: Path) -> None:
    syncs: dict[str, int] = {}
    for durability in ("process", "power"):
        log, path = tmp_path / f"{durability}.log", tmp_path / f"{durability}.db"
        traced = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        await asyncio.to_thread(
            subprocess.run,
            [*traced, sys.executable, "-c", SYNCED, str(path), durability],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            timeout=25,
        )
        syncs[durability] = log.read_text().count("sync(")
    async with opened(tmp_path / "power.db") as store:
        info = await store.info("r")
        assert info is not None
        # Each text waits until what was before it is written; at most each commit is a transaction.
        assert len(WHOLE) <= syncs["power"] - syncs["process"] <= info.seq + 5
        assert syncs["process"] < len(WHOLE) + 3

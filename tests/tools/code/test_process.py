"""Sessions in a process of their own: what the code can do to the pipe, to its process, and between turns."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batonflow.tools.code import (
    Calls,
    Done,
    Executor,
    Failed,
    Limits,
    SandboxUnavailableError,
    Session,
    UnsafeLocalExecutor,
)
from batonflow.tools.code.process import Launch, ProcessExecutor
from tests.tools.code.sessions import BUBBLEWRAP, KEY, TOOLS, children, opened, run
from tests.workflow_core.flows import until

ROOT = Path(__file__).resolve().parents[3]
EXECUTORS = [pytest.param(UnsafeLocalExecutor, id="unsafe"), BUBBLEWRAP]
WRITE = """
import json, os
def tell(text):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, text.encode())
        except OSError:
            pass
"""


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param(key=KEY)


@pytest.fixture
async def session(executor: Executor) -> AsyncIterator[Session]:
    async with opened(executor, Limits(seconds=5.0), run_id="r") as one:
        yield one


class TestForgedMessages:
    @pytest.mark.parametrize(
        "text",
        [
            '"not json\\n"',
            '"[" * 100000 + "\\n"',
            '"[1]\\n"',
            '"x" * 20000000',
            'json.dumps({"n": 2, "turn": ["done"]}) + "\\n"',
            'json.dumps({"n": 2, "turn": "calls", "calls": [{"ref": "x"}]}) + "\\n"',
            'json.dumps({"n": 2, "turn": "calls", "calls": [1]}) + "\\n"',
            'json.dumps({"n": 2, "turn": "failed", "kind": "unheard of"}) + "\\n"',
            'json.dumps({"n": 2, "turn": "failed", "kind": ["runtime"]}) + "\\n"',
            '"\\x00\\xff\\n"',
        ],
    )
    async def test_nonsense_costs_the_code_its_session(self, session: Session, text: str) -> None:
        await session.start(WRITE)
        turn = await session.start(f"tell({text})")
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("crash", True)
        assert await session.start("1 + 1") == Done(output="", value=2)

    async def test_only_tools_can_be_called(self, session: Session) -> None:
        await session.start(WRITE)
        forged = '{"n": 2, "turn": "calls", "calls": [{"ref": 7, "name": "os.system", "args": ["x"], "kwargs": {}}]}'
        turn = await session.start(f"tell({forged!r} + chr(10))\n5")
        assert turn == Done(output="", value=5)

    async def test_messages_of_other_snippets_do_not_count(self, session: Session) -> None:
        await session.start(WRITE)
        turn = await session.start("tell(json.dumps({'n': 1, 'turn': 'done', 'value': 9}) + chr(10))\n5")
        assert turn == Done(output="", value=5)

    async def test_a_flood_of_output_is_cut(self, session: Session) -> None:
        await session.start(WRITE)
        turn = await session.start("for n in range(300): tell(json.dumps({'out': 'x' * 1000}) + chr(10))\n5")
        assert isinstance(turn, Done)
        assert len(turn.output) < 70_000

    async def test_what_libraries_print_by_themselves_cannot_break_a_message(self, session: Session) -> None:
        assert await session.start("import os\nos.write(1, b'noise')\nos.write(2, b'noise')\n5") == Done("", 5)


class TestItsProcess:
    @pytest.mark.parametrize(
        "code", ["import os\nos._exit(0)", "import os\nos.abort()", "import ctypes\nctypes.string_at(0)"]
    )
    async def test_its_end_costs_the_variables_and_nothing_else(self, session: Session, code: str) -> None:
        await session.start("x = 1")
        turn = await session.start(code)
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("crash", True)
        assert "all variables are lost" in turn.text
        assert session.snippet == 2
        turn = await session.start("x")
        assert isinstance(turn, Failed)
        assert "NameError" in turn.text

    async def test_what_was_lost_is_not_run_again_after_a_restore(self, executor: Executor, session: Session) -> None:
        await session.start("import os\nos._exit(0)")
        await run(session, "y = await add(1)")
        snapshot = await session.snapshot()
        async with opened(executor, restore=snapshot) as again:
            assert await again.start("y") == Done(output="", value=2)
            assert again.snippet == 3

    async def test_code_that_cannot_be_interrupted_is_killed(self, executor: Executor) -> None:
        async with opened(executor, Limits(seconds=0.2)) as session:
            turn = await session.start("sum(range(10 ** 12))")
            assert isinstance(turn, Failed)
            assert (turn.kind, turn.session_lost) == ("limit", True)

    async def test_nothing_runs_between_turns(self, session: Session) -> None:
        await session.start(
            "import threading, time\nn = 0\n"
            "def count():\n    global n\n    while True:\n        n += 1\n        time.sleep(0.001)\n"
            "threading.Thread(target=count, daemon=True).start()"
        )
        first = await session.start("n")
        await asyncio.sleep(0.3)
        second = await session.start("n")
        assert isinstance(first, Done)
        assert isinstance(second, Done)
        # The thread runs while the snippet does, and that is short.
        assert second.value - first.value < 50

    async def test_asyncio_run_works_where_nothing_else_runs(self, session: Session) -> None:
        code = "import asyncio\nasync def main():\n    return await add(1, 2)\nasyncio.run(main())"
        assert await run(session, code) == Done(output="", value=3)
        turn = await run(session, "async def nested():\n    asyncio.run(main())\nawait nested()")
        assert isinstance(turn, Failed)
        assert "write `await main()` instead" in turn.text

    async def test_a_call_may_be_bounded_in_time(self, session: Session) -> None:
        code = """
import asyncio
try:
    async with asyncio.timeout(0.05):
        await add(1)
except TimeoutError:
    print("too late")
"""
        turn = await session.start(code)
        assert isinstance(turn, Calls)
        await asyncio.sleep(0.2)
        assert await session.answer({"r/1/1": 2}) == Done(output="too late\n", value=None)

    async def test_calls_from_tasks_and_their_groups(self, session: Session) -> None:
        code = """
import asyncio
async with asyncio.TaskGroup() as group:
    tasks = [group.create_task(add(n)) for n in range(3)]
[task.result() for task in tasks]
"""
        assert await run(session, code) == Done(output="", value=[1, 2, 3])


class TestStart:
    async def test_a_program_that_is_not_there_is_named(self) -> None:
        with pytest.raises(SandboxUnavailableError, match=r"/no/such/program does not start.*Install it\."):
            await Started(["/no/such/program"]).open()

    async def test_what_a_failing_program_says_is_told(self) -> None:
        before = children()
        with pytest.raises(SandboxUnavailableError, match=r"did not start the interpreter: sorry\. Install it\."):
            await Started([sys.executable, "-c", "import sys; sys.exit('sorry')"]).open()
        assert children() <= before

    async def test_a_program_that_says_something_else_is_stopped(self) -> None:
        before = children()
        with pytest.raises(SandboxUnavailableError, match="it said nothing"):
            await Started([sys.executable, "-c", "import time; print('hi', flush=True); time.sleep(60)"]).open()
        assert children() <= before


class Started(ProcessExecutor):
    """An executor whose program is something else."""

    name = "other"
    hints = ""

    def __init__(self, command: list[str]) -> None:
        super().__init__(KEY)
        self._command = command

    def launch(self) -> Launch:
        return Launch(self._command, dict(os.environ), help="Install it.")


class TestUnsafe:
    async def test_it_has_all_rights(self, tmp_path: Path) -> None:
        async with opened(UnsafeLocalExecutor()) as session:
            assert isinstance(await session.start(f"open({str(tmp_path / 'x')!r}, 'w').write('1')"), Done)
        assert (tmp_path / "x").read_text() == "1"

    async def test_what_it_started_ends_with_it(self) -> None:
        before = children()
        session = await UnsafeLocalExecutor().open(TOOLS)
        await session.start("import subprocess\np = subprocess.Popen(['sleep', '600'])")
        assert children() > before
        await session.aclose()
        assert children() <= before


STOPPED = """
import asyncio, os, signal
from batonflow.tools.code import UnsafeLocalExecutor

async def main():
    session = await UnsafeLocalExecutor().open()
    await session.start("import os")
    print(session._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell a process to end with its parent")
async def test_a_worker_ends_with_a_host_that_is_killed_while_it_is_stopped() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPPED, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    # Whoever takes it over may leave it as a zombie.
    await until(lambda: state_of(int(said)) in {None, "Z"}, seconds=10)


def state_of(process: int) -> str | None:
    """The letter that Linux gives the state of a process; None when there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


ENDING = """
import asyncio, gc, sys
from batonflow.tools.code import UnsafeLocalExecutor

async def main(turns):
    asyncio.get_running_loop().slow_callback_duration = 60  # to start a process may take long
    session = await UnsafeLocalExecutor().open()
    await session.start("print('x' * 100000)")
    closing = asyncio.create_task(session.aclose())
    for _ in range(turns):
        await asyncio.sleep(0)
    return closing  # which the event loop's end cancels

for turns in range(1, 6):
    asyncio.run(main(turns))
    gc.collect()
"""


async def test_the_end_of_the_event_loop_leaves_neither_process_nor_pipe() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "dev", "-c", ENDING),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert (process.returncode, said.decode()) == (0, "")

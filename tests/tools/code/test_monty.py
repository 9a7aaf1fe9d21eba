"""What is particular to Monty: its type checker, its clock, its advice, and a clean end of the process."""

import asyncio
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batonflow.lazy import how_to_install
from batonflow.tools.code import (
    Calls,
    Done,
    Failed,
    Limits,
    MontyExecutor,
    SandboxUnavailableError,
    Session,
    default_executor,
    monty_check,
)
from batonflow.tools.code.monty import _RAISABLE  # pyright: ignore[reportPrivateUsage]
from tests.tools.code.sessions import KEY, TOOLS, children, opened, replied, run

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with opened(MontyExecutor(key=KEY), run_id="r") as one:
        yield one


def kill_interpreters() -> None:
    """Kill the processes of Monty, and no other process that a test has started."""
    for child in children():
        if b"monty" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)


class TestCheck:
    async def test_a_cancel_is_kept_in_the_turn_in_which_the_checker_answers(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, answered = asyncio.get_running_loop(), monty_check._checked  # pyright: ignore[reportPrivateUsage]

        async def answered_and_cancelled(*arguments: Any) -> Any:
            problems = await answered(*arguments)
            loop.call_soon(checking.cancel)
            return problems

        monkeypatch.setattr(monty_check, "_checked", answered_and_cancelled)
        checking = asyncio.create_task(session.check("1 + 1"))
        with pytest.raises(asyncio.CancelledError):
            await checking

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("x = 1\nawait add('a')", "line 2: invalid-argument-type: Argument to function `add` is incorrect"),
            ("await add(1, c=2)", "line 1: unknown-argument"),
            ("await add()", "line 1: missing-argument"),
            ("await add(1, 2, 3)", "line 1: too-many-positional-arguments"),
            ("add(1)", "is not awaited; write `await` before the call"),
            ("find('a')['name']", "write `await` before the call"),
            ("await subtract(1)", "line 1: unresolved-reference: Name `subtract` used when not defined"),
            ("import pandas", "line 1: unresolved-import"),
        ],
    )
    async def test_mistakes_with_tools_are_seen_before_anything_runs(
        self, session: Session, code: str, said: str
    ) -> None:
        problems = await session.check(code)
        assert said in "\n".join(map(str, problems))
        assert session.snippet == 0

    @pytest.mark.parametrize("name", sorted(_RAISABLE))
    async def test_every_error_that_a_tool_can_raise_can_be_caught(self, session: Session, name: str) -> None:
        assert await session.check(f"try:\n    await add(1, 2)\nexcept {name} as error:\n    print(error)") == []

    @pytest.mark.parametrize(
        ("before", "code"),
        [
            ("x = 1", "x = 'a'\nx += 'b'"),
            ("x = None", "x = 3\nx + 1"),
            ("xs = [1]", "xs.append('a')"),
            ("for i in range(3): pass", "i.upper()"),
            ("broken = 1\nraise ValueError", "broken + 1"),
            ("best = None\nfor n in [1]: best = n", "best + 1"),
            ("def f(): return 1", "f().x"),
            ("", "list = [1]\nlist"),
            ("", "rows = {'a': [1]}\nrows['a'].append('b')"),
        ],
    )
    async def test_ordinary_code_over_several_snippets_is_not_complained_about(
        self, session: Session, before: str, code: str
    ) -> None:
        await session.start(before)
        assert await session.check(code) == []

    async def test_earlier_names_are_known_after_a_restore(self, session: Session) -> None:
        await session.start("rate = 1")
        async with opened(MontyExecutor(key=KEY), restore=await session.snapshot()) as again:
            assert await again.check("rate + 1") == []


class TestAdvice:
    @pytest.mark.parametrize(
        ("code", "kind", "advice"),
        [
            ("print(1)\nclass A(Exception): pass", "syntax", "Hint: use a class without bases"),
            ("print(1)\ndef f():\n    yield 1", "syntax", "Hint: build and return a list."),
            ("import numpy", "runtime", "Hint: use lists, comprehensions and math."),
            ("x = add(1)\nawait 5", "runtime", "Hint: only calls of tools and of async functions are awaited."),
        ],
    )
    async def test_what_monty_lacks_is_told_with_another_way(
        self, session: Session, code: str, kind: str, advice: str
    ) -> None:
        turn = await session.start(code)
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.output) == (kind, "")
        assert advice in turn.text


class TestWorld:
    @pytest.mark.parametrize(
        "code", ["open('/etc/hostname')", "import os\nos.environ['PATH']", "import os\nos.listdir('/')"]
    )
    async def test_there_is_none(self, session: Session, code: str) -> None:
        turn = await session.start(code)
        assert isinstance(turn, Failed)

    async def test_the_clock_is_the_hosts_in_utc(self, session: Session) -> None:
        before = datetime.now(UTC)
        turn = await session.start(
            "import time\nfrom datetime import datetime, date, timezone\n"
            "now = [datetime.now(), datetime.now(timezone.utc), date.today()]\n"
            "[*(one.isoformat() for one in now), time.time()]"
        )
        assert isinstance(turn, Done)
        naive, aware, today, seconds = turn.value
        after = datetime.now(UTC)
        assert before <= datetime.fromisoformat(naive).replace(tzinfo=UTC) <= after
        assert before <= datetime.fromisoformat(aware) <= after
        assert today in {str(before.date()), str(after.date())}
        assert before.timestamp() <= seconds <= after.timestamp()

    async def test_the_clock_cannot_be_read_without_end(self, session: Session) -> None:
        turn = await session.start("import time\nwhile True: time.time()")
        assert isinstance(turn, Failed)
        assert "the clock was read more than 2000 times in one snippet" in turn.text

    async def test_sleeps_and_calls_overlap(self, session: Session) -> None:
        code = """
import asyncio
async def late(n):
    await asyncio.sleep(0.05)
    return await add(n)
await asyncio.gather(late(1), add(2), late(3))
"""
        first = await session.start(code)
        assert isinstance(first, Calls)
        assert [call.arguments["a"] for call in first.calls] == [2]
        turn, late = await session.answer(replied(session)), list[object]()
        while isinstance(turn, Calls):  # both at once, or one a moment after the other
            late += [call.arguments["a"] for call in turn.calls]
            turn = await session.answer(replied(session))
        assert sorted(late) == [1, 3]
        assert turn == Done(output="", value=[2, 3, 4])

    async def test_sleeping_goes_on_after_a_restore(self, session: Session) -> None:
        code = """
import asyncio
async def late():
    await asyncio.sleep(0.05)
    return 7
await asyncio.gather(late(), add(1))
"""
        await session.start(code)
        async with opened(MontyExecutor(key=KEY), restore=await session.snapshot()) as again:
            assert await again.answer(replied(again)) == Done(output="", value=[7, 2])


class TestOddities:
    async def test_a_call_left_over_from_an_earlier_snippet_is_an_error(self, session: Session) -> None:
        await session.start("kept = 1\nc = add(1)")
        turn = await session.start("kept = 2\nawait c")
        assert isinstance(turn, Failed)
        assert "make the call again" in turn.text
        assert await session.start("kept") == Done(output="", value=1)

    async def test_lines_are_right_after_a_snippet_was_undone(self) -> None:
        async with opened(MontyExecutor(), Limits(seconds=0.2)) as session:
            await session.start("def f():\n    return 1 / 0")
            await session.start("while True: pass")
            await session.start("x = (1")
            turn = await session.start("\nf()")
            assert isinstance(turn, Failed)
            assert 'File "<snippet 4>", line 2, in <module>' in turn.text
            assert 'File "<snippet 1>", line 2, in f' in turn.text

    async def test_many_sessions_may_wait_at_once(self) -> None:
        executor = MontyExecutor()
        sessions = [await executor.open(TOOLS) for _ in range(40)]
        try:
            await asyncio.gather(*(one.start("await add(1)") for one in sessions))
            done = await asyncio.gather(*(one.answer(replied(one)) for one in sessions))
        finally:
            for one in sessions:
                await one.aclose()
        assert done == [Done(output="", value=2)] * 40

    async def test_a_dead_interpreter_costs_the_snippet(self, session: Session) -> None:
        await session.start("kept = 1")
        await session.start("kept = 2\nawait add(1)")
        kill_interpreters()
        turn = await session.answer(replied(session))
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("crash", False)
        assert await session.start("kept") == Done(output="", value=1)

    async def test_an_interpreter_that_died_between_snippets_costs_the_variables(self, session: Session) -> None:
        await session.start("kept = 1")
        kill_interpreters()
        turn = await session.start("kept")
        assert isinstance(turn, Failed)
        assert (turn.kind, turn.session_lost) == ("crash", True)
        assert await session.start("1 + 1") == Done(output="", value=2)

    async def test_instances_go_out_as_their_attributes(self, session: Session) -> None:
        code = "class P:\n    def __init__(self):\n        self.x = [1]\nawait echo(P())"
        assert await run(session, code) == Done(output="", value={"x": [1]})


class TestDefault:
    def test_it_is_monty(self) -> None:
        assert isinstance(default_executor(), MontyExecutor)

    async def test_without_monty_nothing_runs(self) -> None:
        code = (
            "import sys; sys.modules['pydantic_monty'] = None\n"
            "from batonflow.tools.code import default_executor\n"
            "try: default_executor()\n"
            "except Exception as err: print(type(err).__name__, err)"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        output, _ = await process.communicate()
        assert output.startswith(b"SandboxUnavailableError Code runs only in a sandbox")
        assert how_to_install("code").encode() in output


class TestProcess:
    async def test_a_program_that_has_used_it_ends_cleanly(self) -> None:
        code = (
            "import asyncio\n"
            "from batonflow.tools.code import MontyExecutor\n"
            "async def main():\n"
            "    session = await MontyExecutor().open()\n"
            "    for n in range(20): await session.start('1')\n"
            "asyncio.run(main())\n"
        )

        async def ended() -> int | None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
            return await process.wait()

        codes: list[int | None] = []
        for _ in range(2):
            codes += await asyncio.gather(*(ended() for _ in range(4)))
        assert codes == [0] * 8

    async def test_a_forked_child_is_told_what_to_do(self, session: Session) -> None:
        await session.start("1")
        context = multiprocessing.get_context("fork")
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(target=_try_to_open, args=(writer,))
        with warnings.catch_warnings():
            # Python itself advises against forking here, and that is the point.
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        said = await asyncio.to_thread(reader.recv)
        child.join()
        assert said.startswith("SandboxUnavailableError Monty does not work in a process forked from one")
        assert await session.start("2") == Done(output="", value=2)


def _try_to_open(writer: object) -> None:
    try:
        asyncio.run(MontyExecutor().open())
    except SandboxUnavailableError as err:
        writer.send(f"{type(err).__name__} {err}")

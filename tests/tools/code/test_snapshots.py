"""A session written down in one process goes on in another, and only our own snapshots are loaded."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batonflow.tools.code import (
    BubblewrapExecutor,
    Calls,
    Done,
    Executor,
    Failed,
    Limits,
    MontyExecutor,
    Session,
    SnapshotMismatchError,
    SnapshotSignatureError,
    UnsafeLocalExecutor,
    Waiting,
    key_beside,
)
from batonflow.tools.code.signing import process_key, sign, verify
from tests.tools.code.sessions import EXECUTORS, KEY, TOOLS, opened, replied, run

ROOT = Path(__file__).resolve().parents[3]
# Reads {"executor", "snapshot", "answers"}, goes on, and writes what was pending and what became of it.
ELSEWHERE = """
import asyncio, json, os, sys
from batonflow.tools import code
from tests.tools.code.sessions import KEY, TOOLS

async def main():
    order = json.loads(sys.stdin.read())
    executor = getattr(code, order["executor"])(key=KEY)
    session = await executor.open(TOOLS, restore=bytes.fromhex(order["snapshot"]), run_id="r")
    pending = [[call.id, call.tool, call.arguments] for call in session.pending]
    turn = await session.answer(order["answers"])
    (last,) = turn.calls
    turn = await session.answer({last.id: "Z"})
    later = await session.start(order["then"])
    await session.aclose()
    print(json.dumps([os.getpid(), pending, last.id, turn.output, turn.value, later.value]))

asyncio.run(main())
"""
IN_THE_MIDDLE = """
import asyncio
print("before")
results = (await echo("a")) + str(await asyncio.gather(echo(1), echo(2), echo(3))) + (await echo("z"))
print("after")
results
"""


class LaterMonty(MontyExecutor):
    """The same interpreter under the name of another version: it may not read the state of this one."""

    version = property(lambda self: "99.0")  # type: ignore[assignment]


async def elsewhere(executor: Executor, snapshot: bytes, answers: dict[str, object], then: str) -> list[object]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ELSEWHERE, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    order = {"executor": type(executor).__name__, "snapshot": snapshot.hex(), "answers": answers, "then": then}
    output, _ = await process.communicate(json.dumps(order).encode())
    assert process.returncode == 0
    return json.loads(output)


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param(key=KEY)


@pytest.fixture
async def waiting(executor: Executor) -> AsyncIterator[Session]:
    """A session in the middle of a line: one of three gathered calls is answered, two are open."""
    async with opened(executor, run_id="r") as session:
        await session.start("kept = [1, 2]\ndef total():\n    return sum(kept)")
        turn = await session.start(IN_THE_MIDDLE)
        turn = await session.answer({"r/2/1": "A"})
        assert isinstance(turn, Calls)
        assert isinstance(await session.answer({"r/2/3": "two"}), Waiting)
        yield session


class TestElsewhere:
    async def test_another_process_goes_on_in_the_middle_of_a_line(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        assert snapshot is not None
        pid, pending, *rest = await elsewhere(executor, snapshot, {"r/2/2": "one", "r/2/4": "three"}, "total()")
        assert pid != os.getpid()
        assert pending == [["r/2/2", "echo", {"value": 1}], ["r/2/4", "echo", {"value": 3}]]
        assert rest == ["r/2/5", "before\nafter\n", "A['one', 'two', 'three']Z", 3]

    async def test_the_session_that_was_written_goes_on_too(self, waiting: Session) -> None:
        assert await waiting.snapshot() is not None
        turn = await waiting.answer({"r/2/2": "one", "r/2/4": "three"})
        assert isinstance(turn, Calls)
        turn = await waiting.answer({turn.calls[0].id: "Z"})
        assert turn == Done(output="before\nafter\n", value="A['one', 'two', 'three']Z")
        assert await waiting.start("total()") == Done(output="", value=3)

    async def test_a_snapshot_can_be_restored_any_number_of_times(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        for answer in ("x", "y"):
            async with opened(executor, restore=snapshot) as again:
                assert (again.run_id, again.snippet) == ("r", 2)
                turn = await again.answer({"r/2/2": answer, "r/2/4": 0})
                assert isinstance(turn, Calls)
                done = await again.answer({turn.calls[0].id: ""})
                assert done == Done(output="before\nafter\n", value=f"A['{answer}', 'two', 0]")

    async def test_between_snippets(self, executor: Executor) -> None:
        async with opened(executor, run_id="r") as session:
            await run(session, "class P:\n    def __init__(self, x):\n        self.x = x\np = P(await add(1))")
            failed = await run(session, "q = 5\nawait find('nobody')")
            assert isinstance(failed, Failed)
            snapshot = await session.snapshot()
        async with opened(executor, restore=snapshot) as again:
            assert again.pending == ()
            assert await run(again, "p.x + q + await add(1)") == Done(output="", value=9)
            assert again.snippet == 3

    async def test_limits_and_output_are_those_of_the_snippet(self, executor: Executor) -> None:
        limits = Limits(output_bytes=20, calls=2)
        async with opened(executor, limits, run_id="r") as session:
            await session.start("print('x' * 15)\nawait add(1)\nprint('y' * 15)\nawait add(2)\nawait add(3)")
            snapshot = await session.snapshot()
        async with opened(executor, restore=snapshot) as again:
            assert isinstance(await again.answer(replied(again)), Calls)
            turn = await again.answer(replied(again))
            assert isinstance(turn, Failed)
            assert turn.kind == "limit"
            assert turn.output == "xxxxxxxxxxxxxxx\nyyyy\n[output cut at 20 bytes]"

    async def test_an_interrupted_session_stays_interrupted(self, executor: Executor, waiting: Session) -> None:
        waiting.interrupt()
        snapshot = await waiting.snapshot()
        async with opened(executor, restore=snapshot) as again:
            turn = await again.answer({"r/2/2": 1})
            assert isinstance(turn, Failed)
            assert turn.kind == "interrupted"

    async def test_a_failed_snippet_is_undone_after_a_restore_as_well(self) -> None:
        executor = MontyExecutor(key=KEY)
        async with opened(executor, Limits(seconds=0.3), run_id="r") as session:
            await session.start("kept = 1")
            await session.start("kept = 2\nawait add(1)\nwhile True: pass")
            snapshot = await session.snapshot()
        async with opened(executor, restore=snapshot) as again:
            turn = await again.answer(replied(again))
            assert isinstance(turn, Failed)
            assert turn.kind == "limit"
            assert await again.start("kept") == Done(output="", value=1)


class TestSignature:
    async def test_no_altered_snapshot_is_loaded(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        assert snapshot is not None
        for at in [*range(0, len(snapshot), max(1, len(snapshot) // 60)), len(snapshot) - 1]:
            altered = bytearray(snapshot)
            altered[at] ^= 1
            with pytest.raises(SnapshotSignatureError):
                await executor.open(TOOLS, restore=bytes(altered))

    @pytest.mark.parametrize("data", [b"", b"junk", b"BATONFLOW-CODE-1\n", b"x" * 1000])
    async def test_what_is_no_snapshot_is_not_loaded(self, executor: Executor, data: bytes) -> None:
        with pytest.raises(SnapshotSignatureError):
            await executor.open(TOOLS, restore=data)

    async def test_a_cut_snapshot_is_not_loaded(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        assert snapshot is not None
        with pytest.raises(SnapshotSignatureError):
            await executor.open(TOOLS, restore=snapshot[:-5])

    async def test_a_snapshot_signed_with_another_key_is_not_loaded(self, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        with pytest.raises(SnapshotSignatureError, match="signed with another key; nothing of it was loaded"):
            await MontyExecutor(key=b"another key, long enough").open(TOOLS, restore=snapshot)

    async def test_a_snapshot_of_another_run_is_not_loaded(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        with pytest.raises(SnapshotSignatureError, match="belongs to run 'r', not to 'other'"):
            await executor.open(TOOLS, restore=snapshot, run_id="other")

    async def test_without_a_key_only_this_process_can_restore(self) -> None:
        async with opened(MontyExecutor()) as session:
            await session.start("x = 1")
            snapshot = await session.snapshot()
        async with opened(MontyExecutor(), restore=snapshot) as again:
            assert await again.start("x") == Done(output="", value=1)
        with pytest.raises(SnapshotSignatureError):
            await MontyExecutor(key=KEY).open(TOOLS, restore=snapshot)

    async def test_a_key_may_be_given_when_opening(self) -> None:
        async with opened(MontyExecutor(), key=KEY) as session:
            snapshot = await session.snapshot()
        async with opened(MontyExecutor(key=KEY), restore=snapshot):
            pass


class TestAnotherVersion:
    async def test_the_snippets_run_again_with_the_recorded_answers(self) -> None:
        async with opened(MontyExecutor(key=KEY), run_id="r") as session:
            await run(
                session,
                "import random, datetime\nx = await add(1)\ny = [random.random(), str(datetime.datetime.now())]",
            )
            limit = await run(session, "x = [0] * 10 ** 9")
            assert isinstance(limit, Failed)
            first = await session.start("y")
            await session.start(IN_THE_MIDDLE)
            await session.answer({"r/4/1": "A"})
            await session.answer({"r/4/3": "two"})
            snapshot = await session.snapshot()
        async with opened(LaterMonty(key=KEY), restore=snapshot) as again:
            assert [call.id for call in again.pending] == ["r/4/2", "r/4/4"]
            turn = await again.answer({"r/4/2": 1, "r/4/4": 3})
            assert isinstance(turn, Calls)
            assert turn.calls[0].id == "r/4/5"
            assert await again.answer({"r/4/5": "Z"}) == Done(output="before\nafter\n", value="A[1, 'two', 3]Z")
            # Chance and the clock are as they were.
            assert await again.start("y") == first
            assert await again.start("x") == Done(output="", value=2)

    async def test_another_course_is_noticed(self) -> None:
        executor = UnsafeLocalExecutor(key=KEY)
        async with opened(executor, run_id="r") as session:
            await session.start("import os\nawait echo(os.getpid())")
            snapshot = await session.snapshot()
        with pytest.raises(SnapshotMismatchError, match=r"snippet 1 of run 'r' .* made other calls than recorded"):
            await executor.open(TOOLS, restore=snapshot)

    async def test_what_was_stopped_at_an_unknown_point_is_not_written(self) -> None:
        async with opened(UnsafeLocalExecutor(key=KEY), Limits(seconds=0.2)) as session:
            await session.start("n = 0\nwhile True: n += 1")
            assert await session.snapshot() is None

    async def test_a_missing_tool_is_named(self, executor: Executor, waiting: Session) -> None:
        snapshot = await waiting.snapshot()
        with pytest.raises(SnapshotMismatchError, match="needs the tools find, echo: give them"):
            await executor.open(TOOLS[:1], restore=snapshot)

    async def test_another_executor_is_named(self) -> None:
        async with opened(UnsafeLocalExecutor(key=KEY)) as session:
            snapshot = await session.snapshot()
        with pytest.raises(SnapshotMismatchError, match="of the executor 'unsafe_local', this is 'monty'"):
            await MontyExecutor(key=KEY).open(TOOLS, restore=snapshot)


class TestKeys:
    def test_machines_share_the_key_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = process_key()
        monkeypatch.setenv("BATONFLOW_KEY", "ab" * 32)
        assert process_key() == bytes.fromhex("ab" * 32) != own
        for wrong in ("ab" * 8, "no key"):
            monkeypatch.setenv("BATONFLOW_KEY", wrong)
            with pytest.raises(ValueError, match="BATONFLOW_KEY does not hold a key") as raised:
                process_key()
            assert wrong not in str(raised.value)

    def test_a_key_beside_the_store_is_made_once_and_for_its_owner_alone(self, tmp_path: Path) -> None:
        store = tmp_path / "runs.sqlite"
        key = key_beside(store)
        file = tmp_path / "runs.sqlite.key"
        assert len(key) == 32
        assert file.stat().st_mode & 0o777 == 0o600
        assert key_beside(store) == key
        assert [path.name for path in tmp_path.iterdir()] == ["runs.sqlite.key"]

    def test_a_key_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        key_beside(tmp_path / "s")
        (tmp_path / "s.key").chmod(0o644)
        with pytest.raises(PermissionError, match="chmod 600"):
            key_beside(tmp_path / "s")

    def test_a_short_key_is_refused(self) -> None:
        with pytest.raises(ValueError, match="15 bytes: at least 16"):
            MontyExecutor(key=b"x" * 15)

    def test_what_is_signed_can_be_read_with_the_same_key(self) -> None:
        assert verify(KEY, sign(KEY, b"content")) == b"content"


@pytest.mark.external("bubblewrap")
async def test_bubblewrap_goes_on_by_running_the_snippets_again() -> None:
    executor = BubblewrapExecutor(key=KEY)
    async with opened(executor, run_id="r") as session:
        await run(session, "import random\nx = [random.random(), list({'a', 'b', 'c', 'd'})]")
        first = await session.start("x")
        snapshot = await session.snapshot()
    async with opened(executor, restore=snapshot) as again:
        assert await again.start("x") == first

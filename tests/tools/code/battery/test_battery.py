"""The battery: every attack gets through to bare ``exec``, and none out of a sandbox; every bomb is held."""

import asyncio
import builtins
import json
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from batonflow.tools import tool
from batonflow.tools.code import Calls, Done, Executor, Failed, Limits, Session, Turn, Waiting
from tests.tools.code.battery.attacks import ATTACKS, Attack
from tests.tools.code.battery.bombs import BOMBS, Bomb
from tests.tools.code.battery.world import World, world
from tests.tools.code.sessions import KEY, SANDBOXES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the traces that attacks leave are read as on Linux")

BARE = Path(__file__).parent / "bare.py"
LIMITS = Limits(seconds=0.4, memory_mb=64, output_bytes=10_000, calls=100)
# Time enough for what ends by itself, also while bombs keep all cores busy.
WIDE_LIMITS = Limits(seconds=10.0, memory_mb=128)
PROVEN = 0.4
MB = 2**20


@tool
async def lookup(query: str = "x") -> str:
    """Look something up."""
    return f"found {query}"


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Executor:
    return request.param(key=KEY)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path) as made:
        monkeypatch.setenv("CANARY", made.secrets["environment"])
        yield made


async def played(session: Session, code: str) -> tuple[Turn, str]:
    """The last turn, and everything that came out of the sandbox."""
    turn = await session.start(code)
    said: list[str] = []
    while isinstance(turn, Calls | Waiting):
        said.append(repr(turn))
        turn = await session.answer({call.id: f"found {call.arguments}"[:1000] for call in session.pending})
    said.append(f"{turn.output}\n{turn.value!r}" if isinstance(turn, Done) else f"{turn.output}\n{turn.text}")
    return turn, "\n".join(said)


def proven(these: Sequence[Attack] | Sequence[Bomb]) -> list[Any]:
    """Those that bare ``exec`` can show to work: every third one, and all of them in ``make soak``."""
    soak = pytest.mark.soak(only=True)
    some = [one for one in these if not one.unproven]
    return [pytest.param(one, id=one.name, marks=soak if number % 3 else ()) for number, one in enumerate(some)]


def test_there_are_enough() -> None:
    assert len({one.name for one in ATTACKS}) == len(ATTACKS) >= 49
    assert len({one.name for one in BOMBS}) == len(BOMBS) >= 13


class TestAttacks:
    @pytest.mark.parametrize("attack", proven(ATTACKS))
    async def test_it_gets_through_to_bare_exec(self, attack: Attack, here: World) -> None:
        assert here.traces("") == []
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(BARE), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=here.folder,
            env={"PATH": os.environ["PATH"], "CANARY": here.secrets["environment"],
                 "GLOBAL_SECRET": here.secrets["variable"], "BARE_CODE": here.code(attack.code)},
        )  # fmt: skip
        output, errors = await process.communicate()
        found = here.traces(output.decode())
        for _ in range(100):  # one that was killed may need a moment to be seen dead
            if found:
                break
            await asyncio.sleep(0.02)
            found = here.traces(output.decode())
        assert found, errors.decode()[-2000:]

    @pytest.mark.parametrize("attack", [pytest.param(one, id=one.name) for one in ATTACKS])
    async def test_it_does_not_get_out_of_the_sandbox(
        self, attack: Attack, sandbox: Executor, here: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.modules["__main__"], "SECRET", here.secrets["variable"], raising=False)
        before = (builtins.len, json.dumps, sys.getrecursionlimit(), list(sys.meta_path), lookup.real_fn.__defaults__)
        session = await sandbox.open([lookup], WIDE_LIMITS)
        try:
            _, said = await played(session, here.code(attack.code))
            again, _ = await played(session, "1 + 1")
            if isinstance(again, Failed) and again.session_lost:
                # The code broke the interpreter it runs in, and itself alone.
                again, _ = await played(session, "1 + 1")
        finally:
            await session.aclose()
        assert here.traces(said) == []
        assert again == Done(output="", value=2)
        assert before == (
            builtins.len, json.dumps, sys.getrecursionlimit(), list(sys.meta_path), lookup.real_fn.__defaults__
        )  # fmt: skip


class TestBombs:
    @pytest.mark.parametrize("bomb", proven(BOMBS))
    async def test_it_goes_off_in_bare_exec(self, bomb: Bomb, tmp_path: Path) -> None:
        with (tmp_path / "output").open("wb+") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(BARE), stdin=asyncio.subprocess.DEVNULL, stdout=output,
                stderr=asyncio.subprocess.DEVNULL, cwd=tmp_path, preexec_fn=_small_files,
                env={"PATH": os.environ["PATH"], "BARE_CODE": bomb.code},
            )  # fmt: skip
            largest = 0
            loop = asyncio.get_running_loop()
            began = loop.time()
            ended = asyncio.ensure_future(process.wait())
            while not ended.done() and not _goes_off(bomb, loop.time() - began, largest):
                largest = max(largest, _resident(process.pid))
                if not os.fstat(output.fileno()).st_size:
                    # The interpreter is not up yet.
                    began = loop.time()
                await asyncio.sleep(0.01)
            if not ended.done():
                process.kill()
            await ended
            wrote = output.seek(0, os.SEEK_END)
            output.seek(0)
            took = b"took it" in output.read(10_000) or (bomb.shown == "output" and wrote > 10 * MB)
        assert took or _goes_off(bomb, loop.time() - began, largest)

    @pytest.mark.parametrize("bomb", [pytest.param(one, id=one.name) for one in BOMBS])
    async def test_it_is_held_and_the_host_answers(self, bomb: Bomb, sandbox: Executor) -> None:
        session, other = await sandbox.open([lookup], LIMITS), await sandbox.open([lookup], WIDE_LIMITS)
        try:
            bombed = asyncio.create_task(played(session, bomb.code))
            answers = 0
            while answers == 0 or not bombed.done():
                assert await other.start("1 + 1") == Done(output="", value=2)
                answers += 1
                await asyncio.sleep(0)
            turn, said = await bombed
            again = await session.start("1 + 1")
        finally:
            await session.aclose()
            await other.aclose()
        assert "took it" not in said.replace("'took it'", "").replace('"took it"', "")
        assert isinstance(turn, Failed | Done)
        assert len(said) < 100_000
        assert again == Done(output="", value=2)


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50 * MB, 50 * MB))


def _goes_off(bomb: Bomb, seconds: float, resident: int) -> bool:
    return seconds > PROVEN if bomb.shown == "time" else bomb.shown == "memory" and resident > 200 * MB


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0

"""Sessions of many processes with killed ones among them: each message is answered once, in order, and none is lost."""

import asyncio
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import FunctionAgent
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.llms import ScriptedLLM
from tests.promises.crash.chatting import answer

ROOT = Path(__file__).parents[3]


class Answering:
    """A process that answers messages."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            if "id" in said and not (waiting := self.waiting.pop(said["id"])).done():
                if "error" in said:
                    waiting.set_exception(AssertionError(said["error"]))
                else:
                    waiting.set_result(said["answer"])
        for waiting in self.waiting.values():
            waiting.cancel()

    async def ask(self, session: str, request_id: str, text: str) -> str | None:
        """Return the answer; None if the process was killed before."""
        if request_id in self.waiting:
            future = self.waiting[request_id]
        else:
            future = self.waiting[request_id] = asyncio.get_running_loop().create_future()
            assert self.process.stdin is not None
            self.process.stdin.write(f"{json.dumps([session, request_id, text])}\n".encode())
        if self._reading.done():
            return None
        await asyncio.wait([future])
        return None if future.cancelled() else future.result()

    def kill(self) -> None:
        """End the process as a power failure does."""
        self.process.kill()

    async def end(self) -> None:
        """Wait for the end of the process, after its last answer."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()
        await self._reading


class Pool:
    """The processes; a killed one is replaced."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder, self._dice = folder, dice
        self.all: list[Answering] = []
        self._ended: list[Answering] = []
        self.killed = 0

    async def start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.promises.crash.chatting", str(self._folder), cwd=ROOT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        self.all.append(Answering(process))

    async def kill_one(self) -> None:
        """Kill a process, and start another one."""
        killed = self.all.pop(self._dice.randrange(len(self.all)))
        self._ended.append(killed)
        killed.kill()
        self.killed += 1
        await self.start()

    async def ask(self, session: str, request_id: str, text: str) -> str:
        """Send a message, to two processes at times, and again if its process is killed."""
        while True:
            chosen = self._dice.sample(self.all, k=min(len(self.all), self._dice.choice((1, 1, 2))))
            answers = await asyncio.gather(*(one.ask(session, request_id, text) for one in chosen))
            given = {answer for answer in answers if answer is not None}
            assert len(given) <= 1, f"{request_id} was answered twice: {given}"
            if given:
                return given.pop()

    async def end(self) -> None:
        for one in [*self._ended, *self.all]:
            await one.end()


async def talk(pool: Pool, session: str, user: int, messages: int, answers: dict[str, str]) -> None:
    """Send the messages of one user, the next one after the answer."""
    for number in range(messages):
        request_id = f"{session}/{user}/{number}"
        answers[request_id] = await pool.ask(session, request_id, f"from {user}, number {number}")


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_each_message_is_answered_once_and_in_order(tmp_path: Path, soaks: bool) -> None:
    processes, sessions, users, messages, kills = (8, 10, 4, 25, 25) if soaks else (3, 3, 2, 6, 3)
    dice = random.Random(7)
    pool, answers = Pool(tmp_path, dice), dict[str, str]()
    await asyncio.gather(*(pool.start() for _ in range(processes)))
    try:
        users_of_all = [
            asyncio.create_task(talk(pool, f"s{session}", user, messages, answers))
            for session in range(sessions)
            for user in range(users)
        ]
        for _ in range(kills):
            await asyncio.sleep(dice.uniform(0.05, 0.4))
            await pool.kill_one()
        async with asyncio.timeout(540):
            await asyncio.gather(*users_of_all)
    finally:
        for task in users_of_all:
            task.cancel()
        await pool.end()
    assert pool.killed == kills
    assert len(answers) == sessions * users * messages
    await check(tmp_path, sessions, users, messages, answers)


async def check(folder: Path, sessions: int, users: int, messages: int, answers: dict[str, str]) -> None:
    """Compare the answers that users got with the turns in the store."""
    store = SQLiteStore(folder / "runs.db")
    agent: FunctionAgent[Any, Any] = FunctionAgent(llm=ScriptedLLM([]), store=store)
    for session in range(sessions):
        turns = [turn async for turn in agent.session(f"s{session}").turns()]
        assert [turn.number for turn in turns] == [*range(1, users * messages + 1)]
        numbers = defaultdict[str, list[int]](list)
        for place, turn in enumerate(turns):
            assert turn.request_id is not None
            assert turn.user_msg is not None
            assert turn.output == f"{2 * place} {turn.user_msg.content}", "it knows all turns before it, and only these"
            assert answers[turn.request_id] == turn.output
            _, user, number = turn.request_id.split("/")
            numbers[user].append(int(number))
        assert all(found == [*range(messages)] for found in numbers.values())
        assert len(await agent.session(f"s{session}").messages()) == 2 * users * messages
    await store.aclose()


DYING = """
import asyncio, os, sys
from batonflow.agents import FunctionAgent
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.llms import ScriptedLLM

async def main():
    agent = FunctionAgent(llm=ScriptedLLM([lambda request: os._exit(9)]), store=SQLiteStore(sys.argv[1]))
    await agent.run("hello", session="s", request_id="r")

asyncio.run(main())
"""


@pytest.mark.parametrize(("request_id", "answers"), [("r", ["0 hello"]), ("another", ["0 hello", "2 hello"])])
async def test_a_turn_that_a_dying_process_began_first_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_id: str, answers: list[str]
) -> None:
    """The message was prepared as the turn that the other process began."""
    store = SQLiteStore(tmp_path / "runs.db")
    open_turn, died = store.open_turn, list[int]()

    async def open_after_another(*arguments: Any) -> Any:
        if not died:
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(store.path), cwd=ROOT)
            died.append(await other.wait())
        return await open_turn(*arguments)

    monkeypatch.setattr(store, "open_turn", open_after_another)
    agent: FunctionAgent[Any, Any] = FunctionAgent(llm=ScriptedLLM([answer, answer]), store=store)
    async with asyncio.timeout(30):
        output = await agent.run("hello", session="s", request_id=request_id, if_busy="wait")
    assert died == [9]
    assert str(output) == answers[-1]
    said = [message.content for message in await agent.session("s").messages()]
    assert said == [text for one in answers for text in ("hello", one)]
    await store.aclose()

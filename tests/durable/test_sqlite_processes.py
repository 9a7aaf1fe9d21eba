"""SQLiteStore with real processes on one file: they take over from each other, and nothing is lost or written twice."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable.search import RunQuery, find_runs
from batonflow.durable.store_protocol import Busy, Claimed
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import TTL, begin, bodies, known, take, write

ROOT = Path(__file__).parents[2]

# Reads a line of Python from its input, evaluates it with its own store, and prints what it gave.
WORKER = """
import asyncio, dataclasses, inspect, json, sys
from batonflow.durable.search import RunQuery, find_runs
from batonflow.durable.stores.sqlite import SQLiteStore
from tests.durable.runs import *

store = SQLiteStore(sys.argv[1])

async def main():
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        result = eval(line)
        if inspect.isawaitable(result):
            result = await result
        print(json.dumps(result, default=dataclasses.asdict), flush=True)

asyncio.run(main())
"""


class Worker:
    """Another process with a store on the same file."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, code: str) -> None:
        assert self.process.stdin is not None
        print(code, file=self.process.stdin, flush=True)

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.to_thread(self.process.stdout.readline))

    async def ask(self, code: str) -> Any:
        self.tell(code)
        return await self.answer()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    await store.aclose()


@pytest.fixture
def start(path: Path) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(path))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


async def test_the_runs_of_a_killed_process_are_taken_over_at_once(store: SQLiteStore, start: Callable[[], Worker]):
    worker = start()
    assert await worker.ask("begin(store)") == 1
    assert await worker.ask("write(store, 1, 0, [b'1', b'2'])") == "committed"
    assert isinstance(await store.claim("a", store.owner, TTL), Busy)
    worker.signal(signal.SIGKILL)
    claimed = await store.claim("a", store.owner, TTL)
    assert claimed == Claimed("a", epoch=2, seq=2, stream_seq=0, workflow="Flow")
    assert await bodies(store) == [b"1", b"2"]
    assert await write(store, 2, 2) == "committed"
    owners = store.path.with_name("runs.db-owners")
    assert [file.name for file in owners.iterdir()] == [f"{store.owner}.lock"]


async def test_a_process_that_slept_through_its_lease_is_fenced(store: SQLiteStore, start: Callable[[], Worker]):
    worker = start()
    await worker.ask("begin(store, ttl=1.0)")
    await worker.ask("store.hold('a', 1)")
    await asyncio.sleep(1.5)
    assert isinstance(await store.claim("a", store.owner, TTL), Busy)  # it is held
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(1.2)
    assert (await known(store)).owner_alive
    assert (await take(store)).epoch == 2
    worker.signal(signal.SIGCONT)
    assert await worker.ask("write(store, 1, 0, [b'late'])") == "fenced"
    assert await worker.ask("store.park('a', store.owner, 1, 0, None)") is False
    assert await worker.ask("store.renew(store.owner, [('a', 1)], 15)") == ["a"]
    assert await write(store, 2, 0, [b"mine"]) == "committed"
    assert await bodies(store) == [b"mine"]


async def test_two_processes_search_while_a_third_writes(store: SQLiteStore, start: Callable[[], Worker]):
    writer, reader = start(), start()
    told = ["tests.Said", {"text": "harbour"}]
    first = json.dumps({"t": 1.0, "e": 0.0, "r": [{"kind": "started", "id": 1, "path": "", "event": told}]}).encode()
    every = [f"r{number}" for number in range(200)]
    writer.tell(f"asyncio.gather(*[begin(store, f'r{{n}}', first={first!r}) for n in range(200)])")
    here = there = list[str]()
    while not len(here) == len(there) == len(every):
        reader.tell("find_runs(store, RunQuery(text='harb'), limit=1000)")
        here = [info.run_id for info in (await find_runs(store, RunQuery(text="harb"), limit=1000)).runs]
        runs, unread = await reader.answer()
        there = [run["run_id"] for run in runs]
        assert unread == 0
        assert len(set(here)) == len(here)
    assert await writer.answer() == [1] * len(every)
    assert sorted(here) == sorted(there) == sorted(every)


async def test_processes_share_the_work_and_each_run_is_driven_by_one(store: SQLiteStore, start: Callable[[], Worker]):
    for number in range(40):
        await store.release(f"r{number}", store.owner, await begin(store, f"r{number}"))
    workers = [start() for _ in range(3)]
    for worker in workers:
        worker.tell("store.claim_due(store.owner, 15, 14)")
    taken = [claimed["run_id"] for worker in workers for claimed in await worker.answer()]
    assert sorted(taken) == sorted(f"r{number}" for number in range(40))


async def test_processes_that_write_at_once_lose_nothing(store: SQLiteStore, start: Callable[[], Worker]):
    workers = [start() for _ in range(3)]
    await begin(store, "mine")
    for number, worker in enumerate(workers):
        assert await worker.ask(f"begin(store, 'w{number}')") == 1
    for number, worker in enumerate(workers):
        worker.tell(f"asyncio.gather(*(write(store, 1, n, [b'%d' % n], 'w{number}') for n in range(200)))")
    for seq in range(200):
        assert await write(store, 1, seq, run_id="mine") == "committed"
    for number, worker in enumerate(workers):
        assert await worker.answer() == ["committed"] * 200
        assert await bodies(store, f"w{number}") == [b"%d" % n for n in range(200)]


async def test_what_another_process_appends_wakes_those_who_wait(store: SQLiteStore, start: Callable[[], Worker]):
    worker = start()
    await begin(store)
    await worker.ask("store.info('a')")
    seen = (await store.changed(-1)).number
    changes = await asyncio.wait_for(store.changed(seen), 30)  # of what was before, nothing is known
    seen = changes.number
    waiting = asyncio.create_task(store.changed(seen))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await worker.ask("store.append('a', 'k', b'from there')")
    await asyncio.wait_for(waiting, 30)
    assert [item.payload for item in (await store.unread({"a": 0}))["a"]] == [b"from there"]


async def test_commits_of_another_process_wake_subscribers_but_not_those_who_wait_for_the_inbox(
    store: SQLiteStore, start: Callable[[], Worker]
):
    worker = start()
    await worker.ask("begin(store)")
    seen = (await asyncio.wait_for(store.changed((await store.changed(-1)).number), 30)).number
    waiting = asyncio.create_task(store.changed(seen))
    commits = store.subscribe("a")
    for seq in range(3):
        await worker.ask(f"write(store, 1, {seq}, [b'%d' % {seq}])")
        assert (await asyncio.wait_for(anext(commits), 30)).body == b"%d" % seq
    assert not waiting.done()
    waiting.cancel()
    worker.tell("write(store, 1, 3, [b'end'], status='completed')")
    assert [commit.body async for commit in commits] == [b"end"]
    assert await worker.answer() == "committed"


async def test_a_process_killed_in_the_midst_of_writing_leaves_whole_pieces(
    store: SQLiteStore, start: Callable[[], Worker]
):
    for number in range(4):
        worker = start()
        run_id = f"r{number}"
        await worker.ask(f"begin(store, {run_id!r})")
        worker.tell(f"asyncio.gather(*(write(store, 1, 5 * n, [b'%d' % n] * 5, {run_id!r}) for n in range(5000)))")
        commits = store.subscribe(run_id)
        for _ in range(50 * number):
            await anext(commits)
        await commits.aclose()
        worker.signal(signal.SIGKILL)
        claimed = await take(store, run_id)
        assert claimed.seq % 5 == 0
        assert await bodies(store, run_id) == [b"%d" % (n // 5) for n in range(min(claimed.seq, 1000))]
        assert await write(store, 2, claimed.seq, run_id=run_id) == "committed"

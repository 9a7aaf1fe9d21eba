"""The floor: what a careful engineer would write by hand on asyncio, for each program and for nothing else.

A router with one mailbox, which looks the type of an event up in a dict, starts one task for each step it calls, and
gets the result back through the mailbox. No validation, no typed state, no retries, no late readers, no snapshots.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from measuring import Program, Watch, per_unit, resident_kib

__all__ = ["FLOOR"]


class Message:
    """An event by hand: a type and some attributes."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Start(Message):
    value: int = 0


class Ping(Message):
    left: int


class Pong(Message):
    left: int


class Job(Message):
    number: int


class Result(Message):
    number: int


class Stop(Message):
    result: Any


Step = Callable[["Router", Any], Awaitable[Message | None]]


class Router:
    """Steps by event type, at most so many of each at the same time."""

    def __init__(self, steps: dict[type[Message], tuple[Step, int]]) -> None:
        self.steps = steps
        self.mailbox: asyncio.Queue[Any] = asyncio.Queue()
        self.running = dict.fromkeys(steps, 0)
        self.queued: dict[type[Message], deque[Message]] = {kind: deque() for kind in steps}
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, message: Message) -> None:
        self.mailbox.put_nowait(message)

    async def _call(self, step: Step, message: Message) -> None:
        self.mailbox.put_nowait((type(message), await step(self, message)))

    def _start(self, message: Message) -> None:
        kind = type(message)
        step, limit = self.steps[kind]
        if self.running[kind] >= limit:
            self.queued[kind].append(message)
            return
        self.running[kind] += 1
        task = asyncio.get_running_loop().create_task(self._call(step, message))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, first: Message) -> Any:
        self._start(first)
        while True:
            arrived = await self.mailbox.get()
            if isinstance(arrived, Message):
                self._start(arrived)
                continue
            kind, result = arrived
            self.running[kind] -= 1
            if self.queued[kind]:
                self._start(self.queued[kind].popleft())
            if isinstance(result, Stop):
                return result.result
            if result is not None:
                self._start(result)


async def hop(units: int) -> dict[str, float]:
    async def start(_: Router, message: Start) -> Message:
        return Ping(left=message.value)

    async def ping(_: Router, message: Ping) -> Message:
        return Pong(left=message.left - 1) if message.left else Stop(result="out")

    async def pong(_: Router, message: Pong) -> Message:
        return Ping(left=message.left - 1) if message.left else Stop(result="out")

    steps: dict[type[Message], tuple[Step, int]] = {Start: (start, 4), Ping: (ping, 4), Pong: (pong, 4)}
    await Router(steps).run(Start(value=50))
    with Watch() as watch:
        assert await Router(steps).run(Start(value=units)) == "out"
    return per_unit(watch, units)


async def three_steps(units: int) -> dict[str, float]:
    async def one(_: Router, message: Start) -> Message:
        return Ping(left=message.value)

    async def two(_: Router, message: Ping) -> Message:
        return Pong(left=message.left + 1)

    async def three(_: Router, message: Pong) -> Message:
        return Stop(result=message.left + 1)

    steps: dict[type[Message], tuple[Step, int]] = {Start: (one, 4), Ping: (two, 4), Pong: (three, 4)}
    with Watch() as watch:
        for value in range(units):
            run = asyncio.get_running_loop().create_task(Router(steps).run(Start(value=value)))
            assert await run == value + 2
    return per_unit(watch, units)


async def concurrent_runs(units: int) -> dict[str, float]:
    async def nap(_: Router, __: Start) -> Message:
        await asyncio.sleep(0.005)
        return Stop(result=1)

    steps: dict[type[Message], tuple[Step, int]] = {Start: (nap, 4)}
    with Watch() as watch:
        assert sum(await asyncio.gather(*[Router(steps).run(Start()) for _ in range(units)])) == units
    return per_unit(watch, units)


async def fan_out(units: int) -> dict[str, float]:
    found: list[int] = []

    async def spread(router: Router, _: Start) -> None:
        for number in range(units):
            router.send(Job(number=number))

    async def work(_: Router, message: Job) -> Message:
        return Result(number=message.number)

    async def join(_: Router, message: Result) -> Message | None:
        found.append(message.number)
        return Stop(result=sum(found)) if len(found) == units else None

    steps: dict[type[Message], tuple[Step, int]] = {Start: (spread, 4), Job: (work, 4), Result: (join, 4)}
    with Watch() as watch:
        assert await Router(steps).run(Start()) == units * (units - 1) // 2
    return per_unit(watch, units)


async def streamed(units: int) -> dict[str, float]:
    stream: asyncio.Queue[Message | None] = asyncio.Queue()

    async def talk() -> None:
        for number in range(units):
            stream.put_nowait(Job(number=number))
            if number % 10 == 9:
                await asyncio.sleep(0)
        stream.put_nowait(None)

    read = 0
    with Watch() as watch:
        task = asyncio.get_running_loop().create_task(talk())
        while await stream.get() is not None:
            read += 1
        await task
    assert read == units
    return per_unit(watch, units)


async def state_keys(units: int) -> dict[str, float]:
    state: dict[str, int] = {}
    lock = asyncio.Lock()

    async def put(key: str, value: int) -> None:
        async with lock:
            state[key] = value

    async def get(key: str) -> int:
        return state[key]

    with Watch() as watch:
        for number in range(units):
            await put(f"k{number % 100}", number)
            assert await get(f"k{number % 100}") == number
    return per_unit(watch, units)


async def snapshot_keys(units: int) -> dict[str, float]:
    state = {f"k{number}": {"v": number, "s": "x" * 20} for number in range(units)}
    with Watch() as watch:
        assert json.loads(json.dumps(state)) == state
    return per_unit(watch, units)


async def paused(units: int) -> dict[str, float]:
    async def until_it_asks() -> tuple["asyncio.Task[Any]", "asyncio.Future[int]"]:
        asked: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()

        async def ask(_: Router, __: Start) -> Message:
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asked.put_nowait(answer)
            return Stop(result=await answer)

        run = asyncio.get_running_loop().create_task(Router({Start: (ask, 4)}).run(Start()))
        return run, await asked.get()

    before = resident_kib()
    with Watch() as watch:
        waiting = [await until_it_asks() for _ in range(units)]
    weight = (resident_kib() - before) / units
    for _, answer in waiting:
        answer.set_result(1)
    assert sum(await asyncio.gather(*[run for run, _ in waiting])) == units
    return per_unit(watch, units, kib=weight)


FLOOR: dict[str, Program] = {
    "hop": hop,
    "hop, memory journal": hop,
    "three-step run": three_steps,
    "concurrent run": concurrent_runs,
    "fan-out item": fan_out,
    "streamed event": streamed,
    "set and get of a state key": state_keys,
    "dump and load of a state key": snapshot_keys,
    "paused run": paused,
}
"""Program name -> the same by hand; what has no meaning without an engine is left out."""

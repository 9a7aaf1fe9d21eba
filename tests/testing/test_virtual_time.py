"""The virtual clock: hours of timers in milliseconds, in their right order, and nothing mocked."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from batonflow.testing import run_virtual
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowTimeoutError,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed

HOUR = 3600.0


def in_real_seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


class Later(Event):
    hours: float


class Alarms(Workflow):
    @step
    async def set_alarms(self, ctx: Context, ev: StartEvent) -> Later | None:
        for hours in (7.0, 1.0, 24.0):
            ctx.send_event(Later(hours=hours))
        return None

    @step
    async def ring(self, ctx: Context, ev: Later) -> StopEvent | None:
        await asyncio.sleep(ev.hours * HOUR)
        rung = [*await ctx.store.get("rung", []), ev.hours]
        await ctx.store.set("rung", rung)
        return StopEvent(result=rung) if len(rung) == 3 else None


def test_a_day_of_sleeping_takes_no_time_and_keeps_its_order():
    async def day() -> None:
        loop = asyncio.get_running_loop()
        assert await Alarms(timeout=None).run() == [1.0, 7.0, 24.0]
        assert loop.time() == pytest.approx(24 * HOUR, abs=1)

    assert in_real_seconds(lambda: run_virtual(day())) < 5


class Unreliable(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(HOUR), stop=stop_after_attempt(5)))
    async def fetch(self, ctx: Context, ev: StartEvent) -> StopEvent:
        info = ctx.retry_info()
        if info.retry_number < 4:
            raise ConnectionError
        return StopEvent(result=round(info.elapsed_seconds / HOUR))


def test_retry_delays_pass_on_the_virtual_clock():
    async def run() -> object:
        return await Unreliable(timeout=None).run()

    assert run_virtual(run()) == 4


class Word(HumanResponseEvent):
    pass


class Patience(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(Word, timeout=2 * HOUR)
        except TimeoutError:
            return StopEvent(result="nobody came")
        return StopEvent(result="somebody came")


@pytest.mark.parametrize(("hours", "result"), [(1.9, "somebody came"), (2.1, "nobody came")])
def test_a_wait_ends_at_its_timeout_and_not_before(hours, result):
    async def run() -> object:
        handler = Patience(timeout=None).run()
        await asyncio.sleep(hours * HOUR)
        if not handler.is_done():
            await handler.send_event(Word())
        return await handler

    assert run_virtual(run()) == result


class Sleeper(Workflow):
    @step
    async def sleep(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(10 * HOUR)
        return StopEvent(result="rested")


def test_the_timeout_of_a_run_is_virtual_too():
    async def run(timeout: float) -> object:
        return await Sleeper(timeout=timeout).run()

    assert run_virtual(run(11 * HOUR)) == "rested"
    with pytest.raises(WorkflowTimeoutError, match=r"timed out after 32400\.0 seconds"):
        run_virtual(run(9 * HOUR))


class InThread(Workflow):
    @step
    def work(self, ev: StartEvent) -> StopEvent:
        time.sleep(0.05)
        return StopEvent(result=threading.current_thread() is threading.main_thread())


def test_while_a_thread_works_the_clock_waits_for_it():
    async def run() -> float:
        loop = asyncio.get_running_loop()
        # Were the clock to jump to the next timer at once, this run would time out.
        assert await InThread(timeout=10 * HOUR).run() is False
        return loop.time()

    assert run_virtual(run()) == 0.0


def test_ids_and_the_wall_clock_repeat_with_the_seed():
    async def run() -> tuple[str, float]:
        handler = Sleeper(timeout=None).run()
        await handler
        items = [item async for item in handler.subscribe()]
        return handler.run_id, items[-1].ts

    assert run_virtual(run(), seed=3) == run_virtual(run(), seed=3)
    assert run_virtual(run(), seed=3)[0] != run_virtual(run(), seed=4)[0]
    assert run_virtual(run(), seed=3)[1] == run_virtual(run(), seed=4)[1]


def test_the_result_or_error_of_the_coroutine_comes_out():
    async def fail() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        run_virtual(fail())


def test_sockets_work_in_between():
    async def talk() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            reply = await reader.readline()
            writer.close()
            await writer.wait_closed()
        return reply

    assert run_virtual(talk()) == b"HELLO\n"

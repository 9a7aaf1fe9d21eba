"""What is measured: small workflows that use one thing each, for batonflow and for LlamaIndex Workflows alike.

Every program checks its own outcome and returns the CPU seconds of one unit. They are written for the names that both
libraries share; only the module they come from differs.
"""

import asyncio
import gc
import json
import os
import time
from collections.abc import Callable
from typing import Any

from measuring import Program, Watch, per_unit, resident_kib

if os.environ.get("BENCHMARK_LIBRARY") == "workflows":
    from workflows import Context, Workflow, step
    from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
else:
    from batonflow.workflow_core import Context, Workflow, step
    from batonflow.workflow_core.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

__all__ = ["PROGRAMS"]

PROGRAMS: dict[str, Program] = {}


def program(name: str) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        PROGRAMS[name] = function
        return function

    return register


class Ping(Event):
    left: int


class Pong(Event):
    left: int


class Job(Event):
    number: int


class Result(Event):
    number: int


def ping_pong() -> Any:
    class PingPong(Workflow):
        @step
        async def serve(self, ev: StartEvent) -> Ping:
            return Ping(left=ev.hops)

        @step
        async def ping(self, ev: Ping) -> Pong | StopEvent:
            return Pong(left=ev.left - 1) if ev.left else StopEvent(result="out")

        @step
        async def pong(self, ev: Pong) -> Ping | StopEvent:
            return Ping(left=ev.left - 1) if ev.left else StopEvent(result="out")

    return PingPong


@program("hop")
async def hop(units: int, **options: Any) -> dict[str, float]:
    """One event from step to step, in a long chain."""
    flow = ping_pong()(timeout=None, **options)
    await flow.run(hops=50)
    with Watch() as watch:
        assert await flow.run(hops=units) == "out"
    return per_unit(watch, units)


@program("hop, memory journal")
async def hop_with_journal(units: int) -> dict[str, float]:
    """The same with every segment recorded."""
    return await hop(units, store="memory:")


@program("three-step run")
async def three_steps(units: int) -> dict[str, float]:
    """A whole run of three steps, one after another."""

    class Three(Workflow):
        @step
        async def one(self, ev: StartEvent) -> Ping:
            return Ping(left=ev.value)

        @step
        async def two(self, ev: Ping) -> Pong:
            return Pong(left=ev.left + 1)

        @step
        async def three(self, ev: Pong) -> StopEvent:
            return StopEvent(result=ev.left + 1)

    flow = Three(timeout=None)
    await flow.run(value=0)
    with Watch() as watch:
        for value in range(units):
            assert await flow.run(value=value) == value + 2
    return per_unit(watch, units)


@program("concurrent run")
async def concurrent_runs(units: int) -> dict[str, float]:
    """Many runs at the same time, each waiting a moment."""

    class Nap(Workflow):
        @step
        async def nap(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.005)
            return StopEvent(result=1)

    flow = Nap(timeout=None)
    await flow.run()
    with Watch() as watch:
        assert sum(await asyncio.gather(*[flow.run() for _ in range(units)])) == units
    return per_unit(watch, units)


@program("fan-out item")
async def fan_out(units: int) -> dict[str, float]:
    """An event sent, worked on by four workers, and collected."""
    expected: list[Any] = [Result] * units

    class Spread(Workflow):
        @step
        async def spread(self, ctx: Context, ev: StartEvent) -> Job | None:
            for number in range(units):
                ctx.send_event(Job(number=number))
            return None

        @step(num_workers=4)
        async def work(self, ev: Job) -> Result:
            return Result(number=ev.number)

        @step
        async def join(self, ctx: Context, ev: Result) -> StopEvent | None:
            found = ctx.collect_events(ev, expected)
            return None if found is None else StopEvent(result=sum(result.number for result in found))

    with Watch() as watch:
        assert await Spread(timeout=None).run() == units * (units - 1) // 2
    return per_unit(watch, units)


@program("list fan-out item")
async def list_fan_out(units: int) -> dict[str, float]:
    """An event of a returned list, worked on by four workers, and joined as a list."""

    class Spread(Workflow):
        @step
        async def spread(self, ev: StartEvent) -> list[Job]:
            return [Job(number=number) for number in range(units)]

        @step(num_workers=4)
        async def work(self, ev: Job) -> Result:
            return Result(number=ev.number)

        @step
        async def join(self, evs: list[Result]) -> StopEvent:
            return StopEvent(result=sum(result.number for result in evs))

    with Watch() as watch:
        assert await Spread(timeout=None).run() == units * (units - 1) // 2
    return per_unit(watch, units)


@program("streamed event")
async def streamed(units: int) -> dict[str, float]:
    """An event written to the stream and read from it."""

    class Talk(Workflow):
        @step
        async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for number in range(units):
                ctx.write_event_to_stream(Job(number=number))
                if number % 10 == 9:
                    await asyncio.sleep(0)
            return StopEvent(result=units)

    read = 0
    with Watch() as watch:
        handler = Talk(timeout=None).run()
        async for event in handler.stream_events():
            read += isinstance(event, Job)
        assert await handler == units == read
    return per_unit(watch, units)


@program("set and get of a state key")
async def state_keys(units: int) -> dict[str, float]:
    """One write and one read of the state."""
    found: dict[str, Watch] = {}

    class Keys(Workflow):
        @step
        async def keys(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with Watch() as watch:
                for number in range(units):
                    await ctx.store.set(f"k{number % 100}", number)
                    assert await ctx.store.get(f"k{number % 100}") == number
            found["watch"] = watch
            return StopEvent()

    await Keys(timeout=None).run()
    return per_unit(found["watch"], units)


@program("dump and load of a state key")
async def snapshot_keys(units: int) -> dict[str, float]:
    """A key of the state in a snapshot, to JSON text and back."""

    class Fill(Workflow):
        @step
        async def fill(self, ctx: Context, ev: StartEvent) -> StopEvent:
            for number in range(units):
                await ctx.store.set(f"k{number}", {"v": number, "s": "x" * 20})
            return StopEvent()

    flow = Fill(timeout=None)
    handler = flow.run()
    await handler
    with Watch() as watch:
        text = json.dumps(handler.ctx.to_dict())
        restored = Context.from_dict(flow, json.loads(text))
    assert await restored.store.get(f"k{units - 1}") == {"v": units - 1, "s": "x" * 20}
    return per_unit(watch, units)


@program("paused run")
async def paused(units: int) -> dict[str, float]:
    """A run that asks a person and waits."""

    class Ask(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            question = InputRequiredEvent(prefix="?")
            answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=question)
            return StopEvent(result=answer.response)

    flow = Ask(timeout=None)

    async def until_it_asks() -> Any:
        handler = flow.run()
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        return handler

    warm = await until_it_asks()
    gc.collect()
    before = resident_kib()
    with Watch() as watch:
        handlers = [await until_it_asks() for _ in range(units)]
    gc.collect()
    weight = (resident_kib() - before) / units
    for handler in [warm, *handlers]:
        handler.ctx.send_event(HumanResponseEvent(response=1))
    assert sum(await asyncio.gather(warm, *handlers)) == units + 1
    return per_unit(watch, units, kib=weight)


@program("snapshot after hops")
async def snapshot_after_hops(units: int) -> dict[str, float]:
    """What a snapshot costs after a run has come a long way."""

    class Walk(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Ping:
            return Ping(left=units)

        @step
        async def walk(self, ctx: Context, ev: Ping) -> Ping | StopEvent:
            if ev.left:
                return Ping(left=ev.left - 1)
            await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
            return StopEvent(result="there")

    handler = Walk(timeout=None).run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    times = 20
    with Watch() as watch:
        for _ in range(times):
            handler.ctx.to_dict()
    handler.ctx.send_event(HumanResponseEvent())
    assert await handler == "there"
    return per_unit(watch, times)


@program("memory over hops")
async def memory_over_hops(units: int) -> dict[str, float]:
    """Resident memory that a chain of hops adds after its first tenth."""
    flow = ping_pong()(timeout=None)
    await flow.run(hops=units // 10)
    gc.collect()
    before = resident_kib()
    await flow.run(hops=units)
    gc.collect()
    return {"seconds": 0.0, "kib": resident_kib() - before}


@program("longest turn beside hops")
async def fairness(units: int) -> dict[str, float]:
    """The longest time for which a chain of hops keeps the event loop to itself."""
    flow = ping_pong()(timeout=None)
    handler = flow.run(hops=units)
    longest = 0.0
    while not handler.is_done():
        began = time.perf_counter()
        await asyncio.sleep(0)
        longest = max(longest, time.perf_counter() - began)
    await handler
    return {"seconds": longest}

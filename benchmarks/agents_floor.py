"""The floor of agents: a loop over a model and its tools by hand, for each program of `agents.py`.

Messages are dicts, every tool call is a task, and what happens goes to the caller through a queue. No validation, no
memory, no limits, no snapshots.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from measuring import Program, Watch, per_unit

__all__ = ["FLOOR"]

FLOOR: dict[str, Program] = {}

Messages = list[dict[str, Any]]
Model = Callable[[Messages], AsyncIterator[tuple[str, Any]]]


def program(name: str) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        FLOOR[name] = function
        return function

    return register


async def add(x: int) -> int:
    return x + 1


TOOLS = {"add": add}


async def loop(model: Model, messages: Messages, out: "asyncio.Queue[Any]") -> str:
    while True:
        pieces: list[str] = []
        calls: Any = None
        async for kind, value in model(list(messages)):
            if kind == "delta":
                pieces.append(value)
                out.put_nowait(("delta", value))
            else:
                calls = value
        messages.append({"role": "assistant", "content": "".join(pieces), "calls": calls})
        if not calls:
            out.put_nowait(("end", None))
            return "".join(pieces)

        async def call(call_id: str, name: str, arguments: str) -> None:
            result = await TOOLS[name](**json.loads(arguments))
            messages.append({"role": "tool", "id": call_id, "content": str(result)})
            out.put_nowait(("tool", result))

        await asyncio.gather(*(asyncio.create_task(call(*one)) for one in calls))


def calling(turns: int, width: int = 1) -> Model:
    left = [turns]

    async def model(messages: Messages) -> AsyncIterator[tuple[str, Any]]:
        if left[0] == 0:
            yield "delta", "done"
            return
        left[0] -= 1
        yield "calls", [(f"c{left[0]}-{number}", "add", '{"x": 1}') for number in range(width)]

    return model


async def timed(model: Model, units: int, said: int = 0) -> dict[str, float]:
    messages: Messages = [{"role": "user", "content": "hello " * 20} for _ in range(said)]
    messages.append({"role": "user", "content": "go"})
    with Watch() as watch:
        assert await loop(model, messages, asyncio.Queue()) == "done"
    return per_unit(watch, units)


@program("tool turn")
async def tool_turn(units: int) -> dict[str, float]:
    return await timed(calling(units), units)


@program("tool turn after 1,000 messages")
async def long_conversation(units: int) -> dict[str, float]:
    return await timed(calling(units), units, said=1000)


@program("tool called in parallel")
async def parallel_tools(units: int) -> dict[str, float]:
    return await timed(calling(1, width=units), units)


@program("two-turn run")
async def concurrent_runs(units: int) -> dict[str, float]:
    with Watch() as watch:
        answers = await asyncio.gather(
            *(
                asyncio.create_task(loop(calling(1), [{"role": "user", "content": "go"}], asyncio.Queue()))
                for _ in range(units)
            )
        )
    assert answers == ["done"] * units
    return per_unit(watch, units)


@program("streamed piece of an answer")
async def streamed_pieces(units: int) -> dict[str, float]:
    async def model(messages: Messages) -> AsyncIterator[tuple[str, Any]]:
        for number in range(units):
            yield "delta", "tide "
            if number % 10 == 9:
                await asyncio.sleep(0)

    out: asyncio.Queue[Any] = asyncio.Queue()
    read = 0
    with Watch() as watch:
        running = asyncio.create_task(loop(model, [{"role": "user", "content": "go"}], out))
        while (await out.get())[0] != "end":
            read += 1
        await running
    assert read == units
    return per_unit(watch, units)


@program("handoff")
async def handoffs(units: int) -> dict[str, float]:
    left, active = [units], [0]

    async def model(messages: Messages) -> AsyncIterator[tuple[str, Any]]:
        if left[0] == 0:
            yield "delta", "done"
            return
        left[0] -= 1
        yield "calls", [(f"h{left[0]}", "handoff", json.dumps({"to": (active[0] + 1) % 5}))]

    async def hand_over(to: int) -> str:
        active[0] = to
        return f"agent {to} is in charge"

    TOOLS["handoff"] = hand_over
    return await timed(model, units)

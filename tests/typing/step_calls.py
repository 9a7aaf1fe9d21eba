"""Calls of steps: `ctx.map`, `ctx.ask` and `ctx.send_to`, as type checkers in strict mode see them."""

import asyncio
from typing import Literal, assert_type

from pydantic import BaseModel

from batonflow.workflow_core import Context, Event, MapError, Progress, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.handler import WorkflowHandler


class Address(BaseModel):
    street: str


class Paid(Event):
    order: int


async def fetch(url: str) -> bytes:
    return url.encode()


def size(url: str) -> int:
    return len(url)


class Calls(Workflow):
    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        urls = ["a", "b"]
        fetched = await ctx.map(fetch, urls)
        assert_type(fetched, list[bytes])
        assert isinstance(fetched[0], bytes)
        sizes = await ctx.map(size, urls, workers=2, timeout=3.0)
        assert_type(sizes, list[int])
        assert isinstance(sizes[0], int)
        fetched_or_not = await ctx.map(fetch, urls, on_error="collect")
        assert_type(fetched_or_not, list[bytes | MapError])
        assert isinstance(fetched_or_not[0], bytes | MapError)
        sizes_or_errors = await ctx.map(size, urls, on_error="collect")
        assert_type(sizes_or_errors, list[int | MapError])
        assert isinstance(sizes_or_errors[0], int | MapError)
        done = await ctx.once("fetch", fetch, "a")
        assert_type(done, bytes)
        assert isinstance(done, bytes)
        counted = await ctx.effect("size", size, "a", about="a text")
        assert_type(counted, int)
        assert isinstance(counted, int)
        return StopEvent()


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        topic = await ctx.ask("Which topic?")
        assert_type(topic, str)
        assert isinstance(topic, str)
        where = await ctx.ask("Where?", choices=["left", "right"])
        assert_type(where, str)
        assert isinstance(where, str)
        sure = await ctx.ask("Sure?", bool)
        assert_type(sure, bool)
        assert isinstance(sure, bool)
        address = await ctx.ask("Where to?", Address)
        assert_type(address, Address)
        assert isinstance(address, Address)
        number = await ctx.ask(Address(street="Quay"), int | None)
        assert_type(number, int | None)
        assert isinstance(number, int | None)
        letter = await ctx.ask("a or b?", Literal["a", "b"])
        assert_type(letter, Literal["a", "b"])
        assert isinstance(letter, str)
        return StopEvent()


class Ledger(Workflow):
    @step
    async def open(self, ev: StartEvent) -> None: ...

    @step
    async def enter(self, ev: Paid) -> StopEvent:
        return StopEvent()


class Sends(Workflow):
    ledger: str

    @step
    async def send(self, ctx: Context, ev: StartEvent) -> StopEvent:
        sent = await ctx.send_to(self.ledger, Paid(order=1))
        assert_type(sent, bool)
        assert isinstance(sent, bool)
        return StopEvent()


async def call() -> None:
    handler: WorkflowHandler = Calls().run()
    await handler
    progress = handler.progress()
    assert_type(progress, list[Progress])
    assert isinstance(progress[0], Progress)


async def ask() -> None:
    handler = Asks().run()
    answers = iter(["tides", "left", True, {"street": "Quay"}, 7, "a"])
    async for request in handler.inputs():
        request.respond(next(answers))
    await handler


async def send() -> None:
    ledger = Ledger(on_stall="wait").run()
    sends = Sends()
    sends.ledger = ledger.run_id
    await sends.run()
    await ledger


def attached() -> None:
    parent = Parent(workflows={"calls": Calls}, on_stall="wait")
    parent.add_workflows(other=Calls, third=Calls())


class Parent(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


async def main() -> None:
    await call()
    await ask()
    await send()
    attached()


if __name__ == "__main__":
    asyncio.run(main())

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
        assert_type(await ctx.map(fetch, urls), list[bytes])
        assert_type(await ctx.map(size, urls, workers=2, timeout=3.0), list[int])
        assert_type(await ctx.map(fetch, urls, on_error="collect"), list[bytes | MapError])
        assert_type(await ctx.map(size, urls, on_error="collect"), list[int | MapError])
        assert_type(await ctx.ask("Which topic?"), str)
        assert_type(await ctx.ask("Where?", choices=["left", "right"]), str)
        assert_type(await ctx.ask("Sure?", bool), bool)
        assert_type(await ctx.ask("Where to?", Address), Address)
        assert_type(await ctx.ask(Address(street="Quay"), int | None), int | None)
        assert_type(await ctx.ask("a or b?", Literal["a", "b"]), Literal["a", "b"])
        assert_type(await ctx.once("fetch", fetch, "a"), bytes)
        assert_type(await ctx.effect("size", size, "a", about="a text"), int)
        assert_type(await ctx.send_to("ledger", Paid(order=1)), bool)
        return StopEvent()


class Parent(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


async def main() -> None:
    parent = Parent(workflows={"calls": Calls}, on_stall="wait")
    parent.add_workflows(other=Calls, third=Calls())
    handler: WorkflowHandler = parent.run()
    assert_type(handler.progress(), list[Progress])


if __name__ == "__main__":
    asyncio.run(main())

"""The state of a run that goes on from its records is what it was, in whichever order its steps wrote and ended."""

import asyncio
from typing import Any, ClassVar

import pytest

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from tests.workflow_core.flows import until
from tests.workflow_core.journal.listening import Listener


class A(Event):
    pass


class B(Event):
    pass


class Stops(Workflow):
    """Comes to a wait, and gives its whole state as the result."""

    gates: ClassVar[dict[str, asyncio.Event]] = {}

    @step
    async def last(self, ctx: Context, ev: B) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent)
        state: Any = await ctx.store.get_state()
        return StopEvent(result=state.to_dict())


class InTurn(Stops):
    """Each depends on the other; the receiver writes last and ends first."""

    @step
    async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
        await ctx.store.set("key", "sender")
        ctx.send_event(A())
        await self.gates["received"].wait()
        return B(seen=await ctx.store.get("key"))

    @step
    async def receiver(self, ctx: Context, ev: A) -> None:
        await ctx.store.set("key", "receiver")
        self.gates["received"].set()


class TheSenderAgain(InTurn):
    """Each depends on the other; the sender writes last."""

    @step
    async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
        ctx.send_event(A())
        await self.gates["received"].wait()
        await ctx.store.set("key", "sender")
        return B()


class InsideAndWhole(InTurn):
    """By turns a part of a key and all of it."""

    @step
    async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
        await ctx.store.set("key", {"by": "sender", "more": 1})
        ctx.send_event(A())
        await self.gates["received"].wait()
        await ctx.store.set("key.more", 3)
        return B()

    @step
    async def receiver(self, ctx: Context, ev: A) -> None:
        await ctx.store.set("key", {"by": "receiver", "more": 2})
        self.gates["received"].set()


class FromOutside(Stops):
    """The state is changed from outside while the step that wrote before still runs."""

    @step
    async def writer(self, ctx: Context, ev: StartEvent) -> B:
        await ctx.store.set("key", "writer")
        self.gates["written"].set()
        await self.gates["edited"].wait()
        return B()


class FromOutsideBetween(Stops):
    """As before, and the step writes once more."""

    @step
    async def writer(self, ctx: Context, ev: StartEvent) -> B:
        await ctx.store.set("key", "writer")
        self.gates["written"].set()
        await self.gates["edited"].wait()
        await ctx.store.set("key", "writer again")
        return B()


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (InTurn, "receiver"),
        (TheSenderAgain, "sender"),
        (InsideAndWhole, {"by": "receiver", "more": 3}),
        (FromOutside, "from outside"),
        (FromOutsideBetween, "writer again"),
    ],
)
def test_the_last_write_counts(cls: type[Stops], value: Any):
    journal = Listener()
    flow = cls(store=journal)

    async def until_it_waits() -> dict[str, Any]:
        cls.gates = {name: asyncio.Event() for name in ("received", "written", "edited")}
        handler = flow.run(run_id="r")
        if cls in (FromOutside, FromOutsideBetween):
            await cls.gates["written"].wait()
            await handler.ctx.store.set("key", "from outside")
            cls.gates["edited"].set()
        await until(lambda: journal.records("last"))
        state: Any = await handler.ctx.store.get_state()
        return state.to_dict()

    async def to_the_end() -> dict[str, Any]:
        handler = flow.run(run_id="r")
        handler.ctx.send_event(HumanResponseEvent())
        return await handler

    before = asyncio.run(until_it_waits())
    assert before == {"key": value}
    assert asyncio.run(to_the_end()) == before

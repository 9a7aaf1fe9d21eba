"""The state of a run that goes on from its records is what it was, in whichever order its steps wrote and ended."""

import asyncio
from datetime import datetime
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from batonflow.durable import lease as drive
from batonflow.values.unmarked import alike
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import StoreError
from tests.durable.listening import Listener
from tests.workflow_core.flows import until


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


class Counted(BaseModel):
    """Declares what it holds; setting a value does not look at that."""

    count: int = 0
    names: list[str] = []
    when: datetime | None = None
    parts: dict[str, int] = {}


class Sets(Workflow):
    """Sets a value of its state, and waits."""

    @step
    async def put(self, ctx: Context[Counted], ev: StartEvent) -> StopEvent:
        await ctx.store.set(ev.path, ev.value)
        await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=await ctx.store.get(ev.path))


OTHER_TYPES = [
    ("count", "many"),
    ("count", "5"),
    ("count", 5.0),
    ("count", None),
    ("names", (1,)),
    ("when", "2026-01-02"),
    ("parts.left", "3"),
]


@pytest.mark.parametrize("every", [1, 100], ids=["snapshots", "records"])
@pytest.mark.parametrize(("path", "value"), OTHER_TYPES)
async def test_a_value_of_another_type_than_the_field_declares_comes_back_from_a_store(
    monkeypatch: pytest.MonkeyPatch, path: str, value: Any, every: int
) -> None:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", every)
    flow = Sets(store=MemoryStore(), timeout=None)
    handler = flow.run(run_id="r", path=path, value=value)
    await until(lambda: handler.is_waiting)
    await handler.interrupt()
    again = flow.resume("r")
    await until(lambda: again.is_waiting)
    again.ctx.send_event(HumanResponseEvent())
    assert alike(await again, value)


@pytest.mark.parametrize(("path", "value"), OTHER_TYPES)
async def test_a_snapshot_refuses_it_by_the_name_of_the_field(path: str, value: Any) -> None:
    flow = Sets(timeout=None)
    handler = flow.run(path=path, value=value)
    await until(lambda: handler.is_waiting)
    name = path.partition(".")[0]
    with pytest.raises(ValueError, match=rf"{name}: Counted declares this field as .*could not be read again"):
        handler.ctx.to_dict()
    await handler.cancel_run()


class Unfit(Workflow):
    """Sets what cannot be written."""

    @step
    async def put(self, ctx: Context[Counted], ev: StartEvent) -> StopEvent:
        await ctx.store.set("parts.left", {"deep": [object()]})
        return StopEvent()


async def test_a_value_that_cannot_be_written_is_refused_with_its_whole_path() -> None:
    with pytest.raises(StoreError, match=r"parts\.left\.deep\.0: builtins\.object cannot be written"):
        await Unfit(store="memory:").run()

"""What runs that go on elsewhere find: their state whatever the way it was changed in, and their input."""

import asyncio
import datetime as dt
import enum
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from batonflow.durable import lease as drive
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import UnknownOutcomeError


@pytest.fixture(params=[1000, 1], ids=["from records", "from snapshots"], autouse=True)
def snapshots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", request.param)
    return


class Round(Event):
    n: int = 1


async def from_everywhere(flow: type[Workflow], **start: Any) -> list[Any]:
    """The result of a run, and those of runs that branch off after each of its commits."""
    store = MemoryStore()
    workflow = flow(store=store)
    result = await workflow.run(run_id="r", **start)
    info = await store.info("r")
    assert info is not None
    return [result, *[await workflow.fork("r", at) for at in range(1, info.seq)]]


def all_are(results: list[Any], expected: Any) -> bool:
    assert len(results) > 2
    return all(result == expected for result in results)


class TestStateThatIsChangedInPlace:
    async def test_beside_a_write_inside_the_same_key(self) -> None:
        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                await ctx.store.set("user", {"seen": []})
                return Round()

            @step
            async def go(self, ctx: Context, ev: Round) -> Round | StopEvent:
                user = await ctx.store.get("user")
                user["seen"].append(ev.n)
                await ctx.store.set("user.last", ev.n)
                return StopEvent(result=await ctx.store.get("user")) if ev.n == 3 else Round(n=ev.n + 1)

        assert all_are(await from_everywhere(Flow), {"seen": [1, 2, 3], "last": 3})

    async def test_in_the_copy_of_the_whole(self) -> None:
        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                await ctx.store.set("seen", [])
                return Round()

            @step
            async def go(self, ctx: Context, ev: Round) -> Round | StopEvent:
                (await ctx.store.get_state())["seen"].append(ev.n)
                return StopEvent(result=await ctx.store.get("seen")) if ev.n == 3 else Round(n=ev.n + 1)

        assert all_are(await from_everywhere(Flow), [1, 2, 3])

    async def test_after_it_was_set_and_something_was_recorded(self) -> None:
        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                return Round()

            @step
            async def go(self, ctx: Context, ev: Round) -> Round | StopEvent:
                if ev.n == 2:
                    return StopEvent(result=await ctx.store.get("told"))
                told: list[str] = []
                await ctx.store.set("told", told)
                answer = await ctx.once("ask", lambda: "yes")
                told = await ctx.store.get("told")
                told.append(answer)
                return Round(n=2)

        assert all_are(await from_everywhere(Flow), ["yes"])

    async def test_by_who_set_it(self) -> None:
        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                told: list[str] = []
                await ctx.store.set("told", told)
                await ctx.once("ask", lambda: "yes")
                told.append("after")
                return Round()

            @step
            async def end(self, ctx: Context, ev: Round) -> StopEvent:
                return StopEvent(result=await ctx.store.get("told"))

        store = MemoryStore()
        assert await Flow(store=store).run(run_id="r") == ["after"]
        returned = [one["commit"] for one in await store.history("r") if one.get("outcome", [""])[0] == "returned"]
        assert await Flow(store=store).fork("r", returned[0]) == ["after"]

    async def test_of_what_drafts_share(self) -> None:
        class Notes(BaseModel):
            shared_in_drafts: bool = True
            lines: list[str] = Field(default_factory=list)

        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                await ctx.store.set("notes", Notes())
                return Round()

            @step
            async def go(self, ctx: Context, ev: Round) -> Round | StopEvent:
                async with ctx.store.edit_state() as draft:
                    draft.notes.lines.append(str(ev.n))
                return StopEvent(result=(await ctx.store.get("notes")).lines) if ev.n == 3 else Round(n=ev.n + 1)

        store = MemoryStore()
        workflow = Flow(store=store, types=[Notes])
        assert await workflow.run(run_id="r") == ["1", "2", "3"]
        info = await store.info("r")
        assert info is not None
        for at in range(1, info.seq):
            assert await workflow.fork("r", at) == ["1", "2", "3"], at


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    born: dt.date = dt.date(2000, 1, 1)


class Known(BaseModel):
    when: dt.datetime | None = None
    days: list[dt.date] = Field(default_factory=list[dt.date])
    colour: Colour = Colour.RED
    pair: tuple[int, int] = (0, 0)
    person: Person = Field(default_factory=Person)
    names: set[str] = Field(default_factory=set[str])


class Typed(Workflow):
    """Puts into a declared state what JSON has no words for."""

    @step
    async def begin(self, ctx: Context[Known], ev: StartEvent) -> Round:
        await ctx.store.set("when", dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
        await ctx.store.set("colour", Colour.BLUE)
        await ctx.store.set("pair", (1, 2))
        return Round()

    @step
    async def go(self, ctx: Context[Known], ev: Round) -> Round | StopEvent:
        days = await ctx.store.get("days")
        days.append(dt.date(2026, 1, ev.n))
        await ctx.store.set("person.born", dt.date(1990, 1, ev.n))
        async with ctx.store.edit_state() as state:
            state.names.add(f"n{ev.n}")
        if ev.n < 3:
            return Round(n=ev.n + 1)
        known = await ctx.store.get_state()
        kinds = [type(value).__name__ for value in (known.when, known.colour, known.pair, known.person.born)]
        return StopEvent(result=[kinds, [str(day) for day in known.days], str(known.person.born), sorted(known.names)])


class TestDeclaredState:
    async def test_values_come_back_as_what_they_were(self) -> None:
        kinds = ["datetime", "Colour", "tuple", "date"]
        days = ["2026-01-01", "2026-01-02", "2026-01-03"]
        assert all_are(await from_everywhere(Typed), [kinds, days, "1990-01-03", ["n1", "n2", "n3"]])


class Measured(Event):
    value: float
    others: list[float]
    day: dt.date


class TestEvents:
    async def test_numbers_that_are_none(self) -> None:
        class Flow(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> Round:
                return Round()

            @step
            async def measure(self, ev: Round) -> Measured:
                return Measured(value=math.inf, others=[1.0, -math.inf], day=dt.date(2026, 1, 1))

            @step
            async def end(self, ev: Measured) -> StopEvent:
                return StopEvent(result=[ev.value, *ev.others, ev.day.year])

        assert all_are(await from_everywhere(Flow), [math.inf, 1.0, -math.inf, 2026])


PROGRAM = """
import asyncio, sys
from batonflow.workflow_core import StartEvent, StopEvent, Workflow, step

class Words(StartEvent):
    words: set[str]

class Flow(Workflow):
    @step
    async def count(self, ev: Words) -> StopEvent:
        return StopEvent(result=len(ev.words))

async def main():
    words = {"low", "high", "spring", "neap", "ebb", "flow"}
    print(await Flow(store=sys.argv[1]).run(run_id="r", start_event=Words(words=words)))

asyncio.run(main())
"""


def test_sets_are_the_same_input_in_every_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for seed in ("1", "2"):  # they have another order in each
        done = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "runs.db")],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "6\n", done.stderr


class TestCalls:
    async def test_a_recorded_call_is_not_made_again(self) -> None:
        calls: list[int] = []

        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                return Round()

            @step
            async def pay(self, ctx: Context, ev: Round) -> StopEvent:
                return StopEvent(result=await ctx.once("pay", self.paid))

            async def paid(self) -> int:
                calls.append(1)
                return 7

        store = MemoryStore()
        assert await Flow(store=store).run(run_id="r") == 7
        recorded = [one["commit"] for one in await store.history("r") if one.get("outcome", [""])[0] == "once"]
        assert await Flow(store=store).fork("r", recorded[0]) == 7
        assert len(calls) == 1

    async def test_one_that_was_begun_is_not_silently_made_again(self) -> None:
        calls: list[int] = []

        class Flow(Workflow):
            @step
            async def begin(self, ctx: Context, ev: StartEvent) -> Round:
                return Round()

            @step
            async def pay(self, ctx: Context, ev: Round) -> StopEvent:
                return StopEvent(result=await ctx.effect("pay", self.paid))

            async def paid(self) -> int:
                calls.append(1)
                return 7

        store = MemoryStore()
        assert await Flow(store=store).run(run_id="r") == 7
        begun = [one["commit"] for one in await store.history("r") if one.get("outcome", [""])[0] == "intent"]
        with pytest.raises(UnknownOutcomeError):
            await Flow(store=store).fork("r", begun[0])
        assert len(calls) == 1


class Asked(InputRequiredEvent):
    n: int


class Answered(HumanResponseEvent):
    n: int


class AsksTwice(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Round | None:
        for n in range(2):
            ctx.send_event(Round(n=n))

    @step(num_workers=2)
    async def ask(self, ctx: Context, ev: Round) -> StopEvent | None:
        await ctx.wait_for_event(Answered, waiter_event=Asked(n=ev.n), requirements={"n": ev.n})
        found = ctx.collect_events(ev, [Round, Round])
        return None if found is None else StopEvent(result=sorted(one.n for one in found))


async def test_open_questions_are_known_while_the_run_is_out_of_memory() -> None:
    store = MemoryStore()
    handler = AsksTwice(store=store, idle_release=0).run(run_id="r")
    for left in (2, 1):
        async with asyncio.timeout(10):
            while (info := await store.info("r")) is None or info.status != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        requests = handler.open_inputs()
        assert [request.event.n for request in requests] == list(range(2 - left, 2))
        requests[0].respond()
    assert await handler == [0, 1]


class Collects(Workflow):
    """Takes answers of people, with nothing under way in between."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Asked:
        return Asked(n=0)

    @step
    async def collect(self, ctx: Context, ev: Answered) -> StopEvent | None:
        found = ctx.collect_events(ev, [Answered] * 4)
        return None if found is None else StopEvent(result=sorted(one.n for one in found))


async def collected(store: MemoryStore) -> list[int]:
    """Numbers of the deliveries that put something aside."""
    records = [] if await store.info("r") is None else await store.history("r")
    return [one["item"] for one in records if one.get("collects")]


async def test_numbers_of_deliveries_are_not_used_again_by_the_next_process() -> None:
    stores = [MemoryStore()]
    for n in range(3):
        handler = Collects(store=stores[-1]).run(run_id="r")
        handler.ctx.send_event(Answered(n=n))
        async with asyncio.timeout(10):
            while len(await collected(stores[-1])) <= n:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await handler.interrupt()
        await stores[-1].aclose()
        stores.append(MemoryStore(beside=stores[-1]))
    assert len(set(await collected(stores[-1]))) == 3
    handler = Collects(store=stores[-1]).run(run_id="r")
    handler.ctx.send_event(Answered(n=3))
    assert await handler == [0, 1, 2, 3]

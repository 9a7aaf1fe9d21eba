"""Questions that steps stream or return without a wait: each is closed by its own answer, wherever the run is."""

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from batonflow.durable import lease as drive
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.stores.sqlite import SQLiteStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputClosedError,
    InputRequest,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import WorkflowTimeoutError
from tests.workflow_core.flows import until


class Question(InputRequiredEvent):
    text: str


class Answer(HumanResponseEvent):
    text: str


class Siblings(Workflow):
    """Asks several questions at once, with no wait for any of them."""

    taken: ClassVar[list[str]] = []

    @step
    async def ask(self, ev: StartEvent) -> list[Question]:
        return [Question(text=name) for name in ("Ann", "Bob", "Cem")]

    @step
    async def take(self, ctx: Context, ev: Answer) -> StopEvent | None:
        heard = [*await ctx.store.get("heard", default=[]), ev.text]
        await ctx.store.set("heard", heard)
        self.taken.append(ev.text)
        return StopEvent(result=heard) if len(heard) == 3 else None


@pytest.mark.parametrize("idle_release", [None, 0])
@pytest.mark.parametrize("snapshots", [False, True])
async def test_of_several_questions_the_one_that_was_answered_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, idle_release: float | None, snapshots: bool
) -> None:
    if snapshots:
        monkeypatch.setattr(drive, "SNAPSHOT_EVERY", 1)
    store = SQLiteStore(tmp_path / "runs.db")
    flow = Siblings(store=store, timeout=None, idle_release=idle_release)

    async def left() -> list[str]:
        return [one.event.text for one in await flow.open_inputs("r")]

    async def taken(answer: str) -> None:
        await until(lambda: answer in flow.taken)

    handler = flow.run(run_id="r")
    inputs = handler.inputs()
    asked = {one.event.text: one for one in [await anext(inputs) for _ in range(3)]}
    if idle_release == 0:
        await until(lambda: handler.is_released)
    asked["Bob"].respond(text="Bob's")
    await taken("Bob's")
    assert await left() == ["Ann", "Cem"]
    await handler.interrupt()
    assert await left() == ["Ann", "Cem"]

    # Answered in another process, taken up here.
    cem = (await flow.open_inputs("r"))[1]
    assert await flow.send_to_run("r", cem.answer(text="Cem's"), key=cem.answer_key) is True
    handler = flow.resume("r")
    await taken("Cem's")
    inputs = handler.inputs()
    last = await anext(inputs)
    assert last.event.text == "Ann"
    await handler.interrupt()
    assert await left() == ["Ann"]
    assert (await flow.open_inputs("r"))[0].answer_key == last.answer_key == asked["Ann"].answer_key

    handler = flow.resume("r")
    (await anext(handler.inputs())).respond(text="Ann's")
    assert await handler == ["Bob's", "Cem's", "Ann's"]
    await store.aclose()


class Busy(Workflow):
    """Asks, and is at work for a while after that."""

    taken: ClassVar[list[str]] = []
    go_on: ClassVar[asyncio.Event]

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> None:
        for name in ("Ann", "Bob", "Cem"):
            ctx.write_event_to_stream(Question(text=name))
        await self.go_on.wait()

    @step
    async def take(self, ev: Answer) -> StopEvent | Question | None:
        self.taken.append(ev.text)
        if ev.text == "more":
            return Question(text="More?")
        return StopEvent() if ev.text == "end" else None


class Inner(Workflow):
    """Asks in the run of another workflow."""

    taken: ClassVar[list[str]] = []

    @step
    async def ask(self, ev: StartEvent) -> list[Question]:
        return [Question(text=name) for name in ("Ann", "Bob")]

    @step
    async def take(self, ctx: Context, ev: Answer) -> StopEvent | None:
        self.taken.append(ev.text)
        heard = await ctx.store.get("heard", default=0) + 1
        await ctx.store.set("heard", heard)
        return StopEvent(result=heard) if heard == 2 else None


class Outer(Workflow):
    @step
    async def call(self, ev: StartEvent, inner: Inner) -> StopEvent:
        return StopEvent(result=await inner.run())


@pytest.fixture(autouse=True)
def fresh() -> None:
    for flow in (Siblings, Busy, Inner):
        flow.taken.clear()
    Busy.go_on = asyncio.Event()


def told(requests: list[InputRequest]) -> list[tuple[str, str, str]]:
    return [(one.event.text, one.id, one.answer_key) for one in requests]


async def next_ones(inputs: object, count: int) -> dict[str, InputRequest]:
    found = [await asyncio.wait_for(anext(inputs), 30) for _ in range(count)]  # type: ignore[call-overload]
    return {one.event.text: one for one in found}


@pytest.mark.parametrize("idle_release", [None, 0])
async def test_one_that_is_answered_while_its_step_is_at_work_stays_closed(idle_release: float | None) -> None:
    flow = Busy(store=MemoryStore(), timeout=None, idle_release=idle_release)
    handler = flow.run(run_id="r")
    inputs = handler.inputs()
    asked = await next_ones(inputs, 3)
    asked["Bob"].respond(text="Bob's")
    await until(lambda: "Bob's" in flow.taken)
    flow.go_on.set()
    if idle_release == 0:
        await until(lambda: handler.is_released)
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Ann", "Cem"]
    asked["Ann"].respond(text="Ann's")
    await until(lambda: "Ann's" in flow.taken)
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Cem"]
    await handler.interrupt()
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Cem"]
    with pytest.raises(StopAsyncIteration):  # no other was asked meanwhile
        await anext(inputs)


async def test_those_of_a_snapshot_keep_their_names_in_a_store() -> None:
    Busy.go_on.set()
    bare = Busy(timeout=None)
    handler = bare.run()
    names = {text: name for text, name, _ in told(list((await next_ones(handler.inputs(), 3)).values()))}
    snapshot = handler.ctx.to_dict()
    await handler.cancel_run()

    flow = Busy(store=MemoryStore(), timeout=None)
    handler = flow.run(ctx=Context.from_dict(flow, snapshot), run_id="r")
    inputs = handler.inputs()
    asked = await next_ones(inputs, 3)
    assert {text: one.id for text, one in asked.items()} == names
    asked["Ann"].respond(text="more")
    await next_ones(inputs, 1)
    live = told(await flow.open_inputs("r"))
    assert len({name for _, name, _ in live}) == 3
    await handler.interrupt()
    assert told(await flow.open_inputs("r")) == live
    handler = flow.resume("r")
    (await next_ones(handler.inputs(), 3))["More?"].respond(text="x")
    await until(lambda: "x" in flow.taken)
    await handler.interrupt()
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Bob", "Cem"]


async def test_those_of_a_workflow_inside_are_answered_out_of_memory_too() -> None:
    flow = Outer(store=MemoryStore(), timeout=None, idle_release=0, workflows={"inner": Inner(timeout=None)})
    handler = flow.run(run_id="r")
    asked = await next_ones(handler.inputs(), 2)
    live = told(list(asked.values()))
    assert [name.partition(":")[0] for _, name, _ in live] == ["inner", "inner"]
    await until(lambda: handler.is_released)
    assert told(await flow.open_inputs("r")) == live
    asked["Bob"].respond(text="Bob's")
    await until(lambda: Inner.taken == ["Bob's"])
    await handler.interrupt()
    assert told(await flow.open_inputs("r")) == live[:1]
    handler = flow.resume("r")
    (await next_ones(handler.inputs(), 1))["Ann"].respond(text="Ann's")
    assert await handler == 2


async def test_a_reader_and_a_request_outlive_the_time_out_of_memory() -> None:
    flow = Siblings(store=MemoryStore(), timeout=None, idle_release=0)
    handler = flow.run(run_id="r")
    slow = handler.inputs()
    await next_ones(slow, 1)
    asked = await next_ones(handler.inputs(), 3)
    await until(lambda: handler.is_released)
    asked["Ann"].respond(text="Ann's")
    await until(lambda: "Ann's" in flow.taken)
    assert list(await next_ones(slow, 2)) == ["Bob", "Cem"]
    for name in ("Bob", "Cem"):
        asked[name].respond(text=name)
    assert await handler == ["Ann's", "Bob", "Cem"]


async def test_a_late_answer_is_dropped_and_closes_no_other(caplog: pytest.LogCaptureFixture) -> None:
    flow = Siblings(store=MemoryStore(), timeout=None)
    handler = flow.run(run_id="r")
    asked = await next_ones(handler.inputs(), 3)
    asked["Bob"].respond(text="Bob's")
    await until(lambda: flow.taken == ["Bob's"])
    again = Answer(text="Bob's again")
    assert await flow.send_to_run("r", again, key=asked["Bob"].answer_key) is True
    await until(lambda: "not open any more" in caplog.text)
    assert flow.taken == ["Bob's"]
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Ann", "Cem"]
    await handler.interrupt()
    assert [text for text, *_ in told(await flow.open_inputs("r"))] == ["Ann", "Cem"]


class Go(Event):
    name: str


class Said(Event):
    name: str


class Waits(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text=ev.name), timeout=None)
        return StopEvent(result=f"{ev.name} heard {answer.text}")


class Streams(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> Question:
        await ctx.store.set("name", ev.name)
        return Question(text=ev.name)

    @step
    async def take(self, ctx: Context, ev: Answer) -> StopEvent:
        return StopEvent(result=f"{await ctx.store.get('name')} heard {ev.text}")


class Pair(Workflow):
    """Two runs of one workflow at a time, which ask the same."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Go | None:
        ctx.send_event(Go(name="A"))
        ctx.send_event(Go(name="B"))
        return None

    @step
    async def call(self, ev: Go, child: Workflow) -> Said:
        return Said(name=await child.run(name=ev.name))

    @step
    async def end(self, ctx: Context, ev: Said) -> StopEvent | None:
        said = ctx.collect_events(ev, [Said] * 2)
        return None if said is None else StopEvent(result=sorted(one.name for one in said))


@pytest.mark.parametrize("child", [Waits, Streams])
@pytest.mark.parametrize("idle_release", [None, 0])
@pytest.mark.parametrize("way", ["respond", "at once", "inbox"])
async def test_each_of_two_that_ask_the_same_gets_its_own_answer(
    child: type[Workflow], idle_release: float | None, way: str
) -> None:
    flow = Pair(store=MemoryStore(), timeout=10, idle_release=idle_release, workflows={"child": child(timeout=None)})
    handler = flow.run(run_id="r")
    asked = await next_ones(handler.inputs(), 2)
    if idle_release == 0:
        await until(lambda: handler.is_released)
    for name in ("B", "A"):
        answer = f"{name}'s"
        if way == "inbox":
            event = asked[name].answer(text=answer)
            assert await flow.send_to_run("r", event, key=asked[name].answer_key) is True
        else:
            asked[name].respond(text=answer)
        if way == "respond":
            await asyncio.sleep(0)
    assert await handler == ["A heard A's", "B heard B's"]


@pytest.mark.parametrize("idle_release", [None, 0])
async def test_one_is_answered_once_whoever_asked_for_it(idle_release: float | None) -> None:
    flow = Siblings(store=MemoryStore(), timeout=None, idle_release=idle_release)
    handler = flow.run(run_id="r")
    earlier = await next_ones(handler.inputs(), 3)
    if idle_release == 0:
        await until(lambda: handler.is_released)
    [later, *_] = await flow.open_inputs("r")
    assert later.event.text == "Ann"
    later.respond(text="yes")
    assert not earlier["Ann"].is_open
    with pytest.raises(InputClosedError):
        earlier["Ann"].respond(text="no")
    await until(lambda: flow.taken == ["yes"])
    await handler.cancel_run()


async def test_a_run_whose_time_is_up_out_of_memory_is_over_in_the_store_too() -> None:
    store = MemoryStore()
    flow = Siblings(store=store, timeout=0.2, timeout_excludes_waiting=False, idle_release=0)
    handler = flow.run(run_id="r")
    await until(lambda: handler.is_released)
    with pytest.raises(WorkflowTimeoutError):
        await handler
    with pytest.raises(WorkflowTimeoutError):
        await Siblings(store=store, timeout=0.2).resume("r")
    assert await flow.open_inputs("r") == []

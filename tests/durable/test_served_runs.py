"""The mark of a run whose input came over a server: stored with the run, and set again wherever it is taken up."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from batonflow.durable import lease as drive
from batonflow.new_runs import input_is_served, served_input
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    step,
)


@pytest.fixture(params=[1000, 1], ids=["from records", "from snapshots"], autouse=True)
def snapshots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(drive, "SNAPSHOT_EVERY", request.param)
    return


def around(served: bool) -> Any:
    return served_input() if served else nullcontext()


class Says(Workflow):
    """Asks, and then says whether its input came over a server."""

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="Go on?")

    @step
    async def say(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=input_is_served())


async def begun(store: SQLiteStore, *, served: bool) -> WorkflowHandler:
    """Begin a run, and leave it when it has asked."""
    with around(served):
        handler = Says(store=store).run(run_id="r")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    return handler


async def answered(handler: Any) -> Any:
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    return await handler


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("how", ["resume", "run", "recover", "fork"])
def test_a_run_keeps_its_mark_and_takes_that_of_a_server_that_takes_it_up(
    tmp_path: Path, served: bool, how: str
) -> None:
    async def first() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        await begun(store, served=served)
        await store.aclose()

    async def second() -> Any:
        store = SQLiteStore(tmp_path / "runs.db")
        flow = Says(store=store)
        info = await store.info("r")
        assert info is not None
        with around(not served and how != "fork"):
            if how == "recover":
                await flow.send_to_run("r", HumanResponseEvent(response="yes"))
                [handler] = await flow.recover()
                result = await handler
            elif how == "fork":
                result = await answered(flow.fork("r", info.seq))
            else:
                result = await answered(flow.resume("r") if how == "resume" else flow.run(run_id="r"))
        await store.aclose()
        return result

    asyncio.run(first())
    assert asyncio.run(second()) is (served or how != "fork")


@pytest.mark.parametrize("served", [True, False])
async def test_a_run_that_slept_keeps_its_mark(tmp_path: Path, served: bool) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    with around(not served):  # the first run of a store begins the task that wakes all of them
        first = Says(store=store).run(run_id="first")
    with around(served):
        handler = Says(store=store, idle_release=0).run(run_id="sleeper")
    while not handler.is_released:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    await Says(store=store).send_to_run("sleeper", HumanResponseEvent(response="yes"))
    assert await handler is served
    await first.cancel_run()
    await store.aclose()


async def test_a_branch_that_a_client_asks_for_came_over_a_server(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    first = await begun(store, served=False)
    flow = Says(store=store)
    info = await store.info("r")
    assert info is not None
    with served_input():
        branch = flow.fork("r", info.seq, new_id="branch")
    await branch.started()
    again = flow.fork("branch", (await store.info("branch")).seq)  # pyright: ignore[reportOptionalMemberAccess]
    assert await answered(again) is True
    assert await answered(branch) is True
    await first.cancel_run()
    await store.aclose()


async def test_a_snapshot_keeps_the_mark() -> None:
    with served_input():
        handler = Says().run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    snapshot = handler.ctx.to_dict()
    await handler.cancel_run()
    flow = Says()
    again = flow.run(ctx=Context.from_dict(flow, snapshot))
    assert await answered(again) is True


class Order(Event):
    pass


class Receipt(Event):
    is_served: bool


class Desk(Workflow, entry=[Order]):
    @step
    async def take(self, ctx: Context, ev: Order) -> Receipt | StopEvent:
        ctx.send_event(Receipt(is_served=input_is_served()))
        return StopEvent()


class Shop(Workflow):
    """An event from outside starts an attached workflow."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> Order | None:
        ctx.write_event_to_stream(InputRequiredEvent())

    @step
    async def end(self, ev: Receipt) -> StopEvent:
        return StopEvent(result=ev.is_served)


@pytest.mark.parametrize("served", [True, False])
async def test_a_run_inside_has_the_mark_of_the_run_around_it(served: bool) -> None:
    flow = Shop()
    flow.add_workflows(desk=Desk())
    with around(served):
        handler = flow.run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    with around(not served):
        handler.ctx.send_event(Order())
    assert await handler is served

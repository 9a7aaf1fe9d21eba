"""Classes declared inside functions are written into a store only where the workflow knows them."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from batonflow.values.serializers import BaseSerializer
from batonflow.values.unmarked import alike
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    SQLiteStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import ContextSerdeError, StoreError
from tests.workflow_core.flows import until

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T] = []


def local_classes() -> list[tuple[type, Any]]:
    class Model(BaseModel):
        n: int = 0

    @dataclass
    class Data:
        n: int = 0

    class Choice(Enum):
        ONE = 1

    class Table(dict[str, int]):
        pass

    return [(Model, Model(n=1)), (Data, Data(n=1)), (Choice, Choice.ONE), (Table, Table(a=1)), (Model, Page[Model]())]


LOCAL = local_classes()


class Holding(Workflow):
    """Puts what it was built with into its state, and waits."""

    def __init__(self, value: Any, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.value = value

    @step
    async def hold(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("held", [self.value])
        await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=await ctx.store.get("held"))


def waits(handler: Any) -> bool:
    return bool(handler.is_waiting)


@pytest.mark.parametrize(("cls", "value"), LOCAL, ids=lambda one: type(one).__name__)
async def test_a_value_of_a_class_that_nobody_could_find_is_refused_when_it_is_written(
    tmp_path: Path, cls: type, value: Any
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    remedy = (
        rf"0: .*<locals>\.{cls.__name__} is declared inside a function.*top of its module.*types=\[{cls.__name__}\]"
    )
    with pytest.raises(StoreError, match=remedy):
        await Holding(value, store=store).run()
    await store.aclose()


@pytest.mark.parametrize("serializer", [None, JsonSerializer()], ids=["built in", "given"])
@pytest.mark.parametrize(("cls", "value"), LOCAL, ids=lambda one: type(one).__name__)
async def test_a_value_of_a_class_that_the_workflow_knows_comes_back(
    tmp_path: Path, cls: type, value: Any, serializer: BaseSerializer | None
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    flow = Holding(value, store=store, types=[cls], serializer=serializer)
    handler = flow.run(run_id="r")
    await until(lambda: waits(handler))
    await handler.interrupt()
    again = flow.resume("r")
    await until(lambda: waits(again))
    again.ctx.send_event(HumanResponseEvent())
    assert alike(await again, [value])
    await store.aclose()


async def test_events_of_signatures_are_known_and_those_that_are_only_streamed_are_named(tmp_path: Path) -> None:
    class Known(Event):
        n: int = 0

    class Progress(Event):
        n: int = 0

    class Flow(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Known:
            return Known()

        @step
        async def end(self, ctx: Context, ev: Known) -> StopEvent:
            ctx.write_event_to_stream(Progress(n=1))
            return StopEvent()

    store = SQLiteStore(tmp_path / "runs.db")
    with pytest.raises(StoreError, match=r"Progress is declared inside a function.*types=\[Progress\]"):
        await Flow(store=store).run(run_id="r")
    flow = Flow(store=store, types=[Progress])
    await flow.run(run_id="s")
    events = [entry.event for entry in (await store.replay("s", flow)).events]
    assert [type(event) for event in events] == [Progress, StopEvent]
    await store.aclose()


async def test_a_snapshot_is_read_by_a_workflow_that_knows_the_class() -> None:
    cls, value = LOCAL[1]
    handler = Holding(value).run()
    await until(lambda: waits(handler))
    payload = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    with pytest.raises(ContextSerdeError, match=r"<locals>\.Data, which is not a loaded class"):
        Context.from_dict(Holding(value), payload)
    flow = Holding(value, types=[cls])
    again = flow.run(ctx=Context.from_dict(flow, payload))
    await until(lambda: waits(again))
    again.ctx.send_event(HumanResponseEvent())
    assert await again == [value]

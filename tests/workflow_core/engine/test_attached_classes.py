"""Classes as attached workflows: an object is made of them, and the events that they take from outside start it."""

import copy
import pickle
from typing import Any

import pytest

from batonflow.draw import draw_all_possible_flows_mermaid
from batonflow.workflow_core import (
    Context,
    Event,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowConfigurationError,
    WorkflowValidationError,
    step,
)


class Trade(Event):
    sku: str


class Placed(Event):
    sku: str


class OrderStation(Workflow):
    """Takes no StartEvent."""

    placed: list[str] = []

    @step
    async def trade(self, ev: Trade) -> Placed:
        return Placed(sku=ev.sku)

    @step
    async def end(self, ev: Placed) -> StopEvent:
        self.placed.append(ev.sku)
        return StopEvent(result="Done!")


class Shop(Workflow):
    @step
    async def open(self, ctx: Context, ev: StartEvent) -> StopEvent | Trade:
        ctx.send_event(Trade(sku=ev.sku))
        return StopEvent(result="closed")


async def test_an_event_of_the_parent_starts_an_attached_class() -> None:
    OrderStation.placed.clear()
    shop = Shop()
    shop.add_workflows(order_station=OrderStation)
    assert shop.attached_workflows["order_station"].entry_events == (Trade,)
    assert await shop.run(sku="rope") == "closed"
    assert OrderStation.placed == ["rope"]


async def test_the_constructor_takes_classes_too() -> None:
    OrderStation.placed.clear()
    shop = Shop(workflows={"order_station": OrderStation})
    await shop.run(sku="oar")
    assert OrderStation.placed == ["oar"]
    assert "order_station" in draw_all_possible_flows_mermaid(shop, filename=None)


async def test_copies_of_an_attached_class_start_on_the_same_events() -> None:
    shop = Shop(workflows={"order_station": OrderStation})
    station = shop.attached_workflows["order_station"]
    assert copy.copy(station).entry_events == (Trade,)
    assert pickle.loads(pickle.dumps(station.__batonflow__.steps)).entry_events == (Trade,)


async def test_a_class_that_takes_a_start_event_is_made_as_it_is() -> None:
    class Inner(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ev.text.upper())

    class Outer(Workflow):
        @step
        async def call(self, ev: StartEvent, inner: Inner) -> StopEvent:
            return StopEvent(result=await inner.run(text="tides"))

    assert await Outer(workflows={"inner": Inner}).run() == "TIDES"


def test_an_object_of_such_a_class_alone_is_refused_with_both_remedies() -> None:
    with pytest.raises(WorkflowConfigurationError) as raised:
        OrderStation()
    assert "add_workflows(...=OrderStation)" in str(raised.value)
    assert "class OrderStation(Workflow, entry=[Trade])" in str(raised.value)


def test_attaching_does_not_change_the_class() -> None:
    Shop(workflows={"order_station": OrderStation})
    with pytest.raises(WorkflowConfigurationError):
        OrderStation()


def test_a_class_with_arguments_has_to_be_made_by_the_program() -> None:
    class Needs(OrderStation):
        def __init__(self, path: str) -> None:
            super().__init__()

    with pytest.raises(WorkflowValidationError, match="attach an object of it"):
        Shop(workflows={"needs": Needs})


@pytest.mark.parametrize("wrong", [int, 3, Event])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(WorkflowValidationError, match=r"takes a workflow or its class, got int|Event"):
        Shop(workflows={"wrong": wrong})

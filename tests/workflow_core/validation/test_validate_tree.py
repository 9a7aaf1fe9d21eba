"""The checks see the whole tree of attached workflows: what one makes and another takes is neither lost nor missing."""

from typing import Annotated

import pytest

from batonflow.workflow_core import (
    Event,
    HumanResponseEvent,
    Resource,
    StartEvent,
    StopEvent,
    Workflow,
    WorkflowValidationError,
    step,
)
from tests.contract import contract


class Order(Event):
    sku: str = "apple"


class Receipt(Event):
    pass


class Answer(HumanResponseEvent):
    pass


class ShopStart(StartEvent):
    pass


class Station(Workflow, entry=[Order]):
    """Starts on an order, answers with a receipt."""

    @step
    async def trade(self, ev: Order) -> Receipt | StopEvent:
        return Receipt()


class Shop(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Order:
        return Order()

    @step
    async def received(self, ev: Receipt) -> StopEvent:
        return StopEvent(result="received")


class Lonely(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


def refusal(workflow: Workflow) -> str:
    with pytest.raises(WorkflowValidationError) as caught:
        workflow.validate()
    return str(caught.value)


def test_events_that_pass_between_a_workflow_and_an_attached_one_are_neither_lost_nor_missing() -> None:
    workflow = Shop()
    text = refusal(workflow)
    assert "consumed but never produced: Receipt" in text
    workflow.add_workflows(station=Station())
    assert workflow.validate() is False


async def test_a_called_workflow_may_send_events_to_the_one_that_calls_it() -> None:
    class Clerk(Workflow):
        @step
        async def work(self, ev: StartEvent) -> Receipt | None:
            return Receipt()

        @step
        async def end(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="filed")

    class Office(Workflow):
        @step
        async def begin(self, ev: StartEvent, clerk: Clerk) -> StopEvent | None:
            await clerk.run()
            return None

        @step
        async def received(self, ev: Receipt) -> StopEvent:
            return StopEvent(result="received")

    assert await Office(workflows={"clerk": Clerk()}).run() == "received"
    assert "produced but never consumed: Receipt" in refusal(Clerk())


def test_an_event_that_nobody_in_the_tree_takes_is_reported_with_its_workflow() -> None:
    workflow = Lonely(workflows={"station": Station()})
    text = refusal(workflow)
    assert "[reachability] Attached workflows that are never started" in text
    assert "Station (attached as 'station') starts on Order" in text
    assert "Let a step of Lonely declare to return that event" in text

    class Ordering(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Order | StopEvent:
            return Order()

    text = refusal(Ordering(workflows={"station": Station()}))
    assert "produced but never consumed: Receipt" in text
    assert "step 'trade' of Station (attached as 'station'), but no step of it nor of Ordering accepts it" in text


def test_an_event_that_an_own_step_takes_does_not_reach_the_attached_workflow() -> None:
    class Keeping(Shop):
        @step
        async def keep(self, ev: Order) -> StopEvent:
            return StopEvent()

    assert "Station (attached as 'station') starts on Order" in refusal(Keeping(workflows={"station": Station()}))

    class Counter(Lonely):
        @step
        async def count(self, ev: Order) -> None: ...

    text = refusal(Keeping(workflows={"station": Station(), "counter": Counter()}, skip_graph_checks={"reachability"}))
    assert "consumed but never produced: Order" in text
    assert (
        "step 'begin' of Keeping does, but a step of Keeping takes it there. Let only one workflow accept Order" in text
    )


def test_an_attached_workflow_with_a_start_event_of_its_own_may_start_on_it_or_be_called() -> None:
    class Station2(Workflow):
        @step
        async def trade(self, ev: ShopStart) -> StopEvent:
            return StopEvent()

    class Starting(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> ShopStart | StopEvent:
            return StopEvent()

    assert Starting(workflows={"station": Station2()}).validate() is False
    assert Lonely(workflows={"station": Station2()}).validate() is False


def test_an_entry_event_that_no_step_accepts_is_refused() -> None:
    class Deaf(Workflow, entry=[Receipt]):
        @step
        async def trade(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    assert "Deaf declares Receipt in entry=[...], but no step of it accepts it" in refusal(Deaf())


def test_an_entry_event_that_this_parent_never_sends_is_no_mistake_as_long_as_another_starts_the_workflow() -> None:
    class Rich(Workflow, entry=[Order, Receipt]):
        @step
        async def trade(self, ev: Order) -> StopEvent:
            return StopEvent()

        @step
        async def file(self, ev: Receipt) -> StopEvent:
            return StopEvent()

    class Ordering(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Order | StopEvent:
            return Order()

    assert Ordering(workflows={"rich": Rich()}).validate() is False


def test_a_person_asked_by_an_attached_workflow_counts() -> None:
    class Asking(Lonely):
        @step
        async def answered(self, ev: Answer) -> None: ...

    assert Lonely(workflows={"middle": Lonely(workflows={"asking": Asking()})}).validate() is True


def test_mistakes_of_attached_workflows_are_found_at_any_depth_unless_they_switch_their_checks_off() -> None:
    class Wrong(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Receipt | StopEvent:
            return StopEvent()

    text = refusal(Lonely(workflows={"middle": Lonely(workflows={"wrong": Wrong()})}))
    assert "step 'begin' of Wrong (attached as 'wrong')" in text
    assert Lonely(workflows={"wrong": Wrong(disable_validation=True)}).validate() is False


@contract("17.t5")
def test_a_step_that_asks_for_a_workflow_that_is_not_attached_is_refused() -> None:
    class Calling(Workflow):
        @step
        async def begin(self, ev: StartEvent, lonely: Lonely) -> StopEvent:
            return StopEvent()

    text = refusal(Calling())
    assert "Step 'begin' of Calling asks for the attached workflow 'lonely' (Lonely), but none is attached" in text
    assert "add_workflows(lonely=Lonely(...))" in text
    two = {"first": Lonely(), "second": Lonely()}
    assert "several of them are attached, as 'first', 'second'" in refusal(Calling(workflows=two))
    assert Calling(workflows={"other_name": Lonely()}).validate() is False
    assert Calling(workflows={**two, "lonely": Lonely()}).validate() is False


@contract("17.t5")
def test_a_workflow_parameter_with_a_default_may_stay_unattached() -> None:
    class Calling(Workflow):
        @step
        async def begin(self, ev: StartEvent, lonely: Lonely = Lonely()) -> StopEvent:  # noqa: B008
            return StopEvent()

    assert Calling().validate() is False


def test_a_workflow_made_by_a_resource_is_part_of_the_tree() -> None:
    def make() -> Station:
        return Station()

    class Ordering(Workflow):
        @step
        async def begin(self, ev: StartEvent, station: Annotated[Station, Resource(make)]) -> Order:
            return Order()

        @step
        async def received(self, ev: Receipt) -> StopEvent:
            return StopEvent()

    assert Ordering().validate() is False


def test_workflows_attached_in_a_circle_are_walked_once() -> None:
    first, second = Lonely(), Lonely()
    first.add_workflows(second=second)
    second.add_workflows(first=first)
    assert first.validate() is False

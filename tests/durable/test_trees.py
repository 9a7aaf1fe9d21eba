"""Records of workflows inside workflows: what crosses from one to another is not committed before its sender."""

import asyncio
from collections.abc import Callable
from typing import Any

from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step
from tests.durable.listening import Listener, written
from tests.workflow_core.flows import until


class Order(Event):
    pass


class Receipt(Event):
    pass


def kept(journal: Listener) -> list[tuple[str, str, str]]:
    """What was recorded so far, but the start of the whole run: kind, path, and the step that did or got it."""
    return [(r["kind"], r["path"], r.get("step") or r.get("target") or "") for r in journal.records()[1:]]


class Gate:
    """Lets a step send, and then stay open until the test says so."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def before_and_after(self, workflow: Workflow, done: Callable[[], Any]) -> tuple[Any, Any]:
        journal = workflow.run_store
        assert isinstance(journal, Listener)
        handler = workflow.run()
        await until(done)
        await written()
        before = kept(journal)
        self.opened.set()
        await handler
        return before, kept(journal)[len(before) :]


async def test_a_child_is_recorded_after_the_step_that_started_it():
    gate, worked = Gate(), []

    class Child(Workflow, entry=[Order]):
        @step
        async def work(self, ev: Order) -> StopEvent:
            worked.append(ev)
            return StopEvent()

    class Parent(Workflow):
        @step
        async def give(self, ctx: Context, ev: StartEvent) -> Order | StopEvent:
            ctx.send_event(Order())
            await gate.opened.wait()
            return StopEvent()

    before, after = await gate.before_and_after(Parent(store=Listener(), workflows={"c": Child()}), lambda: worked)
    assert before == []
    assert after[:4] == [("segment", "", "give"), ("started", "c", ""), ("segment", "c", "work"), ("ended", "c", "")]


async def test_a_targeted_event_is_recorded_after_the_step_that_sent_it():
    gate, worked = Gate(), []

    class Child(Workflow, entry=[Order]):
        @step
        async def work(self, ev: Order) -> StopEvent:
            worked.append(ev)
            return StopEvent()

    class Parent(Workflow):
        @step
        async def give(self, ctx: Context, ev: StartEvent) -> Order | StopEvent:
            ctx.send_event(Order(), step="c.work")
            await gate.opened.wait()
            return StopEvent()

    before, after = await gate.before_and_after(Parent(store=Listener(), workflows={"c": Child()}), lambda: worked)
    assert before == []
    assert after[:3] == [("segment", "", "give"), ("started", "c", "work"), ("segment", "c", "work")]


async def test_what_a_parent_does_with_a_childs_event_is_recorded_after_the_child():
    gate, worked = Gate(), []

    class Child(Workflow, entry=[Order]):
        @step
        async def work(self, ctx: Context, ev: Order) -> Receipt | StopEvent:
            ctx.send_event(Receipt())
            await gate.opened.wait()
            return StopEvent()

    class Parent(Workflow):
        @step
        async def give(self, ev: StartEvent) -> Order:
            return Order()

        @step
        async def file(self, ev: Receipt) -> StopEvent:
            worked.append(ev)
            return StopEvent()

    before, after = await gate.before_and_after(Parent(store=Listener(), workflows={"c": Child()}), lambda: worked)
    assert before == [("segment", "", "give"), ("started", "c", "")]
    assert after[:3] == [("segment", "c", "work"), ("input", "", ""), ("segment", "", "file")]

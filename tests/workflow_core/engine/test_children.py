"""Workflows inside workflows: attaching, events both ways, one stream, one end, one snapshot."""

import asyncio
from typing import Annotated, Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    Resource,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    WorkflowValidationError,
    catch_error,
    step,
)
from batonflow.workflow_core.events import UnhandledEvent, WorkflowFailedEvent
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.contract import contract
from tests.workflow_core.flows import names, resume, saved, streamed, until


class Order(Event):
    sku: str = ""


class Receipt(Event):
    sku: str = ""


class Progress(Event):
    text: str = ""


class Station(Workflow):
    """Is run by a step: streams its progress and returns a receipt."""

    @step
    async def take(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Progress(text=f"ordering {ev.sku}"))
        await ctx.store.set("sku", ev.sku)
        return StopEvent(result=f"receipt for {ev.sku}")


class Shop(Workflow):
    """Its step asks for the attached station."""

    @step
    async def go(self, ctx: Context, ev: StartEvent, station: Station) -> StopEvent:
        ctx.write_event_to_stream(Progress(text="asking"))
        receipt = await station.run(sku="lamp")
        return StopEvent(result=receipt)


class Desk(Workflow, entry=[Order]):
    """Starts on an order and answers with a receipt."""

    @step
    async def take(self, ctx: Context, ev: Order) -> Receipt:
        ctx.write_event_to_stream(Progress(text=f"taking {ev.sku}"))
        return Receipt(sku=ev.sku)

    @step
    async def file(self, ev: Progress) -> StopEvent:
        return StopEvent()


class Market(Workflow):
    """Sends orders down and collects what comes up."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Order | None:
        for sku in ev.get("skus", ["lamp"]):
            ctx.send_event(Order(sku=sku))

    @step
    async def collect(self, ctx: Context, ev: Receipt) -> StopEvent | Progress | None:
        ctx.send_event(Progress(text="filed"))
        found = ctx.collect_events(ev, [Receipt] * (await ctx.store.get("count", default=1)))
        return StopEvent(result=sorted(receipt.sku for receipt in found)) if found else None


async def items(handler: Any) -> list[tuple[str, str, str]]:
    """path, step and class name of all that is streamed."""
    return [(item.path, item.step, type(item.event).__name__) async for item in handler.subscribe()]


# --- three ways to attach ---------------------------------------------------------------------------------------------


@contract("17.t5")
async def test_attached_by_argument_or_method_or_resource():
    by_argument = Shop(workflows={"station": Station()})
    by_method = Shop()
    by_method.add_workflows(station=Station())
    assert await by_argument.run() == "receipt for lamp"
    assert await by_method.run() == "receipt for lamp"

    def make() -> Station:
        return Station()

    class ByResource(Workflow):
        @step
        async def go(self, ev: StartEvent, station: Annotated[Station, Resource(make)]) -> StopEvent:
            return StopEvent(result=await station.run(sku="lamp"))

    handler = ByResource().run()
    assert await items(handler) == [("station", "take", "Progress"), ("", "", "StopEvent")]
    assert await handler == "receipt for lamp"


@contract("17.t5")
async def test_the_parameter_receives_the_very_instance_attached():
    station = Station()
    seen: list[Workflow] = []

    class Looks(Workflow):
        @step
        async def go(self, ev: StartEvent, station: Station) -> StopEvent:
            seen.append(station)
            return StopEvent()

    await Looks(workflows={"station": station}).run()
    assert seen == [station]


@contract("17.t5")
async def test_a_parameter_finds_the_only_one_of_its_class_under_another_name():
    assert await Shop(workflows={"orders": Station()}).run() == "receipt for lamp"


@contract("17.t5")
async def test_a_missing_child_is_named_with_the_remedy():
    with pytest.raises(WorkflowValidationError, match=r"add_workflows\(station="):
        await Shop().run()
    with pytest.raises(WorkflowRuntimeError, match=r"add_workflows\(station="):
        await Shop(disable_validation=True).run()


@contract("17.t5")
async def test_a_default_stands_in_for_a_missing_child():
    class Optional(Workflow):
        @step
        async def go(self, ev: StartEvent, station: Station | None = None) -> StopEvent:
            return StopEvent(result=station)

    assert await Optional().run() is None


async def test_two_children_of_one_name_are_refused():
    shop = Shop(workflows={"station": Station()})
    with pytest.raises(WorkflowValidationError, match="'station' is already attached to Shop: choose another name"):
        shop.add_workflows(station=Station())
    with pytest.raises(WorkflowValidationError, match="takes a workflow or its class, got str"):
        shop.add_workflows(other="station")  # type: ignore[arg-type]
    assert await shop.run() == "receipt for lamp"


# --- called children --------------------------------------------------------------------------------------------------


async def test_a_called_child_streams_into_its_parent_with_its_path():
    handler = Shop(workflows={"station": Station()}).run()
    assert await items(handler) == [("", "go", "Progress"), ("station", "take", "Progress"), ("", "", "StopEvent")]


async def test_several_runs_of_one_child_have_numbered_paths():
    class Twice(Workflow):
        @step
        async def go(self, ev: StartEvent, station: Station) -> StopEvent:
            return StopEvent(result=[await station.run(sku=sku) for sku in ("a", "b")])

    handler = Twice(workflows={"station": Station()}).run()
    assert [path for path, _, _ in await items(handler)] == ["station", "station#2", ""]
    assert await handler == ["receipt for a", "receipt for b"]


async def test_children_may_run_at_the_same_time():
    class Many(Workflow):
        @step
        async def go(self, ev: StartEvent, station: Station) -> StopEvent:
            return StopEvent(result=await asyncio.gather(*(station.run(sku=str(n)) for n in range(5))))

    assert await Many(workflows={"station": Station()}).run() == [f"receipt for {n}" for n in range(5)]


async def test_grandchildren_have_longer_paths():
    class Mall(Workflow):
        @step
        async def go(self, ev: StartEvent, shop: Shop) -> StopEvent:
            return StopEvent(result=await shop.run())

    handler = Mall(workflows={"shop": Shop(workflows={"station": Station()})}).run()
    assert [path for path, _, _ in await items(handler)] == ["shop", "shop/station", ""]
    assert await handler == "receipt for lamp"


async def test_the_same_workflow_run_elsewhere_is_independent():
    station = Station()
    Shop(workflows={"station": station})
    handler = station.run(sku="alone")
    assert [path for path, _, _ in await items(handler)] == ["", ""]
    assert await handler == "receipt for alone"


@contract("5.1.5")
async def test_a_child_has_a_store_of_its_own():
    class Looks(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent, station: Station) -> StopEvent:
            await station.run(sku="x")
            return StopEvent(result=await ctx.store.get("sku", default="not shared"))

    assert await Looks(workflows={"station": Station()}).run() == "not shared"


async def test_the_failure_of_a_called_child_is_raised_where_it_is_awaited():
    class Bad(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            raise LookupError("out of stock")

    class Copes(Workflow):
        @step
        async def go(self, ev: StartEvent, bad: Bad) -> StopEvent:
            try:
                await bad.run()
            except LookupError as error:
                return StopEvent(result=f"coped with {error}")
            return StopEvent()

    class Fails(Workflow):
        @step
        async def go(self, ev: StartEvent, bad: Bad) -> StopEvent:
            return StopEvent(result=await bad.run())

    handler = Copes(workflows={"bad": Bad()}).run()
    assert names(await streamed(handler)) == ["StopEvent"], "the child's failure is no event of the parent"
    assert await handler == "coped with out of stock"
    failing = Fails(workflows={"bad": Bad()}).run()
    with pytest.raises(LookupError, match="out of stock"):
        await failing


async def test_a_child_that_times_out_raises_in_its_parent():
    class Slow(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

    class Copes(Workflow):
        @step
        async def go(self, ev: StartEvent, slow: Slow) -> StopEvent:
            try:
                return StopEvent(result=await slow.run())
            except WorkflowTimeoutError as error:
                return StopEvent(result=str(error))

    assert "Currently active steps: go" in await Copes(workflows={"slow": Slow(timeout=0.01)}).run()


async def test_a_retried_step_calls_its_child_anew():
    tries: list[int] = []

    class Flaky(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("not yet")
            return StopEvent(result="at last")

    class Parent(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def go(self, ev: StartEvent, flaky: Flaky) -> StopEvent:
            return StopEvent(result=await flaky.run())

    assert await Parent(workflows={"flaky": Flaky()}).run() == "at last"


# --- one end ----------------------------------------------------------------------------------------------------------


class Sleeper(Workflow):
    cancelled: list[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cancelled = []

    @step
    async def nap(self, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            self.cancelled.append("nap")
            raise
        return StopEvent()


class Bed(Workflow):
    @step
    async def go(self, ev: StartEvent, sleeper: Sleeper) -> StopEvent:
        return StopEvent(result=await sleeper.run())


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_cancel_and_timeout_reach_the_children(how: str):
    sleeper = Sleeper()
    handler = Bed(workflows={"sleeper": sleeper}, timeout=0.02 if how == "timeout" else 50).run()
    await asyncio.sleep(0.005)
    if how == "cancel":
        await handler.cancel_run()
    with pytest.raises((WorkflowCancelledByUser, WorkflowTimeoutError)):
        await handler
    await until(lambda: sleeper.cancelled == ["nap"])


async def test_a_failing_parent_cancels_its_children():
    class Fails(Bed):
        @step
        async def fails(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.002)
            raise ValueError("parent failed")

    sleeper = Sleeper()
    with pytest.raises(ValueError, match="parent failed"):
        await Fails(workflows={"sleeper": sleeper}).run()
    await until(lambda: sleeper.cancelled == ["nap"])


async def test_the_stop_of_the_parent_cancels_called_children():
    class Stops(Bed):
        @step
        async def stops(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0.002)
            return StopEvent(result="stopped")

    sleeper = Sleeper()
    assert await Stops(workflows={"sleeper": sleeper}).run() == "stopped"
    await until(lambda: sleeper.cancelled == ["nap"])


# --- events both ways -------------------------------------------------------------------------------------------------


async def test_an_event_that_no_own_step_takes_starts_a_child_which_answers_with_an_event():
    handler = Market(workflows={"desk": Desk()}).run()
    assert ("desk", "take", "Progress") in await items(handler)
    assert await handler == ["lamp"]


async def test_one_run_of_the_child_for_each_entry_event():
    flow = Market(workflows={"desk": Desk()})
    ctx = Context(flow)
    await ctx.store.set("count", 3)
    handler = flow.run(ctx=ctx, skus=["a", "b", "c"])
    paths = [path for path, _, name in await items(handler) if name == "Progress"]
    assert sorted(paths) == ["desk", "desk#2", "desk#3"]
    assert await handler == ["a", "b", "c"]


async def test_all_attached_children_that_take_an_event_get_it():
    class Notes(Workflow, entry=[Order]):
        @step
        async def note(self, ctx: Context, ev: Order) -> StopEvent:
            ctx.write_event_to_stream(Progress(text="noted"))
            return StopEvent()

    handler = Market(workflows={"desk": Desk(), "notes": Notes()}).run()
    shown = await items(handler)
    assert {path for path, _, _ in shown} >= {"desk", "notes", ""}
    assert await handler == ["lamp"]


async def test_an_event_of_the_parents_own_steps_stays_with_them():
    class Keeps(Workflow):
        @step
        async def go(self, ev: StartEvent) -> Order:
            return Order(sku="mine")

        @step
        async def own(self, ev: Order) -> StopEvent:
            return StopEvent(result="own")

    handler = Keeps(workflows={"desk": Desk(disable_validation=True)}, disable_validation=True).run()
    assert [path for path, _, _ in await items(handler)] == [""]
    assert await handler == "own"


async def test_a_targeted_send_reaches_a_step_of_a_child():
    class Targets(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Order | None:
            ctx.send_event(Order(sku="aimed"), step="desk.take")

        @step
        async def end(self, ctx: Context, ev: Receipt) -> StopEvent | Progress:
            ctx.send_event(Progress())
            return StopEvent(result=ev.sku)

    assert await Targets(workflows={"desk": Desk()}).run() == "aimed"


async def test_a_target_that_does_not_exist_is_named():
    class Targets(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent | Order:
            texts: list[str] = []
            for target in ("nobody.take", "desk.nothing", "desk.file"):
                try:
                    ctx.send_event(Order(), step=target)
                except WorkflowRuntimeError as error:
                    texts.append(str(error))
            return StopEvent(result=texts)

    nobody, nothing, unfit = await Targets(workflows={"desk": Desk()}, disable_validation=True).run()
    assert "no workflow 'nobody' is attached (attached: desk)" in nobody
    assert "Step nothing does not exist" in nothing
    assert "does not accept event of type" in unfit


async def test_an_event_that_nobody_in_the_tree_takes_is_unhandled():
    class Stray(Event):
        pass

    class Sends(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(Stray())
            await asyncio.sleep(0.001)
            return StopEvent()

    shown = await streamed(Sends(workflows={"desk": Desk()}, disable_validation=True).run(), internal=True)
    assert [event.event_type for event in shown if isinstance(event, UnhandledEvent)] == ["Stray"]


# --- event-started children and the end of the parent -----------------------------------------------------------------


class SlowDesk(Workflow, entry=[Order]):
    @step
    async def take(self, ctx: Context, ev: Order) -> StopEvent:
        ctx.write_event_to_stream(Progress(text="begun"))
        await asyncio.sleep(0.01)
        ctx.write_event_to_stream(Progress(text="finished"))
        return StopEvent(result="the child's own result")


class Leaves(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent | Order:
        ctx.send_event(Order(sku="x"))
        await asyncio.sleep(0.002)
        return StopEvent(result="the parent's")


async def test_the_run_completes_when_event_started_children_have_ended():
    handler = Leaves(workflows={"desk": SlowDesk()}).run()
    shown = [getattr(event, "text", type(event).__name__) for event in await streamed(handler)]
    assert shown == ["begun", "finished", "StopEvent"], "the parent's stop event is the last of its stream"
    assert await handler == "the parent's"


async def test_on_parent_stop_cancel_does_not_wait():
    flow = Leaves()
    flow.add_workflows(on_parent_stop="cancel", desk=SlowDesk())
    handler = flow.run()
    shown = [getattr(event, "text", type(event).__name__) for event in await streamed(handler)]
    assert shown == ["begun", "StopEvent"]
    assert await handler == "the parent's"


@pytest.mark.parametrize("late", [False, True])
async def test_a_failing_event_started_child_fails_the_run_also_after_the_parents_stop(late: bool):
    class Bad(Workflow, entry=[Order]):
        @step
        async def take(self, ev: Order) -> StopEvent:
            await asyncio.sleep(0.01 if late else 0)
            raise LookupError("out of stock")

    handler = Leaves(workflows={"desk": Bad()}).run()
    with pytest.raises(LookupError, match="out of stock"):
        await handler
    assert isinstance((await streamed(handler))[-1], WorkflowFailedEvent)


async def test_a_cancel_reaches_children_that_the_parent_waits_for_after_its_stop():
    class Forever(Workflow, entry=[Order]):
        @step
        async def take(self, ev: Order) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

    handler = Leaves(workflows={"desk": Forever()}).run()
    await asyncio.sleep(0.01)
    assert not handler.is_done()
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler


async def test_the_timeout_of_the_parent_covers_children_it_waits_for_after_its_stop():
    class Forever(Workflow, entry=[Order]):
        @step
        async def take(self, ev: Order) -> StopEvent:
            await asyncio.sleep(100)
            return StopEvent()

    with pytest.raises(WorkflowTimeoutError):
        await asyncio.wait_for(Leaves(workflows={"desk": Forever()}, timeout=0.03).run().stop_event_result(), 30)


async def test_an_object_that_the_child_has_streamed_is_not_streamed_again():
    class Reports(Workflow, entry=[Order]):
        @step
        async def take(self, ctx: Context, ev: Order) -> Progress:
            progress = Progress(text="same object")
            ctx.write_event_to_stream(progress)
            return progress

        @step
        async def never(self, ev: Receipt) -> StopEvent: ...

    class Forwards(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Order:
            return Order()

        @step
        async def forward(self, ctx: Context, ev: Progress) -> StopEvent:
            ctx.write_event_to_stream(ev)
            ctx.write_event_to_stream(Progress(text="another"))
            return StopEvent()

    flow = Forwards(disable_validation=True)
    flow.add_workflows(on_parent_stop="cancel", desk=Reports(disable_validation=True))
    shown = [getattr(event, "text", "end") for event in await streamed(flow.run())]
    assert shown == ["same object", "another", "end"]


async def test_an_event_that_a_child_took_up_keeps_its_lineage_of_recoveries():
    class Bad(Workflow, entry=[Order]):
        @step
        async def take(self, ev: Order) -> Receipt | StopEvent:
            raise LookupError("out of stock")

        @catch_error
        async def substitute(self, ev: StepFailedEvent) -> Receipt:
            return Receipt(sku="substitute")

        @step
        async def end(self, ev: Progress) -> StopEvent:
            return StopEvent()

    assert await Market(workflows={"desk": Bad()}).run() == ["substitute"]


# --- people -----------------------------------------------------------------------------------------------------------


class AsksInside(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(HumanResponseEvent, InputRequiredEvent(prefix=f"{ev.sku}?"))
        return StopEvent(result=f"{ev.sku}: {reply.text}")


class Counter(Workflow):
    runs: int = 0

    @step
    async def go(self, ctx: Context, ev: StartEvent, asks: AsksInside) -> StopEvent:
        await ctx.store.set("begun", await ctx.store.get("begun", default=0) + 1)
        answer = await asks.run(sku="lamp")
        return StopEvent(result=(answer, await ctx.store.get("begun")))


async def test_a_child_waits_for_people_through_its_parent():
    handler = Counter(workflows={"asks": AsksInside()}).run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(text="yes"))
    assert await handler == ("lamp: yes", 1)


async def test_a_grandchild_waits_for_people_through_both():
    class Grandparent(Workflow):
        @step
        async def go(self, ev: StartEvent, counter: Counter) -> StopEvent:
            return StopEvent(result=await counter.run())

    handler = Grandparent(workflows={"counter": Counter(workflows={"asks": AsksInside()})}, on_stall="raise").run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(text="yes"))
    assert await asyncio.wait_for(handler.stop_event_result(), 30)
    assert await handler == ("lamp: yes", 1)


async def test_waiting_in_a_child_is_no_stall_of_the_parent():
    handler = Counter(workflows={"asks": AsksInside()}, on_stall="raise").run()
    await asyncio.sleep(0.005)
    assert not handler.is_done()
    handler.ctx.send_event(HumanResponseEvent(text="yes"))
    assert await handler == ("lamp: yes", 1)


# --- snapshots --------------------------------------------------------------------------------------------------------


async def test_a_called_child_goes_on_where_it_stood_after_a_restore():
    flow = Counter(workflows={"asks": AsksInside()})
    handler = flow.run()
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    await asyncio.sleep(0.005)
    again.ctx.send_event(HumanResponseEvent(text="after the restart"))
    assert names(await streamed(again)) == ["StopEvent"], "nothing is asked twice"
    assert await again == ("lamp: after the restart", 1)


async def test_a_child_can_be_answered_at_once_after_a_restore():
    flow = Counter(workflows={"asks": AsksInside()})
    handler = flow.run()
    await asyncio.sleep(0.005)
    await handler.cancel_run()
    again = resume(flow, saved(handler))
    again.ctx.send_event(HumanResponseEvent(text="at once"))
    assert await asyncio.wait_for(again.stop_event_result(), 30)
    assert await again == ("lamp: at once", 1)


async def test_a_child_that_had_finished_is_not_run_again():
    ran: list[str] = []

    class Quick(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            ran.append("quick")
            return StopEvent(result="quick result")

    class Parent(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent, quick: Quick) -> StopEvent:
            first = await quick.run()
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=first)

    flow = Parent(workflows={"quick": Quick()})
    handler = flow.run()
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent())
    assert await asyncio.wait_for(again.stop_event_result(), 30)
    assert await again == "quick result"
    assert ran == ["quick"]


class AsksOnOrder(Workflow, entry=[Order]):
    @step
    async def take(self, ctx: Context, ev: Order) -> Receipt:
        reply = await ctx.wait_for_event(HumanResponseEvent, requirements={"sku": ev.sku})
        return Receipt(sku=f"{ev.sku} {reply.text}")

    @step
    async def file(self, ev: Progress) -> StopEvent:
        return StopEvent()


async def test_event_started_children_go_on_after_a_restore():
    flow = Market(workflows={"desk": AsksOnOrder()})
    ctx = Context(flow)
    await ctx.store.set("count", 2)
    handler = flow.run(ctx=ctx, skus=["a", "b"])
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent(sku="b", text="ok"))
    again.ctx.send_event(HumanResponseEvent(sku="a", text="fine"))
    assert await asyncio.wait_for(again.stop_event_result(), 30)
    assert await again == ["a fine", "b ok"]


async def test_a_snapshot_taken_twice_is_the_same_run():
    flow = Counter(workflows={"asks": AsksInside()})
    handler = flow.run()
    await asyncio.sleep(0.005)
    payload = saved(handler)
    await handler.cancel_run()
    for _ in range(3):
        handler = resume(flow, payload)
        await asyncio.sleep(0.005)
        payload = saved(handler)
        await handler.cancel_run()
    again = resume(flow, payload)
    again.ctx.send_event(HumanResponseEvent(text="at last"))
    assert await asyncio.wait_for(again.stop_event_result(), 30)
    assert await again == ("lamp: at last", 1)


# --- validation -------------------------------------------------------------------------------------------------------


async def test_an_event_that_only_a_child_takes_is_not_lost():
    Market(workflows={"desk": Desk()}).validate()
    with pytest.raises(WorkflowValidationError, match="Receipt"):
        Market().validate()


async def test_children_leave_no_task_behind():
    before = asyncio.all_tasks()
    flow = Market(workflows={"desk": Desk(), "slow": SlowDesk()})
    await flow.run()
    handler = flow.run()
    await asyncio.sleep(0.002)
    await handler.cancel_run()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("option", "value"), [("run_id", "mine"), ("stepwise", True)])
async def test_a_run_inside_a_step_has_no_id_of_its_own(option: str, value: Any):
    class Inner(Workflow):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    class Outer(Workflow):
        @step
        async def go(self, ev: StartEvent, inner: Inner) -> StopEvent:
            return StopEvent(result=await inner.run(**{option: value}))

    with pytest.raises(WorkflowRuntimeError, match=f"starts the attached workflow 'inner' .*leave out {option}="):
        await Outer(workflows={"inner": Inner()}).run()


async def test_what_a_call_says_to_a_run_that_goes_on_is_not_used_and_told(caplog: pytest.LogCaptureFixture):
    class Asks(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=ev.topic)

    flow = Asks()
    handler = flow.run(topic="tides")
    await until(lambda: saved(handler)["workers"]["go"]["collected_waiters"])
    payload = saved(handler)
    await handler.cancel_run()
    again = flow.run(ctx=Context.from_dict(flow, payload), topic="ships", start_event=StartEvent(topic="wind"))
    assert "goes on where it was: topic, start_event of this call to run() is not used" in caplog.text
    again.ctx.send_event(HumanResponseEvent())
    assert await again == "tides"

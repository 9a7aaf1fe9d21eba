"""Snapshots taken while the outcome of a step waits behind what the step had sent: it is not run again."""

import asyncio
from typing import Any

import pytest

from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    WorkflowRuntimeError,
    catch_error,
    step,
)
from batonflow.workflow_core.engine import runner
from batonflow.workflow_core.retry_policy import retry_if_exception_type, retry_policy, stop_after_attempt, wait_fixed
from tests.workflow_core.flows import resume, saved, until


@pytest.fixture(autouse=True)
def _no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, what a step sends is taken up in the turn in which it ends."""
    monkeypatch.setattr(runner, "SECONDS_PER_TURN", 60.0)


class Item(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Ask(InputRequiredEvent):
    n: int = 0


class Shop(Workflow):
    """Orders something, hands it on by ``send_event``, and asks about it; ``placed`` has the effects in the world."""

    def __init__(self, **options: Any) -> None:
        super().__init__(timeout=5, disable_validation=True, **options)
        self.placed: list[str] = []

    @step
    async def ask(self, ctx: Context, ev: Item) -> Done:
        await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(n=ev.n), requirements={"n": ev.n})
        return Done(n=ev.n)

    @step(num_workers=1)
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, [Done] * await ctx.store.get("parts"))
        return StopEvent(result=sorted(one.n for one in found)) if found else None


class Orders(Shop):
    @step
    async def order(self, ctx: Context, ev: StartEvent) -> None:
        self.placed.append("order")
        await ctx.store.set("parts", ev.parts)
        for n in range(ev.parts):
            ctx.send_event(Item(n=n))


async def asked(handler: WorkflowHandler) -> dict[str, Any]:
    """The snapshot of a run in the very turn in which its first question is read; the run ends with it."""
    async for event in handler.stream_events():
        if isinstance(event, Ask):
            payload = saved(handler)
            await handler.cancel_run()
            return payload
    raise AssertionError("the run asked nothing")


async def answered(handler: WorkflowHandler, parts: int = 1) -> Any:
    """The result of a run that went on with such a snapshot, when all is answered."""
    for n in range(parts):
        await until(lambda: handler.is_waiting or handler.is_done())
        if not handler.is_done():
            handler.ctx.send_event(HumanResponseEvent(n=n))
    return await handler


@pytest.mark.parametrize("parts", [1, 2, 3])
async def test_a_step_that_returned_nothing_is_not_run_again(parts: int):
    flow = Orders()
    payload = await asked(flow.run(parts=parts))
    assert await answered(resume(flow, payload), parts) == list(range(parts))
    assert flow.placed == ["order"]


async def test_an_event_that_was_returned_is_delivered_once():
    class Returns(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> Done:
            self.placed.append("order")
            await ctx.store.set("parts", 2)
            ctx.send_event(Item())
            return Done(n=7)

    flow = Returns()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 7]
    assert flow.placed == ["order"]


async def test_a_list_that_was_returned_opens_one_stream():
    class Part(Event):
        n: int

    class Lists(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> list[Part]:
            self.placed.append("order")
            await ctx.store.set("parts", 2)
            ctx.send_event(Item())
            return [Part(n=n) for n in (1, 2, 3)]

        @step
        async def add(self, ctx: Context, parts: list[Part]) -> Done:
            return Done(n=sum(part.n for part in parts))

    flow = Lists()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 6]
    assert flow.placed == ["order"]


async def test_a_stream_waits_for_a_step_whose_outcome_is_not_decided():
    class Part(Event):
        n: int

    class Streams(Shop):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> list[Part]:
            await ctx.store.set("parts", 2)
            return [Part(n=1), Part(n=2)]

        @step(num_workers=1)
        async def order(self, ctx: Context, ev: Part) -> Item | None:
            self.placed.append(f"order {ev.n}")
            if ev.n == 1:
                ctx.send_event(Item())

        @step
        async def close(self, ctx: Context, parts: list[Item]) -> Done:
            self.placed.append("closed")
            return Done(n=9)

    flow = Streams()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 9]
    assert flow.placed == ["order 1", "order 2", "closed"]


async def test_the_end_of_the_run_is_not_lost():
    class Stops(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.placed.append("order")
            ctx.send_event(Item())
            return StopEvent(result="ordered")

    flow = Stops()
    payload = await asked(flow.run())
    assert await resume(flow, payload) == "ordered"
    assert flow.placed == ["order"]


async def test_what_is_no_event_is_refused_after_the_restore_too():
    class Wrong(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> Done | None:
            self.placed.append("order")
            ctx.send_event(Item())
            return object()  # pyright: ignore[reportReturnType]

    flow = Wrong()
    payload = await asked(flow.run())
    with pytest.raises(WorkflowRuntimeError, match="Step function order returned object instead of an Event instance"):
        await resume(flow, payload)
    assert flow.placed == ["order"]


async def test_a_step_whose_outcome_cannot_be_written_runs_again():
    class Stops(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.placed.append("order")
            ctx.send_event(Item())
            return StopEvent(result=object())

    flow = Stops()
    payload = await asked(flow.run())
    assert type(await answered(resume(flow, payload))) is object
    assert flow.placed == ["order", "order"]


class HttpError(Exception):
    def __init__(self, code: int, url: str) -> None:
        super().__init__(f"{code} at {url}")
        self.code = code


async def test_a_step_whose_error_would_come_back_as_another_runs_again_for_its_policy_to_see_it():
    class Fails(Shop):
        @step(
            retry_policy=retry_policy(
                retry=retry_if_exception_type(HttpError), wait=wait_fixed(0), stop=stop_after_attempt(4)
            )
        )
        async def order(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            self.placed.append("order")
            if len(self.placed) < 3:
                ctx.send_event(Item())
                raise HttpError(503, "shop")
            return StopEvent(result="placed")

    flow = Fails()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == "placed"


async def test_a_failed_attempt_counts():
    class Fails(Shop):
        @step(retry_policy=retry_policy(wait=wait_fixed(0.0), stop=stop_after_attempt(2)))
        async def order(self, ctx: Context, ev: StartEvent) -> Done:
            info = ctx.retry_info()
            self.placed.append(f"attempt {info.retry_number} after {info.last_exception!r}")
            await ctx.store.set("parts", 2)
            if info.retry_number == 0:
                ctx.send_event(Item())
                raise ValueError("sold out")
            return Done(n=5)

    flow = Fails()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 5]
    assert flow.placed == ["attempt 0 after None", "attempt 1 after ValueError('sold out')"]


async def test_the_time_of_a_failed_attempt_counts():
    class Fails(Shop):
        seen: Any = None

        @step(retry_policy=retry_policy(wait=wait_fixed(0.0), stop=stop_after_attempt(2)))
        async def order(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.seen = ctx.retry_info()
            if self.seen.retry_number == 0:
                ctx.send_event(Item())
                raise ValueError("sold out")
            return StopEvent()

    flow = Fails()
    payload = await asked(flow.run())
    [entry] = payload["workers"]["order"]["in_progress"]
    await asyncio.sleep(0.05)
    await resume(flow, payload)
    assert flow.seen.last_failed_at.timestamp() == pytest.approx(entry["outcome"]["ended"])
    assert flow.seen.elapsed_seconds >= 0.05


async def test_a_failure_comes_to_its_handler():
    class Catches(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> Done:
            self.placed.append("order")
            await ctx.store.set("parts", 2)
            ctx.send_event(Item())
            raise ValueError("sold out")

        @catch_error
        async def caught(self, ctx: Context, ev: StepFailedEvent) -> Done:
            self.placed.append(f"{ev.step_name} {ev.attempts} {ev.exception!r} {type(ev.input_event).__name__}")
            return Done(n=4)

    flow = Catches()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 4]
    assert flow.placed == ["order", "order 1 ValueError('sold out') StartEvent"]


async def test_a_failure_without_a_handler_ends_the_run():
    class Fails(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> None:
            self.placed.append("order")
            ctx.send_event(Item())
            raise ValueError("sold out")

    flow = Fails()
    payload = await asked(flow.run())
    with pytest.raises(ValueError, match="sold out"):
        await resume(flow, payload)
    assert flow.placed == ["order"]


async def test_the_worker_is_busy_until_the_outcome_is_decided():
    class Part(Event):
        n: int

    class Queues(Shop):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> None:
            await ctx.store.set("parts", 3)
            for n in range(3):
                ctx.send_event(Part(n=n))

        @step(num_workers=1)
        async def order(self, ctx: Context, ev: Part) -> None:
            self.placed.append(f"order {ev.n}")
            ctx.send_event(Item(n=ev.n))

    flow = Queues()
    payload = await asked(flow.run())
    assert flow.placed == ["order 0"]
    handler = resume(flow, payload)
    assert saved(handler)["workers"]["order"]["in_progress"][0]["worker_id"] == 0
    assert await answered(handler, 3) == [0, 1, 2]
    assert flow.placed == ["order 0", "order 1", "order 2"]


async def test_a_branch_that_still_waited_is_given_up():
    class Races(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> Done:
            self.placed.append("order")
            await ctx.store.set("parts", 2)
            patient = asyncio.ensure_future(ctx.wait_for_event(Done, waiter_id="never"))
            await asyncio.sleep(0)
            ctx.send_event(Item())
            self.placed.append(f"patient: {patient.done()}")
            return Done(n=3)

    flow = Races()
    payload = await asked(flow.run())
    assert await answered(resume(flow, payload)) == [0, 3]
    assert flow.placed == ["order", "patient: False"]


async def test_steps_of_workflows_inside_are_not_run_again():
    class Outer(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent, shop: Orders) -> StopEvent:
            return StopEvent(result=await shop.run(parts=2))

    flow = Orders()
    outer = Outer(timeout=5, workflows={"shop": flow})
    payload = await asked(outer.run())
    assert await answered(resume(outer, payload), 2) == [0, 1]
    assert flow.placed == ["order"]


async def test_an_outcome_is_kept_with_the_run_in_a_store():
    store = MemoryStore()
    payload = await asked(Orders().run(parts=2))
    flow = Orders(store=store)
    handler = flow.run(ctx=Context.from_dict(flow, payload), run_id="a")
    await asyncio.sleep(0.01)
    await handler.interrupt()
    assert await answered(flow.resume("a"), 2) == [0, 1]
    assert flow.placed == []


async def test_an_event_returned_before_a_snapshot_is_recorded_by_a_store():
    class Returns(Shop):
        @step
        async def order(self, ctx: Context, ev: StartEvent) -> Done:
            self.placed.append("order")
            await ctx.store.set("parts", 2)
            ctx.send_event(Item())
            return Done(n=7)

    store = MemoryStore()
    payload = await asked(Returns().run())
    flow = Returns(store=store)
    handler = flow.run(ctx=Context.from_dict(flow, payload), run_id="a")
    await asyncio.sleep(0.01)
    await handler.interrupt()
    assert await answered(flow.resume("a")) == [0, 7]
    assert flow.placed == []


async def test_a_branch_of_such_a_run_does_not_run_the_step_either():
    store = MemoryStore()
    payload = await asked(Orders().run(parts=2))
    flow = Orders(store=store)
    assert await answered(flow.run(ctx=Context.from_dict(flow, payload), run_id="a"), 2) == [0, 1]
    info = await store.info("a")
    assert info is not None
    for at in range(1, info.seq):
        assert await answered(flow.fork("a", at), 2) == [0, 1]
    assert flow.placed == []

"""What the engine must not lose count of when waits, joins, retries and targets meet in one step."""

import asyncio
from typing import Any

import pytest

from batonflow.testing import run_virtual
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from batonflow.workflow_core.events import StepState, StepStateChanged
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed, wait_none
from tests.workflow_core.flows import resume, saved, streamed


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Word(HumanResponseEvent):
    n: int = 0


# --- who gets an event


class WaitingJoin(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | B | None:
        for event in (A(n=1), B(n=1), A(n=2), B(n=2), A(n=3), A(n=4)):
            ctx.send_event(event)
            await asyncio.sleep(1)
        return None

    @step
    async def both(self, ctx: Context, a: A, b: B) -> StopEvent | None:
        third = await ctx.wait_for_event(A)
        seen = [*await ctx.store.get("seen", []), (a.n, b.n, third.n)]
        await ctx.store.set("seen", seen)
        return StopEvent(result=seen) if len(seen) == 2 else None


def test_an_event_that_answers_the_wait_of_a_join_does_not_fill_its_slot():
    async def run() -> Any:
        return await WaitingJoin().run()

    assert run_virtual(run()) == [(1, 1, 2), (3, 2, 4)]


class TwoTakers(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | B:
        ctx.send_event(A(), step="right")
        await asyncio.sleep(0.01)
        return B()

    @step
    async def left(self, ctx: Context, ev: A) -> None:
        await ctx.store.set("left", True)

    @step
    async def right(self, ctx: Context, ev: A) -> None:
        await ctx.store.set("right", True)

    @step
    async def finish(self, ctx: Context, ev: B) -> StopEvent:
        return StopEvent(result=(await ctx.store.get_state()).to_dict())


async def test_an_event_sent_to_one_step_reaches_no_other_step():
    assert await TwoTakers().run() == {"right": True}


class TwoWaiters(Workflow):
    async def _hear(self, ctx: Context, ev: StartEvent | Word, name: str) -> StopEvent | None:
        if isinstance(ev, Word):
            return None
        word = await ctx.wait_for_event(Word)
        heard = [*await ctx.store.get("heard", []), (name, word.n)]
        await ctx.store.set("heard", heard)
        return StopEvent(result=heard) if len(heard) == 2 else None

    @step
    async def left(self, ctx: Context, ev: StartEvent | Word) -> StopEvent | None:
        return await self._hear(ctx, ev, "left")

    @step
    async def right(self, ctx: Context, ev: StartEvent | Word) -> StopEvent | None:
        return await self._hear(ctx, ev, "right")


async def test_an_answer_sent_to_one_step_leaves_the_waits_of_others_open():
    handler = TwoWaiters().run()
    await asyncio.sleep(0.01)
    handler.ctx.send_event(Word(n=1), step="right")
    handler.ctx.send_event(Word(n=2), step="left")
    assert await handler == [("right", 1), ("left", 2)]


class Loop(Workflow):
    @step(num_workers=1)
    async def turn(self, ev: StartEvent | A) -> A | StopEvent:
        n = ev.n + 1 if isinstance(ev, A) else 0
        return A(n=n) if n < 3 else StopEvent()


async def test_a_step_that_feeds_itself_does_not_queue_behind_itself():
    events = await streamed(Loop().run(), internal=True)
    states = [event.step_state for event in events if isinstance(event, StepStateChanged)]
    assert StepState.PREPARING not in states
    assert states.count(StepState.RUNNING) == 4


class FedFromInside(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | None:
        ctx.send_event(A(n=1))
        ctx.send_event(A(n=2))
        return None

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: A) -> A | StopEvent | None:
        await asyncio.sleep(0.01)
        order = [*await ctx.store.get("order", []), ev.n]
        await ctx.store.set("order", order)
        if len(order) == 3:
            return StopEvent(result=order)
        return A(n=10) if ev.n == 1 else None


async def test_what_a_step_returns_to_itself_stands_behind_what_queues_already():
    assert await FedFromInside().run() == [1, 2, 10]


# --- retries


class Asked:
    """A retry policy that remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int, int | None]] = []

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        self.calls.append((elapsed_time, attempts, seed))
        return 10.0 if attempts < 4 else None


def _failing(policy: Any) -> Workflow:
    class Failing(Workflow):
        @step(retry_policy=policy)
        async def fail(self, ev: StartEvent) -> StopEvent:
            raise ConnectionError

    return Failing(timeout=None)


def test_a_policy_is_told_the_time_since_the_first_attempt_and_a_seed_of_its_own_for_each_failure():
    async def run(run_id: str) -> Asked:
        policy = Asked()
        with pytest.raises(ConnectionError):
            await _failing(policy).run(run_id=run_id)
        return policy

    first, again, other = (run_virtual(run(name)) for name in ("one", "one", "two"))
    assert [(round(elapsed), attempts) for elapsed, attempts, _ in first.calls] == [(0, 1), (10, 2), (20, 3), (30, 4)]
    seeds = [seed for _, _, seed in first.calls]
    assert len(set(seeds)) == 4
    assert seeds == [seed for _, _, seed in again.calls]
    assert not set(seeds) & {seed for _, _, seed in other.calls}


class WaitsBesides(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number:
            return StopEvent(result="second attempt")
        waiting = asyncio.create_task(ctx.wait_for_event(Word))
        await asyncio.sleep(1)
        waiting.cancel()
        raise ConnectionError("while its other branch waits")


def test_a_step_that_fails_while_a_branch_of_it_waits_is_still_to_be_retried():
    async def run() -> Any:
        return await WaitsBesides(timeout=None, on_stall="raise").run()

    assert run_virtual(run()) == "second attempt"


class QueuedAnswer(Workflow):
    """The first delivery waits; its answer comes while the second has the only worker, then a branch of it fails."""

    starts = 0

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | None:
        ctx.send_event(A(n=1))
        ctx.send_event(A(n=2))
        return None

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: A) -> B:
        if ev.n == 2:
            await asyncio.sleep(20)
            return B()
        self.starts += 1
        async with asyncio.TaskGroup() as branches:
            branches.create_task(ctx.wait_for_event(Word))
            branches.create_task(self._fail_first(ctx))
        return B()

    async def _fail_first(self, ctx: Context) -> None:
        await asyncio.sleep(5)
        if not ctx.retry_info().retry_number:
            raise ConnectionError

    @step
    async def finish(self, ctx: Context, ev: B) -> StopEvent | None:
        found = ctx.collect_events(ev, [B, B])
        await asyncio.sleep(30)
        return StopEvent(result=self.starts) if found else None


def test_an_attempt_that_fails_while_its_answer_queues_starts_again_once():
    async def run() -> Any:
        handler = QueuedAnswer(timeout=None).run()
        await asyncio.sleep(3)
        handler.ctx.send_event(Word())
        return await handler

    assert run_virtual(run()) == 2


class GivesUp(Workflow):
    @step(num_workers=1)
    async def work(self, ctx: Context, ev: StartEvent | A) -> B:
        if isinstance(ev, StartEvent):
            try:
                await asyncio.wait_for(ctx.wait_for_event(Word), 1)
            except TimeoutError:
                await asyncio.sleep(10)
        begun = [*await ctx.store.get("done", []), round(asyncio.get_running_loop().time())]
        await ctx.store.set("done", begun)
        return B()

    @step
    async def finish(self, ctx: Context, ev: B) -> StopEvent | None:
        done = await ctx.store.get("done")
        return StopEvent(result=done) if len(done) == 2 else None

    @step
    async def never(self, ev: B) -> A | None:
        return None


def test_a_step_that_gives_a_wait_up_has_its_worker_again():
    async def run() -> Any:
        handler = GivesUp(timeout=None).run()
        await asyncio.sleep(5)
        handler.ctx.send_event(A())
        return await handler

    assert run_virtual(run()) == [11, 11]


class ToAndFro(Workflow):
    """Two steps that fail in turn, each with a handler of its own that may run once."""

    @step
    async def one(self, ctx: Context, ev: StartEvent | A) -> StopEvent:
        await self._count(ctx, "one")

    @step
    async def two(self, ctx: Context, ev: B) -> StopEvent:
        await self._count(ctx, "two")

    async def _count(self, ctx: Context, name: str) -> None:
        count = await ctx.store.get(name, 0) + 1
        await ctx.store.set(name, count)
        raise (ConnectionError if count < 5 else SystemExit)(f"{name} failed {count} times")

    @catch_error(for_steps=["one"])
    async def after_one(self, ev: StepFailedEvent) -> B:
        return B()

    @catch_error(for_steps=["two"])
    async def after_two(self, ev: StepFailedEvent) -> A:
        return A()


async def test_a_recovery_by_one_handler_does_not_give_another_its_own_back():
    with pytest.raises(ConnectionError, match="one failed 2 times"):
        await ToAndFro().run()


# --- collect_events


class TwoBuffers(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(3):
            ctx.send_event(A(n=n))
        return None

    @step(num_workers=1)
    async def gather(self, ctx: Context, ev: A) -> StopEvent | None:
        pair = ctx.collect_events(ev, [A, A], "pair")
        triple = ctx.collect_events(ev, [A, A, A], "triple")
        full = [[event.n for event in found] if found else None for found in (pair, triple)]
        seen = [*await ctx.store.get("seen", []), full]
        await ctx.store.set("seen", seen)
        return StopEvent(result=seen) if ev.n == 2 else None


async def test_two_collections_in_one_step_have_outcomes_of_their_own():
    assert await TwoBuffers().run() == [[None, None], [[0, 1], None], [None, [0, 1, 2]]]


# --- recoveries, waits and retries over a fan-in and a restore


class RescuedFanIn(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> A:
        raise ConnectionError("begin")

    @step
    async def split(self, ctx: Context, ev: A) -> list[B]:
        rounds = await ctx.store.get("rounds", 0) + 1
        await ctx.store.set("rounds", rounds)
        if rounds == 5:
            raise SystemExit
        return [B(n=1), B(n=2)]

    @step
    async def join(self, parts: list[B]) -> StopEvent:
        raise LookupError("join")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> A:
        return A()


async def test_a_collection_belongs_to_the_lineage_of_its_fan_out():
    with pytest.raises(LookupError, match="join"):
        await RescuedFanIn().run()


class LoudWord(Word):
    pass


class Listens(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.wait_for_event(Word))


async def test_a_wait_takes_no_subclass_of_what_it_wants():
    handler = Listens().run()
    await asyncio.sleep(0.01)
    handler.ctx.send_event(LoudWord(n=1))
    handler.ctx.send_event(Word(n=2))
    assert (await handler).n == 2


class AtLeast:
    """A requirement that cannot be written into a snapshot."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other >= self.least

    __hash__ = None


class Choosy(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(10)
        word = await ctx.wait_for_event(Word, requirements={"n": AtLeast(5)})
        return StopEvent(result=word.n)


def test_a_restored_wait_whose_requirements_could_not_be_saved_takes_nothing_until_its_step_asks_again():
    async def run() -> Any:
        workflow = Choosy(timeout=None)
        handler = workflow.run()
        await asyncio.sleep(11)
        payload = saved(handler)
        await handler.cancel_run()
        handler = resume(workflow, payload)
        await asyncio.sleep(1)
        handler.ctx.send_event(Word(n=1))
        await asyncio.sleep(20)
        handler.ctx.send_event(Word(n=7))
        return await handler

    assert run_virtual(run()) == 7


class SendsAndFails(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: StartEvent) -> B | A:
        attempt = ctx.retry_info().retry_number
        ctx.send_event(A(n=attempt))
        await ctx.store.set(f"wrote_{attempt}", True)
        ctx.write_event_to_stream(A(n=attempt))
        await asyncio.sleep(10)
        if not attempt:
            raise ConnectionError
        return B()

    @step
    async def note(self, ctx: Context, ev: A) -> None:
        await ctx.store.set(f"got_{ev.n}", await ctx.store.get(f"got_{ev.n}", 0) + 1)

    @step
    async def finish(self, ctx: Context, ev: B) -> StopEvent:
        return StopEvent(result=(await ctx.store.get_state()).to_dict())


def test_after_a_restore_only_the_repeated_attempt_skips_what_it_had_done_and_not_the_next():
    async def run() -> Any:
        workflow = SendsAndFails(timeout=None)
        handler = workflow.run()
        await asyncio.sleep(5)
        payload = saved(handler)
        await handler.cancel_run()
        handler = resume(workflow, payload)
        result = await handler
        return result, [event.n for event in await streamed(handler) if isinstance(event, A)]

    result, stream = run_virtual(run())
    assert result == {"wrote_0": True, "wrote_1": True, "got_0": 1, "got_1": 1}
    assert stream == [1]


class SentOn(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> A:
        raise ConnectionError("begin")

    @step
    async def relay(self, ctx: Context, ev: A) -> B | None:
        rounds = await ctx.store.get("rounds", 0) + 1
        await ctx.store.set("rounds", rounds)
        if rounds == 5:
            raise SystemExit
        ctx.send_event(B())
        return None

    @step
    async def last(self, ev: B) -> StopEvent:
        raise LookupError("last")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> A:
        return A()


async def test_a_sent_event_belongs_to_the_lineage_of_its_sender():
    with pytest.raises(LookupError, match="last"):
        await SentOn().run()


class AskedInTime(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | B | None:
        ctx.send_event(A())
        ctx.send_event(B(n=5))
        return None

    @step
    async def listen(self, ctx: Context, ev: A) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(B, timeout=1)).n)


async def test_a_started_step_reaches_its_first_pause_before_the_next_event_is_delivered():
    assert await AskedInTime(disable_validation=True).run() == 5


# --- siblings


class Quick(Workflow):
    @step
    async def stop(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

    @step
    async def tell(self, ctx: Context, ev: StartEvent) -> None:
        ctx.write_event_to_stream(A(n=1))


async def test_what_the_same_event_started_begins_before_the_run_ends():
    assert [type(event) for event in await streamed(Quick().run())] == [A, StopEvent]


class Left(Event):
    pass


class Right(Event):
    pass


class Joined(Event):
    pass


class JoinInStream(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[A | B]:
        return [A(), B()]

    @step
    async def quick(self, ev: A) -> Left:
        return Left()

    @step
    async def slow(self, ev: B) -> Right:
        await asyncio.sleep(60)
        return Right()

    @step
    async def join(self, left: Left, right: Right) -> Joined:
        await asyncio.sleep(1)
        return Joined()

    @step
    async def finish(self, joined: list[Joined]) -> StopEvent:
        return StopEvent(result=len(joined))


def test_what_a_join_holds_keeps_its_stream_open_over_a_restore():
    async def run() -> Any:
        workflow = JoinInStream(timeout=None)
        handler = workflow.run()
        await asyncio.sleep(30)
        payload = saved(handler)
        await handler.cancel_run()
        return await resume(workflow, payload)

    assert run_virtual(run()) == 1

"""A record is not committed before the records of all that came together in it, not only of what came last."""

import asyncio

import pytest

from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.durable.listening import Listener, written


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Gated(Workflow):
    """Its step ``slow`` stays open until the gate opens."""

    def __init__(self) -> None:
        self.journal = Listener()
        super().__init__(store=self.journal, disable_validation=True)
        self.gate = asyncio.Event()

    async def pause(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def steps_before_and_after_the_gate(self) -> tuple[list[str], list[str]]:
        handler: WorkflowHandler = self.run()
        for turn in range(100_000):
            await asyncio.sleep(0)
            if turn > 100 and await handler.ctx.store.get("came", default=None) is not None:
                break
        assert await handler.ctx.store.get("came") == "together", "the steps behind have not run yet"
        await written()
        before = self.steps()
        self.gate.set()
        await handler
        return before, self.steps()[len(before) :]

    def steps(self) -> list[str]:
        """The steps in the order of their records."""
        return [name for group in self.journal.steps() for name in group]


class Collecting(Gated):
    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> A | Done:
        ctx.send_event(A(n=1))
        await self.gate.wait()
        return Done()

    @step
    async def quick(self, ev: StartEvent) -> A:
        await self.pause()
        return A(n=2)

    @step
    async def gather(self, ctx: Context, ev: A) -> None:
        found = ctx.collect_events(ev, [A, A])
        if found is not None:
            assert [event.n for event in found] == [1, 2]
            await ctx.store.set("came", "together")

    @step
    async def end(self, ev: Done) -> StopEvent:
        await self.pause()
        return StopEvent()


async def test_a_collected_set_waits_for_the_sender_of_its_first_event():
    before, after = await Collecting().steps_before_and_after_the_gate()
    assert before == ["quick"]
    assert sorted(after) == ["end", "gather", "gather", "slow"]


class Joining(Gated):
    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> A | Done:
        ctx.send_event(A())
        await self.gate.wait()
        return Done()

    @step
    async def quick(self, ev: StartEvent) -> B:
        await self.pause()
        return B()

    @step
    async def join(self, ctx: Context, a: A, b: B) -> None:
        await ctx.store.set("came", "together")

    @step
    async def end(self, ev: Done) -> StopEvent:
        await self.pause()
        return StopEvent()


async def test_a_join_waits_for_the_sender_of_its_first_event():
    before, after = await Joining().steps_before_and_after_the_gate()
    assert before == ["quick"]
    assert after.index("slow") < after.index("join")


class Streaming(Gated):
    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> Done:
        await ctx.store.set("mark", 1)
        await self.gate.wait()
        return Done()

    @step
    async def split(self, ev: StartEvent) -> list[A]:
        return [A(n=1), A(n=2)]

    @step
    async def work(self, ctx: Context, ev: A) -> B:
        if ev.n == 1:
            await ctx.store.get("mark")
        else:
            await self.pause()
        return B()

    @step
    async def join(self, ctx: Context, parts: list[B]) -> None:
        await ctx.store.set("came", "together")

    @step
    async def end(self, ev: Done) -> StopEvent:
        await self.pause()
        return StopEvent()


async def test_a_collection_waits_for_the_makers_of_all_its_members():
    before, after = await Streaming().steps_before_and_after_the_gate()
    assert before == ["split", "work"]
    assert after.index("slow") < after.index("work") < after.index("join")


class LongChain(Gated):
    """Thousands of hops while a step is under way whose value the first of them read."""

    HOPS = 3000

    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> A | Done:
        await ctx.store.set("mark", 1)
        ctx.send_event(A())
        await self.gate.wait()
        return Done()

    @step
    async def hop(self, ctx: Context, ev: A) -> A | None:
        if ev.n == 0:
            await ctx.store.get("mark")
        if ev.n < self.HOPS:
            return A(n=ev.n + 1)
        await ctx.store.set("came", "together")
        return None

    @step
    async def end(self, ev: Done) -> StopEvent:
        return StopEvent()


async def test_any_number_of_records_may_be_held_up_by_one():
    # With work that grows with the square of their number, let alone the cube, this would not end in time.
    before, after = await LongChain().steps_before_and_after_the_gate()
    assert before == []
    assert after == ["slow", *["hop"] * (LongChain.HOPS + 1), "end"]


class TryingAgain(Gated):
    """The first attempt of a step builds upon one that is open; the second one does not."""

    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> Done:
        await ctx.store.set("mark", 1)
        ctx.send_event(A())
        await self.gate.wait()
        return Done()

    @step
    async def quick(self, ev: StartEvent) -> B:
        await self.pause()
        return B()

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def tries(self, ctx: Context, ev: B) -> None:
        if not ctx.retry_info().retry_number:
            assert await ctx.store.get("mark") == 1
            raise ValueError("the first one fails")
        await ctx.store.set("came", "together")

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent:
        return StopEvent(result=await ctx.store.get("came"))


async def test_an_attempt_is_not_written_before_those_that_failed():
    flow = TryingAgain()
    before, _ = await flow.steps_before_and_after_the_gate()
    assert before == ["quick"]
    assert [record.get("attempt", 0) for record in flow.journal.records("tries")] == [0, 1]
    [run] = await flow.journal.list_runs()
    assert await flow.resume(run.run_id) == "together"
    again = flow.resume(run.run_id)
    await again
    assert await again.ctx.store.get("came") == "together"


class Notes(Workflow):
    """Steps with one list in their hands, whose turns come in the order in which the test opens their gates."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store=store, disable_validation=True)
        self.gates = [asyncio.Event() for _ in range(3)]

    async def at(self, gate: int) -> None:
        await self.gates[gate].wait()

    def open(self, gate: int) -> None:
        self.gates[gate].set()

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> A | B:
        await ctx.store.set("notes", ["begun"])
        ctx.send_event(A(n=1))
        ctx.send_event(A(n=2))
        return B()


class ReplacedAndLookedAt(Notes):
    @step(num_workers=2)
    async def work(self, ctx: Context, ev: A) -> Done:
        notes = await ctx.store.get("notes")
        if ev.n == 1:
            await self.at(0)
            notes = ["another"]
            await ctx.store.set("notes", notes)
            self.open(1)
            await self.at(2)
            notes.append("added at the end")
        else:
            self.open(0)
            await self.at(1)  # it finds another list than it was given, and notes that
        return Done(n=ev.n)

    @step
    async def count(self, ctx: Context, ev: Done) -> StopEvent | None:
        if ev.n == 2:
            self.open(2)
        return None if ctx.collect_events(ev, [Done, Done]) is None else StopEvent()


class PartOfWhatIsOpen(Notes):
    @step(num_workers=2)
    async def work(self, ctx: Context, ev: A) -> Done:
        await ctx.store.get("notes")
        if ev.n == 1:
            await self.at(0)
            await ctx.store.set("notes", {"of": "the first"})
            self.open(1)
            await self.at(2)
        else:
            self.open(0)
            await self.at(1)
        return Done(n=ev.n)

    @step
    async def count(self, ctx: Context, ev: Done) -> B | StopEvent | None:
        if ev.n == 2:
            await ctx.store.set("notes.more", "by the one that counts")
            self.open(2)
        return None if ctx.collect_events(ev, [Done, Done]) is None else StopEvent()


@pytest.mark.parametrize("flow", [ReplacedAndLookedAt, PartOfWhatIsOpen])
async def test_the_records_say_what_became_of_a_value_in_many_hands(flow: type[Notes]):
    store = MemoryStore()
    handler = flow(store).run(run_id="r")
    await handler
    live = await handler.ctx.store.get("notes")
    again = flow(store).resume("r")
    await again
    assert await again.ctx.store.get("notes") == live

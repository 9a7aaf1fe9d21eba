"""What a run writes down, in which order, and what is committed together."""

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.workflow_core import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.journal.base import Journal, Record
from batonflow.workflow_core.journal.memory import MemoryStore
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import until


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


class Listener(MemoryStore):
    """Keeps the transactions as they are handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[list[Record]] = []

    def commit(self, records: Sequence[Record]) -> None:
        self.transactions.append(list(records))
        super().commit(records)

    def segments(self) -> list[list[tuple[str, int, str]]]:
        """Step, attempt and kind of outcome, by transaction."""
        return [
            [(record.step, record.attempt, record.outcome[0]) for record in transaction]
            for transaction in self.transactions
            if transaction[0].kind == "segment"
        ]

    def steps(self) -> list[list[str]]:
        return [[step for step, _, _ in transaction] for transaction in self.segments()]


async def run(workflow: type[Workflow], **arguments: Any) -> tuple[Listener, Any]:
    journal = Listener()
    return journal, await workflow(store=journal, disable_validation=True).run(**arguments)


def test_a_store_is_a_journal():
    journal: Journal = MemoryStore()
    journal.commit([Record("started", "r", consumed=StartEvent(a=1))])


async def test_a_segment_holds_all_that_was_done_numbered_and_in_order():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> B | A:
            await ctx.store.set("x.y", 1)
            ctx.send_event(A(n=1))
            ctx.write_event_to_stream(A(n=2))
            async with ctx.store.edit_state() as state:
                state["z"] = 2
            ctx.send_event(A(n=3), step="take")
            return B(n=4)

        @step
        async def take(self, ev: A) -> None: ...

        @step
        async def end(self, ev: B) -> StopEvent:
            return StopEvent()

    journal, _ = await run(Flow)
    [record] = [record for transaction in journal.transactions for record in transaction if record.step == "go"]
    assert isinstance(record.consumed, StartEvent)
    assert record.writes == [(1, "x.y", 1), (2, "z", 2)]
    assert record.sends == [(1, A(n=1), None), (2, A(n=3), "take")]
    assert record.streamed == [(1, A(n=2))]
    assert record.outcome == ("returned", B(n=4))


async def test_waits_and_once_end_a_segment_and_begin_the_next():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("a", 1)
            value = await ctx.once("key", lambda: 42)
            await ctx.store.set("b", value)
            await ctx.wait_for_event(HumanResponseEvent, waiter_id="who")
            await ctx.store.set("c", 3)
            return StopEvent()

    journal = Listener()
    handler = Flow(store=journal).run()
    await until(lambda: len(journal.segments()) == 2)
    handler.ctx.send_event(HumanResponseEvent())
    await handler
    records = [record for transaction in journal.transactions for record in transaction if record.kind == "segment"]
    assert [record.outcome[0] for record in records] == ["once", "waiting", "returned"]
    assert records[0].outcome == ("once", ("key", 42))
    assert records[1].outcome == ("waiting", "who")
    assert [record.writes for record in records] == [[(1, "a", 1)], [(2, "b", 42)], [(3, "c", 3)]]
    assert len({record.item for record in records}) == 1


async def test_the_outcome_of_once_is_committed_before_it_is_returned():
    journal = Listener()
    committed: list[bool] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.once("key", lambda: 1)
            committed.append(journal.segments() == [[("go", 0, "once")]])
            return StopEvent()

    await Flow(store=journal).run()
    assert committed == [True]


async def test_a_receiver_that_ends_before_its_sender_is_not_committed_before_it():
    gate = asyncio.Event()
    journal = Listener()

    class Flow(Workflow):
        @step
        async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
            ctx.send_event(A())
            await gate.wait()
            return B()

        @step
        async def receiver(self, ctx: Context, ev: A) -> None:
            await ctx.store.set("received", True)

        @step
        async def end(self, ev: B) -> StopEvent:
            return StopEvent()

    handler = Flow(store=journal).run()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await handler.ctx.store.get("received"), "in memory the receiver is over"
    assert journal.segments() == [], "a crash now would lose both, never keep the receiver alone"
    gate.set()
    await handler
    assert journal.steps()[0] == ["sender"] or set(journal.steps()[0]) == {"sender", "receiver"}
    flat = [name for transaction in journal.steps() for name in transaction]
    assert sorted(flat) == ["end", "receiver", "sender"]


async def test_a_sender_that_is_killed_takes_its_receivers_record_with_it():
    journal = Listener()

    class Flow(Workflow):
        @step
        async def sender(self, ctx: Context, ev: StartEvent) -> A | StopEvent:
            ctx.send_event(A())
            await asyncio.sleep(100)
            return StopEvent()

        @step
        async def receiver(self, ctx: Context, ev: A) -> None:
            await ctx.store.set("received", True)

    handler = Flow(store=journal).run()
    for _ in range(5):
        await asyncio.sleep(0)
    assert await handler.ctx.store.get("received")
    await handler.cancel_run()
    assert journal.segments() == []


async def test_two_workers_that_edit_one_key_of_which_the_second_ends_first():
    gate = asyncio.Event()
    journal = Listener()

    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> A | None:
            ctx.send_event(A(n=1))
            ctx.send_event(A(n=2))

        @step(num_workers=2)
        async def work(self, ctx: Context, ev: A) -> B:
            async with ctx.store.edit_state() as state:
                state["log"] = [*state.get("log", []), ev.n]
            if ev.n == 1:
                await gate.wait()
            return B(n=ev.n)

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [B, B]) else None

    handler = Flow(store=journal).run()
    for _ in range(8):
        await asyncio.sleep(0)
    assert journal.steps() == [["fan"]], "the second built on the first's write, which is not committed"
    gate.set()
    await handler
    work = [record for transaction in journal.transactions for record in transaction if record.step == "work"]
    assert [record.consumed.n for record in work] == [1, 2]
    assert [record.writes for record in work] == [[(1, "log", [1])], [(1, "log", [1, 2])]]


async def test_segments_that_depend_on_each_other_are_committed_together():
    journal = Listener()
    one_wrote, two_wrote = asyncio.Event(), asyncio.Event()

    class Flow(Workflow):
        @step
        async def one(self, ctx: Context, ev: StartEvent) -> A:
            await ctx.store.set("from_one", 1)
            one_wrote.set()
            await two_wrote.wait()
            return A(n=await ctx.store.get("from_two"))

        @step
        async def two(self, ctx: Context, ev: StartEvent) -> A:
            await one_wrote.wait()
            await ctx.store.set("from_two", await ctx.store.get("from_one"))
            two_wrote.set()
            await asyncio.sleep(0)
            return A(n=2)

        @step
        async def end(self, ctx: Context, ev: A) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [A, A]) else None

    await Flow(store=journal, disable_validation=True).run()
    together = [transaction for transaction in journal.steps() if "one" in transaction]
    assert together == [transaction for transaction in journal.steps() if "two" in transaction]
    assert sorted(name for name in together[0] if name != "end") == ["one", "two"]


async def test_a_collected_set_is_not_committed_before_what_it_holds():
    journal = Listener()
    gate = asyncio.Event()

    class Flow(Workflow):
        @step
        async def slow(self, ctx: Context, ev: StartEvent) -> A | B:
            ctx.send_event(A(n=1))
            await gate.wait()
            return B()

        @step
        async def quick(self, ctx: Context, ev: StartEvent) -> A:
            return A(n=2)

        @step
        async def gather(self, ctx: Context, ev: A) -> None:
            if ctx.collect_events(ev, [A, A]):
                await ctx.store.set("gathered", True)

        @step
        async def end(self, ev: B) -> StopEvent:
            return StopEvent()

    handler = Flow(store=journal, disable_validation=True).run()
    for _ in range(8):
        await asyncio.sleep(0)
    assert await handler.ctx.store.get("gathered")
    gathered = [record for transaction in journal.transactions for record in transaction if record.writes]
    assert gathered == [], "the full set holds an event of a step that is not committed"
    gate.set()
    await handler
    order = [name for transaction in journal.steps() for name in transaction]
    assert sorted(order) == ["end", "gather", "gather", "quick", "slow"]


async def test_a_retry_is_a_segment_of_its_own():
    class Flow(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(A(n=ctx.retry_info().retry_number))
            if ctx.retry_info().retry_number < 2:
                raise ValueError("again")
            return StopEvent()

        @step
        async def take(self, ev: A) -> None: ...

    journal, _ = await run(Flow)
    attempts = [(a, kind) for transaction in journal.segments() for name, a, kind in transaction if name == "go"]
    assert attempts == [(0, "failed"), (1, "failed"), (2, "returned")]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["k1", "k2"]), st.booleans()), min_size=1, max_size=7))
def test_nothing_is_committed_before_what_it_read(work: list[tuple[int, str, bool]]):
    """Each worker pauses, reads a key, perhaps writes to it, and pauses again; who read whose write is noted."""
    wrote: dict[str, int] = {}
    read_from: dict[int, set[int]] = {}

    class Flow(Workflow):
        @step
        async def fan(self, ctx: Context, ev: StartEvent) -> A | None:
            for n in range(len(work)):
                ctx.send_event(A(n=n))

        @step(num_workers=10)
        async def work(self, ctx: Context, ev: A) -> B:
            turns, key, writes = work[ev.n]
            for _ in range(turns):
                await asyncio.sleep(0)
            await ctx.store.get(key, default=None)
            if key in wrote:
                read_from.setdefault(ev.n, set()).add(wrote[key])
            if writes:
                await ctx.store.set(key, ev.n)
                wrote[key] = ev.n
            for _ in range(3 - turns):
                await asyncio.sleep(0)
            return B(n=ev.n)

        @step
        async def end(self, ctx: Context, ev: B) -> StopEvent | None:
            return StopEvent() if ctx.collect_events(ev, [B] * len(work)) else None

    journal = Listener()
    Flow(store=journal).run_sync()
    committed_at = {
        record.consumed.n: number
        for number, transaction in enumerate(journal.transactions)
        for record in transaction
        if record.step == "work" and record.consumed is not None
    }
    assert set(committed_at) == set(range(len(work)))
    for reader, writers in read_from.items():
        assert all(committed_at[writer] <= committed_at[reader] for writer in writers)

"""What a run writes down, in which order, and what is committed together."""

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonflow.durable import lease as lease
from batonflow.durable.attempt_record import AttemptRecord
from batonflow.durable.connection import connection_of
from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    JsonSerializer,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.errors import RunInterruptedError, StoreError
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.durable.listening import Listener, found_in, numbered, shown, written
from tests.workflow_core.flows import until


class A(Event):
    n: int = 0


class B(Event):
    n: int = 0


async def run(workflow: type[Workflow], **arguments: Any) -> tuple[Listener, Any]:
    journal = Listener()
    return journal, await workflow(store=journal, disable_validation=True).run(**arguments)


async def turns() -> None:
    """Enough turns of the loop for all that can happen by itself to happen, and to be written."""
    for _ in range(50):
        await asyncio.sleep(0)
    await written()


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
    [started, *_] = journal.records()
    [record] = journal.records("go")
    assert record["origins"] == [[started["id"], 0]]
    assert numbered(record["writes"]) == [(1, "x.y", 1), (2, "z", 2)]
    sends = [(number, shown(event), target) for number, event, target in record["sends"]]
    assert sends == [(1, ("A", {"n": 1}), None), (2, ("A", {"n": 3}), "take")]
    assert [(number, shown(event)) for number, event, *_ in record["streamed"]] == [(1, ("A", {"n": 2}))]
    kind, [returned] = record["outcome"]
    assert (kind, shown(returned)) == ("returned", ("B", {"n": 4}))
    takes = journal.records("take")
    assert [taken["origins"] for taken in takes] == [[[record["id"], 1]], [[record["id"], 2]]], "events by their number"


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
    once, waiting, returned = journal.records("go")
    assert once["outcome"] == ["once", ["key", [42]]]
    assert waiting["outcome"][0] == "waiting"
    assert waiting["outcome"][1]["waiter_id"] == "who"
    assert returned["outcome"][0] == "returned"
    changes = [numbered(record["writes"]) for record in (once, waiting, returned)]
    assert changes == [[(1, "a", 1)], [(2, "b", 42)], [(3, "c", 3)]]
    assert ["origins" in record for record in (once, waiting, returned)] == [True, False, False]
    assert len({record["item"] for record in (once, waiting, returned)}) == 1


async def test_the_outcome_of_once_is_handed_over_before_it_is_returned():
    journal = Listener()
    handed_over: list[int] = []

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            lease = connection_of(journal).leases["r"]
            handed_over.append(lease.made)
            await ctx.once("key", lambda: 1)
            handed_over.append(lease.made)
            await lease.settled()
            assert journal.segments() == [[("go", 0, "once")]]
            return StopEvent()

    await Flow(store=journal).run(run_id="r")
    assert handed_over == [1, 2]


async def test_the_outcome_of_once_that_cannot_be_written_is_not_kept_and_the_step_is_told():
    class Opaque:
        pass

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            with pytest.raises(StoreError, match="a Opaque cannot be recorded"):
                await ctx.once("key", Opaque)
            return StopEvent(result=await ctx.once("key", lambda: "plain"))

    journal, result = await run(Flow)
    assert result == "plain"
    assert [record["outcome"][0] for record in journal.records("go")] == ["once", "returned"]
    assert found_in(journal.records("go")[0]["outcome"][1][1]) == "plain"


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
    await turns()
    assert await handler.ctx.store.get("received"), "in memory the receiver is over"
    assert journal.segments() == [], "a crash now would lose both, never keep the receiver alone"
    gate.set()
    await handler
    assert journal.steps()[0] == ["sender"] or set(journal.steps()[0]) == {"sender", "receiver"}
    flat = [name for group in journal.steps() for name in group]
    assert sorted(flat) == ["end", "receiver", "sender"]


class SendsAndStays(Workflow):
    @step
    async def sender(self, ctx: Context, ev: StartEvent) -> A | StopEvent:
        ctx.send_event(A())
        await asyncio.sleep(100)
        return StopEvent()

    @step
    async def receiver(self, ctx: Context, ev: A) -> None:
        await ctx.store.set("received", True)


def test_a_sender_that_is_killed_takes_its_receivers_record_with_it():
    journal = Listener()

    async def start() -> None:
        handler = SendsAndStays(store=journal).run()
        await turns()
        assert await handler.ctx.store.get("received")

    asyncio.run(start())  # the end of the loop cancels the sender
    assert [record["kind"] for record in journal.records()] == ["started"]


async def test_when_a_run_is_cancelled_what_its_open_steps_did_is_kept_with_what_rests_on_it():
    journal = Listener()
    handler = SendsAndStays(store=journal).run()
    await turns()
    assert journal.segments() == []
    await handler.cancel_run()
    assert journal.segments() == [[("sender", 0, "cancelled"), ("receiver", 0, "returned")]]
    assert [shown(event) for _, event, _ in journal.records("sender")[0]["sends"]] == [("A", {"n": 0})]
    assert shown(journal.records()[-1]["event"])[0] == "WorkflowCancelledEvent"


async def test_a_run_may_end_before_anybody_acted_on_what_an_earlier_step_returned():
    class Flow(Workflow):
        @step
        async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
            ctx.send_event(A(n=1))
            ctx.send_event(A(n=2))
            return B()  # waits behind the two

        @step
        async def end(self, ev: A | B) -> StopEvent:
            return StopEvent(result=type(ev).__name__)

    journal, result = await run(Flow)
    assert result == "A"
    assert [name for group in journal.steps() for name in group] == ["sender", "end"]
    assert journal.records()[-1]["kind"] == "ended"


async def test_an_end_on_something_that_cannot_be_written_is_recorded_all_the_same():
    class Opaque:
        pass

    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A | StopEvent:
            ctx.send_event(A(thing=Opaque()))
            await ctx.store.set("plain", 1)
            await asyncio.sleep(100)
            return StopEvent()

        @step
        async def take(self, ev: A) -> None: ...

    journal = Listener()
    handler = Flow(store=journal).run()
    await turns()
    await handler.cancel_run()
    [record] = journal.records("go")
    assert record["outcome"] == ["cancelled"]
    assert (record["sends"], numbered(record["writes"])) == ([], [(1, "plain", 1)])
    assert handler.is_done()


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
    await turns()
    assert journal.steps() == [["fan"]], "the second built on the first's write, which is not committed"
    gate.set()
    await handler
    work = journal.records("work")
    assert [shown(record["outcome"][1][0]) for record in work] == [("B", {"n": 1}), ("B", {"n": 2})]
    assert [numbered(record["writes"]) for record in work] == [[(1, "log", [1])], [(1, "log", [1, 2])]]


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
    together = [group for group in journal.steps() if "one" in group]
    assert together == [group for group in journal.steps() if "two" in group]
    assert sorted(name for name in together[0] if name != "end") == ["one", "two"]


async def test_of_two_that_depend_on_each_other_the_sender_stands_before_the_receiver():
    received = asyncio.Event()

    class Flow(Workflow):
        @step
        async def sender(self, ctx: Context, ev: StartEvent) -> A | B:
            ctx.send_event(A())
            await received.wait()
            await turns()
            return B(n=await ctx.store.get("received"))

        @step
        async def receiver(self, ctx: Context, ev: A) -> None:
            await ctx.store.set("received", 1)
            received.set()

        @step
        async def end(self, ev: B) -> StopEvent:
            return StopEvent()

    journal, _ = await run(Flow)
    assert journal.steps()[0] == ["sender", "receiver"], "though the receiver was over first"


async def test_what_several_held_up_stands_in_the_order_of_what_was_built_upon():
    journal = Listener()
    sent, received = asyncio.Event(), asyncio.Event()

    class Flow(Workflow):
        @step
        async def writer(self, ctx: Context, ev: StartEvent) -> B:
            await ctx.store.set("k", 1)
            sent.set()
            await received.wait()
            await turns()
            return B()

        @step
        async def sender(self, ctx: Context, ev: StartEvent) -> A | None:
            await sent.wait()
            await ctx.store.get("k")
            ctx.send_event(A())
            await received.wait()

        @step
        async def receiver(self, ctx: Context, ev: A) -> None:
            await ctx.store.get("k")
            received.set()

        @step
        async def end(self, ev: B) -> StopEvent:
            return StopEvent()

    await Flow(store=journal, disable_validation=True).run()
    assert journal.steps()[0] == ["writer", "sender", "receiver"]


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
    await turns()
    assert await handler.ctx.store.get("gathered")
    gathered = [record for record in journal.records("gather") if "writes" in record]
    assert gathered == [], "the full set holds an event of a step that is not committed"
    gate.set()
    await handler
    order = [name for group in journal.steps() for name in group]
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
    attempts = [(a, kind) for group in journal.segments() for name, a, kind in group if name == "go"]
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
        shown(record["outcome"][1][0])[1]["n"]: number
        for number, group in enumerate(journal.groups)
        for record in group
        if record.get("step") == "work"
    }
    assert set(committed_at) == set(range(len(work)))
    for reader, writers in read_from.items():
        assert all(committed_at[writer] <= committed_at[reader] for writer in writers)


class Round(Event):
    n: int


class Rounds(Workflow):
    """Goes around; beside it, a step may keep something that cannot be written on an event it was handed."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Round | A:
        if ev.get("odd"):
            ctx.send_event(A())
        return Round(n=0)

    @step
    async def keep(self, ctx: Context, ev: A) -> None:
        ev.client = object()  # pyright: ignore[reportAttributeAccessIssue]
        await ctx.wait_for_event(HumanResponseEvent, timeout=None)

    @step
    async def around(self, ev: Round) -> Round | StopEvent:
        await written()
        return Round(n=ev.n + 1) if ev.n < 40 else StopEvent(result=ev.n)


async def test_a_snapshot_that_cannot_be_written_costs_no_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lease, "SNAPSHOT_EVERY", 10)
    store = MemoryStore()
    odd, other = Rounds(store=store).run(run_id="odd", odd=True), Rounds(store=store).run(run_id="other")
    assert [await odd, await other] == [40, 40]
    warned = [record.getMessage() for record in caplog.records if "no snapshot is kept" in record.getMessage()]
    assert 1 < len(warned) < 6, "as often as there would be snapshots"
    assert "run odd" in warned[0]
    assert "Event A cannot be written into a snapshot" in warned[0]
    for run_id in ("odd", "other"):
        assert await Rounds(store=store).resume(run_id) == 40


class Failing(JsonSerializer):
    """Has a disk of its own, which is full."""

    def serialize(self, value: Any) -> str:
        if isinstance(value, A):
            raise OSError("no space left")
        return super().serialize(value)


async def test_so_does_a_run_that_ends_at_its_timeout():
    class Streams(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(A())
            await asyncio.Event().wait()
            return StopEvent()

    with pytest.raises(
        RunInterruptedError, match=r"was stopped, because its work cannot be recorded \(OSError: no space"
    ):
        await asyncio.wait_for(Streams(store=MemoryStore(), serializer=Failing(), timeout=0.01).run(), 30)
    handler = Streams(store=MemoryStore(), serializer=Failing()).run()
    await handler.started()
    await asyncio.sleep(0.01)
    await asyncio.wait_for(handler.cancel_run(), 30)
    assert handler.is_done()
    with pytest.raises(RunInterruptedError):
        await handler


class BreaksDown(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> A | B:
        if ev.how == "streamed":
            ctx.write_event_to_stream(A())
        return A() if ev.how == "returned" else B()

    @step
    async def beside(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.wait_for_event(HumanResponseEvent, timeout=None)

    @step
    async def end(self, ev: A | B) -> StopEvent:
        return StopEvent(result="ended")


@pytest.mark.parametrize(
    ("how", "error", "words", "status"),
    [
        ("returned", OSError, "no space left", "failed"),
        # Here its end cannot be recorded either.
        ("streamed", RunInterruptedError, "Run 'r' was stopped, .*OSError: no space left", "running"),
    ],
)
async def test_a_serializer_that_breaks_down_ends_the_run_and_leaves_nobody_waiting(
    how: str, error: type[Exception], words: str, status: str
):
    flow = BreaksDown(store=MemoryStore(), serializer=Failing())
    handler = flow.run(run_id="r", how=how)
    with pytest.raises(error, match=words):
        await asyncio.wait_for(handler, 30)
    assert [info.status for info in await flow.run_store.list_runs()] == [status]
    if status == "running":
        assert await BreaksDown(store=flow.run_store).resume("r") == "ended", "it goes on from what was written"


async def test_committed_records_are_not_kept_for_the_keys_they_wrote():
    class Flow(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> A:
            return A(n=30)

        @step
        async def count(self, ctx: Context, ev: A) -> A | B:
            await ctx.store.set(f"key{ev.n}", ev.n)
            return A(n=ev.n - 1) if ev.n else B()

        @step
        async def wait(self, ctx: Context, ev: B) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    before = _records_in_memory()
    handler = Flow(store=MemoryStore(), timeout=None, disable_validation=True).run()
    await until(lambda: handler.is_waiting)
    await until(lambda: _records_in_memory() < before + 10)
    await handler.cancel_run()


def _records_in_memory() -> int:
    gc.collect()
    return sum(isinstance(one, AttemptRecord) for one in gc.get_objects())

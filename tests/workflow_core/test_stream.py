"""subscribe(): any number of readers of one stream, with positions and origins."""

import asyncio
import time

from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, StreamItem, Workflow, WorkflowHandler, step
from batonflow.workflow_core.events import InternalDispatchEvent, InternalEventsMissedEvent, StepStateChanged
from batonflow.workflow_core.stream import RING
from tests.workflow_core.flows import names, streamed


class Tick(Event):
    n: int


class More(Event):
    left: int


class Ticks(Workflow):
    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(ev.get("count", 4)):
            ctx.write_event_to_stream(Tick(n=n))
            await asyncio.sleep(0)
        return StopEvent(result="done")


class Chain(Workflow):
    """As many hops as it is told to."""

    @step
    async def start(self, ev: StartEvent) -> More:
        return More(left=ev.hops)

    @step
    async def hop(self, ev: More) -> More | StopEvent:
        return More(left=ev.left - 1) if ev.left else StopEvent()


async def items(handler: WorkflowHandler, after: int = -1, *, internal: bool = False) -> list[StreamItem]:
    return [item async for item in handler.subscribe(after, internal)]


async def test_several_readers_see_the_whole_stream_each():
    handler = Ticks().run()
    one, other, own = await asyncio.gather(items(handler), items(handler), streamed(handler))
    assert [item.event for item in one] == [item.event for item in other] == own
    assert names(own) == ["Tick"] * 4 + ["StopEvent"]


async def test_a_late_reader_sees_the_whole_stream_too():
    handler = Ticks().run()
    await handler
    assert names([item.event for item in await items(handler)]) == ["Tick"] * 4 + ["StopEvent"]
    assert names([item.event for item in await items(handler)]) == ["Tick"] * 4 + ["StopEvent"]


async def test_a_reader_may_begin_behind_a_position():
    handler = Ticks().run()
    everything = await items(handler)
    seqs = [item.seq for item in everything]
    assert seqs == sorted(set(seqs))
    assert await items(handler, after=seqs[1]) == everything[2:]
    assert await items(handler, after=seqs[-1]) == []
    assert await items(handler, after=10_000) == []


async def test_a_reader_that_begins_in_the_future_gets_what_comes_after():
    handler = Ticks().run()
    later = asyncio.create_task(items(handler, after=2))
    assert [item.seq for item in await later] == [item.seq for item in await items(handler) if item.seq > 2]


async def test_an_item_says_where_its_event_comes_from():
    before = time.time()
    handler = Ticks().run()
    *ticks, stop = await items(handler)
    assert all(item.step == "go" and item.path == "" for item in ticks)
    assert len({item.cause for item in ticks}) == 1
    assert ticks[0].cause > 0
    assert before <= ticks[0].ts <= ticks[-1].ts <= time.time()
    assert (stop.step, stop.cause) == ("", 0)


async def test_internal_notes_stand_between_the_events_in_order():
    handler = Ticks().run()
    shown = await items(handler, internal=True)
    assert [item.seq for item in shown] == sorted(item.seq for item in shown)
    assert names([item.event for item in shown]) == ["StepStateChanged"] + ["Tick"] * 4 + [
        "StepStateChanged",
        "StopEvent",
    ]
    assert shown[0].step == "go"
    assert [item for item in shown if not isinstance(item.event, InternalDispatchEvent)] == await items(handler)


async def test_an_internal_reader_may_begin_behind_a_position():
    handler = Ticks().run()
    shown = await items(handler, internal=True)
    assert await items(handler, after=shown[2].seq, internal=True) == shown[3:]


async def test_a_late_internal_reader_is_told_how_many_notes_it_missed():
    handler = Chain().run(hops=RING)
    await handler
    first, *rest = await items(handler, internal=True)
    notes = 2 * (RING + 2)
    assert isinstance(first.event, InternalEventsMissedEvent)
    assert first.event.count == notes - RING
    told = [item for item in rest if isinstance(item.event, StepStateChanged)]
    assert len(told) == RING
    assert names([rest[-1].event]) == ["StopEvent"]


async def test_an_early_internal_reader_misses_nothing():
    handler = Chain().run(hops=RING)
    shown = await items(handler, internal=True)
    assert sum(isinstance(item.event, StepStateChanged) for item in shown) == 2 * (RING + 2)


async def test_what_steps_stream_is_all_kept():
    handler = Ticks().run(count=RING + 5)
    await handler
    assert len(await items(handler)) == RING + 6


async def test_a_reader_that_leaves_disturbs_nobody():
    handler = Ticks().run()
    async for item in handler.subscribe():
        assert item.event.n == 0
        break
    assert len(await items(handler)) == 5
    assert await handler == "done"

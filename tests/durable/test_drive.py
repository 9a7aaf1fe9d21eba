"""The numbers of streamed events: whoever has seen one never sees it again with something else."""

import asyncio
from typing import Any

import pytest

from batonflow.durable.store_protocol import RunStore
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step
from batonflow.workflow_core.errors import RunInterruptedError
from batonflow.workflow_core.events import StreamResetEvent


class Piece(Event):
    n: int


class Streams(Workflow):
    """Streams pieces within one step, every so many without letting anybody else on."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(ev.pieces):
            ctx.write_event_to_stream(Piece(n=n))
            if n % ev.at_once == 0:
                await asyncio.sleep(0)
        if ev.get("then_waits"):
            await asyncio.Event().wait()
        return StopEvent()


async def shown(handler: WorkflowHandler, store: RunStore, *, until: int | None = None) -> list[tuple[int, Any]]:
    """What a reader sees, each with a number that the store knows to be given out."""
    found: list[tuple[int, Any]] = []
    async for item in handler.subscribe(internal=True):
        info = await store.info("r")
        assert info is not None
        assert item.seq < info.stream_seq
        if not isinstance(item.event, StreamResetEvent | Piece | StopEvent):
            continue
        found.append((item.seq, item.event))
        if until is not None and isinstance(item.event, Piece) and item.event.n == until:
            break
    return found


@pytest.mark.parametrize("at_once", [1, 700, 10_000])
async def test_none_is_shown_that_the_store_does_not_know(store: RunStore, at_once: int) -> None:
    handler = Streams(store=store).run(run_id="r", pieces=4_000, at_once=at_once)
    found = await shown(handler, store)
    assert [event.n for _, event in found if isinstance(event, Piece)] == [*range(4_000)]
    assert isinstance(found[-1][1], StopEvent)


@pytest.mark.parametrize("pieces", [0, 1, 2, 1600])
async def test_the_next_process_goes_on_behind_all_that_may_have_been_seen(store: RunStore, pieces: int) -> None:
    seen: list[tuple[int, Any]] = []
    flow = Streams(store=store)
    handler = flow.run(run_id="r", pieces=pieces + 1, at_once=3, then_waits=True)
    for _ in range(3):
        before = seen[-1][0] if seen else -1
        found = await shown(handler, store, until=pieces)
        assert found[0][0] > before
        if seen:
            reset = found[0][1]
            assert isinstance(reset, StreamResetEvent)
            assert reset.lost_from <= before <= reset.lost_to < found[0][0]
        seen += found
        await handler.interrupt()
        with pytest.raises(RunInterruptedError, match=r"Run 'r' was interrupted; it goes on"):
            await handler
        assert not any(isinstance(item.event, StopEvent) for item in [item async for item in handler.subscribe()]), (
            "the run has not ended"
        )
        handler = flow.resume("r")
    await handler.interrupt()
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers))


async def test_what_is_given_up_at_once_shows_no_more_than_the_store_knows(store: RunStore) -> None:
    handler = Streams(store=store).run(run_id="r", pieces=3_000, at_once=10_000, then_waits=True)
    found: list[int] = []

    async def read() -> None:
        async for item in handler.subscribe(internal=True):
            found.append(item.seq)  # noqa: PERF401 - one at a time, as they come

    reading = asyncio.create_task(read())
    await handler.started()
    await asyncio.sleep(0)
    await handler.interrupt()
    await asyncio.wait_for(reading, 30)
    info = await store.info("r")
    assert info is not None
    assert max(found, default=-1) < info.stream_seq


async def test_notes_of_the_engine_ask_for_more_numbers_too(store: RunStore) -> None:
    class Waits(Workflow):
        @step
        async def go(self, ctx: Context, ev: StartEvent) -> Piece | StopEvent:
            for n in range(900):
                ctx.send_event(Piece(n=n))
            await asyncio.Event().wait()
            return StopEvent()

        @step
        async def take(self, ev: Piece) -> None: ...

    handler = Waits(store=store, disable_validation=True).run(run_id="r")
    seen = 0
    async with asyncio.timeout(30):
        async for item in handler.subscribe(internal=True):
            seen = item.seq
            if seen >= 1_100:
                break
    await handler.interrupt()


async def test_the_last_event_has_one_number_wherever_it_is_read(store: RunStore) -> None:
    handler = Streams(store=store).run(run_id="r", pieces=3, at_once=1)
    found = await shown(handler, store)
    stored = (await store.replay("r")).events
    assert [(entry.seq, type(entry.event)) for entry in stored] == [(number, type(event)) for number, event in found]
    again = Streams(store=store).resume("r")
    behind = [(item.seq, type(item.event)) async for item in again.subscribe(after=found[-2][0])]
    assert behind == [(found[-1][0], StopEvent)]

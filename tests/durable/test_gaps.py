"""What a commit says of events that are streamed already and not written yet."""

import asyncio

from batonflow.durable.gaps import NO_GAP, gap_after
from batonflow.durable.replay import records_of
from batonflow.workflow_core import Context, Event, MemoryStore, StartEvent, StopEvent, Workflow, step


class Word(Event):
    text: str


class First(Event):
    pass


class Second(Event):
    pass


class Done(Event):
    pass


class Turns(Workflow):
    """The first step rests on one that is still at work, so it is written with that; the second rests on nothing."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> First | Second:
        await ctx.once("both", self.nothing)
        ctx.send_event(Second())
        await ctx.once("second", self.nothing)
        ctx.send_event(First())
        await asyncio.sleep(0.05)
        return None

    async def nothing(self) -> None:
        pass

    @step
    async def first(self, ctx: Context, ev: First) -> Done:
        ctx.write_event_to_stream(Word(text="held up"))
        return Done()

    @step
    async def second(self, ctx: Context, ev: Second) -> Done:
        await asyncio.sleep(0.02)
        ctx.write_event_to_stream(Word(text="early"))
        return Done()

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
        return StopEvent() if ctx.collect_events(ev, [Done, Done]) else None


def places(commits) -> dict[str, int]:
    streamed = [entry for record in records_of(commits) for entry in record.get("streamed", ())]
    return {data[1]["text"]: place for _, data, place, *_ in streamed}


async def test_what_is_written_first_says_that_something_before_it_is_missing() -> None:
    store = MemoryStore()
    await Turns(store=store).run(run_id="r")
    commits = await store.read("r", 0, 100)
    [early] = [commit for commit in commits if "early" in places([commit])]
    [late] = [commit for commit in commits if "held up" in places([commit])]
    place = places(commits)
    assert place["held up"] < place["early"]
    assert early.seq < late.seq
    assert gap_after([early]) == place["held up"]
    assert gap_after(commits[: late.seq - 1]) == place["held up"]  # also where later commits have nothing of the stream
    assert gap_after([late]) == NO_GAP
    assert gap_after(commits) == NO_GAP


async def test_the_place_stays_where_nothing_was_streamed() -> None:
    store = MemoryStore()
    await Turns(store=store).run(run_id="r")
    commits = [commit for commit in await store.read("r", 0, 100) if not places([commit])][:2]
    assert gap_after(commits, 7) == 7
    assert gap_after([], 7) == 7

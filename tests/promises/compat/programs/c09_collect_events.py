import asyncio
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_none
from show import streamed, title


class A(Event):
    n: int = 0
class B(Event):
    n: int = 0
class C(Event):
    n: int = 0
class SubA(A):
    ...
class Out(Event):
    text: str = ""

def names(events):
    return None if events is None else [(type(e).__name__, e.n) for e in events]

class Sends(Workflow):
    """Sends what it is given and collects it as it is told."""
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | C | SubA | None:
        for event in ev.events:
            ctx.send_event(event)
    @step(num_workers=1, accept_event_subclasses=True)
    async def collect(self, ctx: Context, ev: A | B | C) -> StopEvent | None:
        got = ctx.collect_events(ev, self.expected)
        print("  ", type(ev).__name__, ev.n, "->", names(got))
        if isinstance(ev, C) and ev.n == 99:
            return StopEvent(result="end")
    def expecting(self, *expected):
        self.expected = list(expected)
        return self

async def collecting():
    for expected, events in (
        ((A, B), [B(n=1), A(n=2)]),
        ((B, A), [B(n=1), A(n=2), A(n=3), B(n=4)]),
        ((A, A, A), [A(n=1), A(n=2), A(n=3), A(n=4)]),
        ((A, B, A), [A(n=1), A(n=2), B(n=3)]),
        ((A, B), [C(n=1), A(n=2), C(n=3), B(n=4)]),
        ((), [A(n=1)]),
        ((A, B), [SubA(n=1), B(n=2), A(n=3)]),
    ):
        print(" ", [t.__name__ for t in expected])
        print(" ", await Sends().expecting(*expected).run(events=[*events, C(n=99)]))
title("order, multiplicity, what does not fit")
asyncio.run(collecting())

title("buffers of different names, one step")
class Buffers(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(6):
            ctx.send_event(A(n=n))
    @step(num_workers=1)
    async def collect(self, ctx: Context, ev: A) -> StopEvent | None:
        parity = "even" if ev.n % 2 == 0 else "odd"
        got = ctx.collect_events(ev, [A] * 3, buffer_id=parity)
        if got:
            ctx.write_event_to_stream(Out(text=f"{parity} {[e.n for e in got]}"))
            both = ctx.collect_events(ev, [A, A], buffer_id="done")
        if ev.n == 5:
            return StopEvent(result=names(both))
async def buffers():
    handler = Buffers().run()
    print([e.text for e in await streamed(handler) if isinstance(e, Out)], await handler)
asyncio.run(buffers())

title("a buffer belongs to one step")
class TwoSteps(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        ctx.send_event(A(n=1))
        ctx.send_event(A(n=2))
    @step
    async def one(self, ctx: Context, ev: A) -> B | None:
        got = ctx.collect_events(ev, [A, A])
        return B(n=sum(e.n for e in got)) if got else None
    @step
    async def two(self, ctx: Context, ev: A) -> C | None:
        got = ctx.collect_events(ev, [A, A])
        return C(n=10 * sum(e.n for e in got)) if got else None
    @step
    async def end(self, ctx: Context, ev: B | C) -> StopEvent | None:
        got = ctx.collect_events(ev, [C, B])
        return StopEvent(result=names(got)) if got else None
async def two_steps():
    print(await TwoSteps().run())
asyncio.run(two_steps())

title("many workers share one buffer, every set is whole")
class Many(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in range(60):
            ctx.send_event(A(n=n))
    @step(num_workers=8)
    async def work(self, ev: A) -> B:
        await asyncio.sleep(0.001 * (ev.n % 5))
        return B(n=ev.n)
    @step(num_workers=8)
    async def group(self, ctx: Context, ev: B) -> C | None:
        got = ctx.collect_events(ev, [B] * 4)
        if got is None:
            return None
        await asyncio.sleep(0.001)
        return C(n=len(got), members=[b.n for b in got])
    @step(num_workers=1)
    async def end(self, ctx: Context, ev: C) -> StopEvent | None:
        got = ctx.collect_events(ev, [C] * 15)
        return StopEvent(result=(sum(c.n for c in got), sorted(n for c in got for n in c.members))) if got else None
async def many():
    total, members = await Many(timeout=10).run()
    print(total, members == list(range(60)))
asyncio.run(many())

title("the step that failed after collecting gets the set again")
class Fails(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | None:
        ctx.send_event(A(n=1))
        ctx.send_event(B(n=2))
    @step(num_workers=1, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def collect(self, ctx: Context, ev: A | B) -> StopEvent | None:
        got = ctx.collect_events(ev, [A, B])
        if got is None:
            return None
        if ctx.retry_info().retry_number < 2:
            raise ValueError("again")
        return StopEvent(result=names(got))
async def failing():
    print(await Fails(timeout=3).run())
asyncio.run(failing())

title("sets across rounds of a loop")
class Rounds(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent | C) -> A | B | None:
        ctx.send_event(A(n=ev.n if isinstance(ev, C) else 0))
        ctx.send_event(B(n=ev.n if isinstance(ev, C) else 0))
    @step
    async def both(self, ctx: Context, ev: A | B) -> C | StopEvent | None:
        got = ctx.collect_events(ev, [A, B])
        if got is None:
            return None
        async with ctx.store.edit_state() as state:
            state["rounds"] = [*state.get("rounds", []), names(got)]
        return C(n=got[0].n + 1) if got[0].n < 3 else StopEvent(result=await ctx.store.get("rounds"))
async def rounds():
    print(await Rounds().run())
asyncio.run(rounds())

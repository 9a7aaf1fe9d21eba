import asyncio
from typing import Annotated
from workflows import Context, Workflow, catch_error, step
from workflows.collect import All, Collect, Take
from workflows.errors import WorkflowRuntimeError
from workflows.events import Event, StartEvent, StepFailedEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from show import errors, fails, streamed, title


class Item(Event):
    n: int = 0
class Other(Event):
    n: int = 0
class Done(Event):
    n: int = 0
class Part(Event):
    n: int = 0
class Sum(Event):
    n: int = 0
class Extra(Event):
    n: int = 0


async def run(workflow, **kwargs):
    return await workflow.run(**kwargs)

title("fan out, fan in, in order of arrival")
class Simple(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(ev.count)]
    @step
    async def work(self, ev: Item) -> Done | None:
        await asyncio.sleep(0.1 * (3 - ev.n))
        return Done(n=ev.n * 10) if ev.n != 1 else None
    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=[e.n for e in evs])
async def simple():
    print(await run(Simple(), count=3), await run(Simple(), count=1), await run(Simple(), count=0))
asyncio.run(simple())

title("kinds of list parameters and returns")
class Kinds(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item | Other] | Extra:
        return {"list": [Item(n=1), Other(n=2), Item(n=3)], "bare": Extra(n=9), "empty": []}[ev.kind]
    @step
    async def join(self, things: list[Item | Other]) -> StopEvent:
        return StopEvent(result=sorted((type(t).__name__, t.n) for t in things))
    @step
    async def bare(self, ev: Extra) -> StopEvent:
        return StopEvent(result=f"bare {ev.n}")
async def kinds():
    for kind in ("list", "bare", "empty"):
        print(await run(Kinds(), kind=kind))
asyncio.run(kinds())

title("nested streams")
class Nested(Workflow):
    @step
    async def outer(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in (1, 2, 3)]
    @step
    async def inner(self, ev: Item) -> list[Part]:
        await asyncio.sleep(0.1 * ev.n)
        return [Part(n=10 * ev.n + k) for k in range(ev.n)]
    @step
    async def work(self, ev: Part) -> Done:
        return Done(n=ev.n)
    @step
    async def inner_join(self, parts: list[Done]) -> Sum:
        return Sum(n=sum(p.n for p in parts))
    @step
    async def outer_join(self, sums: list[Sum]) -> StopEvent:
        return StopEvent(result=[s.n for s in sums])
async def nested():
    print(await run(Nested()))
asyncio.run(nested())

title("the first few are enough")
class First(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(ev.count)]
    @step
    async def work(self, ev: Item) -> Done:
        await asyncio.sleep(0.05 + 0.15 * ev.n)
        return Done(n=ev.n)
    @step
    async def join(self, ctx: Context, evs: Annotated[list[Done], Collect(Take(2))]) -> Sum:
        ctx.write_event_to_stream(Extra(n=len(evs)))
        return Sum(n=sum(e.n for e in evs))
    @step
    async def end(self, ev: Sum) -> StopEvent:
        await asyncio.sleep(0.8)
        return StopEvent(result=ev.n)
async def first():
    for count in (4, 2, 1, 0):
        handler = First().run(count=count)
        await streamed(handler)
        print(count, await handler)
asyncio.run(first())
errors(lambda: Take(0))
print(Collect(Take(2)) == Collect(Take(2)), isinstance(Collect().cardinality, All))

title("several joins on one stream, one of them taking")
class Two(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in (1, 2, 3)]
    @step
    async def work(self, ev: Item) -> Done:
        return Done(n=ev.n)
    @step
    async def all_of_them(self, evs: Annotated[list[Done], Collect(All())]) -> Sum:
        return Sum(n=sum(e.n for e in evs))
    @step
    async def count(self, evs: list[Done]) -> Extra:
        return Extra(n=len(evs))
    @step
    async def end(self, total: Sum, extra: Extra) -> StopEvent:
        return StopEvent(result=(total.n, extra.n))
async def two():
    print(await run(Two()))
asyncio.run(two())

title("retries, recoveries and waits keep a stream open")
class Holding(Workflow):
    tried = 0
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in (1, 2, 3)]
    @step(retry_policy=retry_policy(wait=wait_fixed(0.05), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: Item) -> Done:
        if ev.n == 1 and ctx.retry_info().retry_number < 2:
            raise ValueError("again")
        if ev.n == 2:
            raise KeyError("never")
        return Done(n=ev.n)
    @catch_error(for_steps=["work"], max_recoveries=3)
    async def recover(self, ev: StepFailedEvent) -> Done:
        return Done(n=-ev.input_event.n)
    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(e.n for e in evs))
async def holding():
    print(await run(Holding()))
asyncio.run(holding())

title("events of several slots are joined oldest first")
class Slots(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Item | Other | None:
        for n in (1, 2):
            ctx.send_event(Item(n=n))
        for n in (8, 9):
            ctx.send_event(Other(n=n))
    @step
    async def pair(self, ctx: Context, left: Item, right: Other) -> Sum:
        return Sum(n=10 * left.n + right.n)
    @step
    async def end(self, ctx: Context, ev: Sum) -> StopEvent | None:
        both = ctx.collect_events(ev, [Sum, Sum])
        return StopEvent(result=sorted(s.n for s in both)) if both else None
async def slots():
    print(await run(Slots()))
asyncio.run(slots())

title("a join of slots inside a stream joins per member")
class Inside(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1), Item(n=2)]
    @step
    async def left(self, ev: Item) -> Part:
        return Part(n=ev.n)
    @step
    async def right(self, ev: Item) -> Other:
        return Other(n=ev.n)
    @step
    async def pair(self, a: Part, b: Other) -> Done:
        return Done(n=a.n + b.n)
    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=(len(evs), sum(e.n for e in evs)))
async def inside():
    print(await run(Inside()))
asyncio.run(inside())

title("what does not fit")
class Sends(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1)]
    @step
    async def work(self, ctx: Context, ev: Item) -> Done:
        try:
            ctx.send_event(Done(n=99), step="join")
        except WorkflowRuntimeError as error:
            print("targeted", "targeted events" in str(error))
        return Done(n=ev.n)
    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=[e.n for e in evs])
async def sends():
    await fails(run(Sends()), "targeted events")
asyncio.run(sends())

class NoProducer(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Item:
        return Item()
    @step
    async def join(self, evs: list[Item]) -> StopEvent:
        return StopEvent()
class Levels(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1)]
    @step
    async def also(self, ev: StartEvent) -> Other:
        return Other()
    @step
    async def pair(self, a: Item, b: Other) -> StopEvent:
        return StopEvent()
async def invalid():
    await fails(run(NoProducer()), "returned-list producer")
    await fails(run(Levels()), "common stream level")
asyncio.run(invalid())

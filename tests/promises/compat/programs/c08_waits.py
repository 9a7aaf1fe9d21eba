import asyncio
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from show import fails, streamed, title


class Ask(InputRequiredEvent):
    prefix: str = ""
class Ping(Event):
    n: int = 0
class Item(Event):
    n: int = 0
class Done(Event):
    n: int = 0

async def answer(handler, answers):
    """Send the answer to each question; print the types of everything streamed."""
    names = []
    async for event in handler.stream_events():
        names.append(type(event).__name__)
        if isinstance(event, InputRequiredEvent):
            print("asked", event.prefix)
            for response in answers[event.prefix]:
                handler.ctx.send_event(response)
    print("stream:", *names)
    return await handler

title("one question, one answer")
class One(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        got = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(prefix="name?"))
        return StopEvent(result=(type(got).__name__, got.response))
async def one():
    print(await answer(One().run(), {"name?": [HumanResponseEvent(response="Ann")]}))
asyncio.run(one())

title("several questions, one after another")
class Several(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(HumanResponseEvent, waiter_id="first", waiter_event=Ask(prefix="first?"), requirements={"to": "first"})
        second = await ctx.wait_for_event(HumanResponseEvent, waiter_id="second", waiter_event=Ask(prefix="second?"), requirements={"to": "second"})
        return StopEvent(result=[first.response, second.response])
async def several():
    print(await answer(Several().run(), {
        "first?": [HumanResponseEvent(to="nobody", response="x"), HumanResponseEvent(to="first", response="1")],
        "second?": [HumanResponseEvent(to="third", response="x"), HumanResponseEvent(to="second", response="2")],
    }))
asyncio.run(several())

title("requirements tell parallel waits apart")
class Parallel(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in (1, 2, 3)]
    @step(num_workers=1)
    async def ask(self, ctx: Context, ev: Item) -> Done:
        got = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(prefix=f"item {ev.n}"), requirements={"n": ev.n})
        return Done(n=10 * got.n + got.value)
    @step
    async def join(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(e.n for e in evs))
async def parallel():
    handler = Parallel(timeout=5).run()
    asked = []
    async for event in handler.stream_events():
        if isinstance(event, Ask):
            asked.append(event.prefix)
            if len(asked) == 3:
                for n in (3, 1, 2):
                    handler.ctx.send_event(HumanResponseEvent(n=n, value=n + 5))
    print(sorted(asked), await handler)
asyncio.run(parallel())

title("requirements look at fields, dynamic data and several keys")
class Needs(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        got = await ctx.wait_for_event(Ping, requirements={"n": 2, "who": "me"})
        return StopEvent(result=(got.n, got.who, got.mark))
    @step
    async def also(self, ev: Ping) -> None:
        print("also", ev.n, ev.get("who"))
    @step
    async def source(self, ev: StartEvent) -> Ping | None:
        return None
async def needs():
    handler = Needs(skip_graph_checks={"dead_end"}).run()
    await asyncio.sleep(0.02)
    for ping in (Ping(n=1, who="me"), Ping(n=2), Ping(n=2, who="you"), Ping(n=2, who="me", mark="!")):
        await handler.send_event(ping)
        await asyncio.sleep(0.02)
    print(await handler)
asyncio.run(needs())

title("timeouts")
class Late(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(HumanResponseEvent, timeout=0.05, waiter_event=Ask(prefix="quick!"))
        except asyncio.TimeoutError:
            return StopEvent(result="too late")
        return StopEvent(result="in time")
class LateFails(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent, timeout=0.05)
        return StopEvent(result="in time")
async def late():
    print(await answer(Late().run(), {"quick!": []}))
    print(await answer(Late().run(), {"quick!": [HumanResponseEvent(response="here")]}))
    error = await fails(LateFails().run())
    print(isinstance(error, asyncio.TimeoutError))
asyncio.run(late())

title("steps that answer by being called: a question returned, an answer accepted")
class ByStep(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> Ask:
        await ctx.store.set("topic", ev.topic)
        return Ask(prefix="go on?")
    @step
    async def answer(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=(ev.response, await ctx.store.get("topic")))
async def by_step():
    workflow = ByStep()
    print(workflow.validate(), One().validate())
    print(await answer(workflow.run(topic="tides"), {"go on?": [HumanResponseEvent(response="yes")]}))
    print(await answer(workflow.run(topic="again"), {"go on?": [HumanResponseEvent(response="no"), HumanResponseEvent(response="yes")]}))
asyncio.run(by_step())

title("a waiting step gives its worker away")
class Frees(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Item | None:
        ctx.send_event(Item(n=1))
        ctx.send_event(Item(n=2))
    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Item) -> Done:
        if ev.n == 1:
            got = await ctx.wait_for_event(HumanResponseEvent, waiter_event=Ask(prefix="one"))
            return Done(n=got.n)
        return Done(n=2)
    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        if ev.n == 2:
            ctx.write_event_to_stream(Ask(prefix="two is through"))
        got = ctx.collect_events(ev, [Done] * 2)
        return StopEvent(result=[d.n for d in got]) if got else None
async def frees():
    print(await answer(Frees().run(), {"one": [], "two is through": [HumanResponseEvent(n=1)]}))
asyncio.run(frees())

title("a question asked by send_event is not streamed")
class Sent(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Ask | Done:
        ctx.send_event(Ask(prefix="sent"))
        ctx.write_event_to_stream(Ask(prefix="written"))
        return Done()
    @step
    async def end(self, ev: Done) -> StopEvent:
        return StopEvent(result="end")
async def sent():
    handler = Sent().run()
    print([e.prefix for e in await streamed(handler) if isinstance(e, Ask)], await handler)
asyncio.run(sent())

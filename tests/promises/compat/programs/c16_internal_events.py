import asyncio
from workflows import Context, Workflow, step
from workflows.events import (
    Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepState, StepStateChanged, StopEvent, UnhandledEvent, WorkflowIdleEvent,
)
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from show import fails, title


class Item(Event):
    n: int = 0
class Note(Event):
    n: int = 0
class Lost(Event):
    ...

def tell(event):
    if isinstance(event, StepStateChanged):
        print("  ", event.name, event.step_state.value, event.worker_id, _bare(event.input_event_name), _bare(event.output_event_name))
    elif isinstance(event, UnhandledEvent):
        print("   unhandled", event.event_type, event.qualified_name, event.step_name, event.idle)
    else:
        print("  ", type(event).__name__)

def _bare(name):
    """Keep the spelling, `A` or `<class 'module.A'>`, but not the module, which differs for the library's own classes."""
    return name if name is None or not name.startswith("<class") else "<class '…" + name.split(".")[-1].removeprefix("<class '")

async def tell_all(handler, answers=()):
    answers = list(answers)
    async for event in handler.stream_events(expose_internal=True):
        tell(event)
        if isinstance(event, WorkflowIdleEvent) and answers:
            handler.ctx.send_event(answers.pop(0))
    return handler

title("two steps")
class Two(Workflow):
    @step
    async def one(self, ctx: Context, ev: StartEvent) -> Item:
        ctx.write_event_to_stream(Note(n=1))
        return Item()
    @step
    async def two(self, ctx: Context, ev: Item) -> StopEvent:
        ctx.write_event_to_stream(Note(n=2))
        return StopEvent(result="two")
async def two():
    print(await (await tell_all(Two().run())))
asyncio.run(two())

title("waiting for a worker")
class Busy(Workflow):
    @step
    async def one(self, ctx: Context, ev: StartEvent) -> Item | None:
        ctx.send_event(Item(n=1))
        ctx.send_event(Item(n=2))
    @step(num_workers=1)
    async def two(self, ev: Item) -> StopEvent | None:
        await asyncio.sleep(0.02)
        return StopEvent(result="busy") if ev.n == 2 else None
async def busy():
    print(await (await tell_all(Busy().run())))
asyncio.run(busy())

title("failures and retries")
class Fails(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(0.02), stop=stop_after_attempt(2)))
    async def one(self, ev: StartEvent) -> StopEvent:
        raise ValueError("again")
async def failing():
    await fails(await tell_all(Fails().run()), "again")
asyncio.run(failing())

title("idle, and a question returned")
class Asks(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent()
    @step
    async def answer(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.response)
async def asks():
    print(await (await tell_all(Asks().run(), [HumanResponseEvent(response="hello")])))
asyncio.run(asks())

title("nobody's events")
class Loses(Workflow):
    @step
    async def one(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        ctx.send_event(Lost())
        return InputRequiredEvent()
    @step
    async def two(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result="end")
async def loses():
    print(await (await tell_all(Loses().run(), [Lost(), HumanResponseEvent()])))
asyncio.run(loses())

title("they are hidden unless asked for")
async def hidden():
    handler = Two().run()
    print([type(e).__name__ async for e in handler.stream_events()], await handler)
    handler = Two().run()
    states = [e.step_state async for e in handler.stream_events(expose_internal=True) if isinstance(e, StepStateChanged)]
    print(states.count(StepState.RUNNING), states.count(StepState.NOT_RUNNING), await handler)
asyncio.run(hidden())

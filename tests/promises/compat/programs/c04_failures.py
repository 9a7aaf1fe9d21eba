import asyncio
from datetime import timezone
from workflows import Context, Workflow, catch_error, step
from workflows.errors import WorkflowCancelledByUser, WorkflowTimeoutError
from workflows.events import Event, StartEvent, StepFailedEvent, StopEvent, WorkflowFailedEvent, WorkflowTimedOutEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_none
from show import errors, fails, streamed, title


class A(Event):
    n: int = 0
class B(Event):
    n: int = 0

class Trouble(Exception):
    pass

trouble = Trouble("the very object")

async def run(workflow, **kwargs):
    return await workflow.run(**kwargs)

title("an uncaught exception is the run's, unchanged")
class Fails(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        raise trouble
async def failing():
    handler = Fails().run()
    events = await streamed(handler)
    try:
        await handler
    except Trouble as error:
        print(error is trouble, handler.is_done(), error.__traceback__ is not None)
    last = events[-1]
    print(last.step_name, last.exception is trouble, last.attempts, last.elapsed_seconds >= 0, isinstance(last, WorkflowFailedEvent))
    await fails(handler, "the very object")
asyncio.run(failing())

title("catch_error is told everything")
class Caught(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def start(self, ev: StartEvent) -> A:
        raise ValueError(f"bad {ev.n}")
    @step
    async def end(self, ev: A) -> StopEvent:
        return StopEvent(result=f"end {ev.n}")
    @catch_error
    async def recover(self, ctx: Context, ev: StepFailedEvent) -> A | StopEvent:
        print(ev.step_name, type(ev.input_event).__name__, ev.input_event.n, repr(ev.exception), ev.attempts,
              ev.elapsed_seconds >= 0, ev.failed_at.tzinfo == timezone.utc)
        await ctx.store.set("caught", True)
        return A(n=7) if ev.input_event.n else StopEvent(result="stopped by the handler")
async def caught():
    handler = Caught().run(n=1)
    await streamed(handler)
    print(await handler, await handler.ctx.store.get("caught"))
    print(await run(Caught(), n=0))
asyncio.run(caught())

title("handlers for named steps and for the rest")
class Named(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | None:
        ctx.send_event(A(n=1))
        ctx.send_event(B(n=1))
    @step
    async def a(self, ev: A) -> StopEvent | None:
        raise ValueError("from a")
    @step
    async def b(self, ev: B) -> StopEvent | None:
        raise KeyError("from b")
    @catch_error(for_steps=["a"])
    async def for_a(self, ctx: Context, ev: StepFailedEvent) -> StopEvent | None:
        return await self.note(ctx, "for_a " + ev.step_name)
    @catch_error
    async def rest(self, ctx: Context, ev: StepFailedEvent) -> StopEvent | None:
        return await self.note(ctx, "rest " + ev.step_name)
    async def note(self, ctx, text):
        async with ctx.store.edit_state() as state:
            state["notes"] = sorted([*state.get("notes", []), text])
        notes = await ctx.store.get("notes")
        return StopEvent(result=notes) if len(notes) == 2 else None
async def named():
    print(await run(Named()))
asyncio.run(named())

title("max_recoveries counts along one lineage")
class Loops(Workflow):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tries = 0
    @step
    async def start(self, ev: StartEvent | A) -> StopEvent:
        self.tries += 1
        raise ValueError(f"try {self.tries}")
    @catch_error(max_recoveries=3)
    async def again(self, ev: StepFailedEvent) -> A:
        return A()
async def loops():
    workflow = Loops()
    await fails(run(workflow), "try 4")
    print(workflow.tries)
asyncio.run(loops())

class Lineages(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        for n in (1, 2, 3):
            ctx.send_event(A(n=n))
    @step
    async def work(self, ev: A) -> B:
        raise ValueError("always")
    @catch_error(max_recoveries=1)
    async def recover(self, ev: StepFailedEvent) -> B:
        return B(n=ev.input_event.n)
    @step
    async def end(self, ctx: Context, ev: B) -> StopEvent | None:
        got = ctx.collect_events(ev, [B] * 3)
        return StopEvent(result=sorted(b.n for b in got)) if got else None
async def lineages():
    print(await run(Lineages()))
asyncio.run(lineages())

title("a failing handler, a handler that returns nothing wanted")
class FailingHandler(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        raise ValueError("first")
    @catch_error
    async def handler(self, ev: StepFailedEvent) -> StopEvent:
        raise KeyError("second")
async def failing_handler():
    handler = FailingHandler().run()
    await streamed(handler)
    error = await fails(handler, "second")
    print(type(error).__name__)
asyncio.run(failing_handler())

title("the handlers' own rules")
def wrong_event():
    class W(Workflow):
        @catch_error
        async def h(self, ev: StartEvent) -> StopEvent: ...
def no_recoveries():
    class W(Workflow):
        @catch_error(max_recoveries=0)
        async def h(self, ev: StepFailedEvent) -> StopEvent: ...
    return W
errors(wrong_event, "must accept StepFailedEvent")
class Base(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        return StopEvent()
class TwoWildcards(Base):
    @catch_error
    async def one(self, ev: StepFailedEvent) -> StopEvent: ...
    @catch_error
    async def two(self, ev: StepFailedEvent) -> StopEvent: ...
class Unknown(Base):
    @catch_error(for_steps=["nowhere"])
    async def one(self, ev: StepFailedEvent) -> StopEvent: ...
class Twice(Base):
    @catch_error(for_steps=["start"])
    async def one(self, ev: StepFailedEvent) -> StopEvent: ...
    @catch_error(for_steps=["start"])
    async def two(self, ev: StepFailedEvent) -> StopEvent: ...
class OfHandler(Base):
    @catch_error(for_steps=["two"])
    async def one(self, ev: StepFailedEvent) -> StopEvent: ...
    @catch_error
    async def two(self, ev: StepFailedEvent) -> StopEvent: ...
async def rules():
    await fails(run(TwoWildcards()), "wildcard @catch_error handler")
    await fails(run(Unknown()), "unknown step", "nowhere")
    await fails(run(Twice()), "claimed by two @catch_error")
    await fails(run(OfHandler()), "cannot cover another handler step")
asyncio.run(rules())

title("timeouts are the run's and are not caught")
class Slow(Workflow):
    @step
    async def slow(self, ev: StartEvent) -> A:
        await asyncio.sleep(5)
    @step
    async def end(self, ev: A) -> StopEvent:
        return StopEvent()
    @catch_error
    async def never(self, ev: StepFailedEvent) -> StopEvent:
        print("must not happen")
        return StopEvent()
class Quiet(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent | None:
        return None
async def timing():
    handler = Slow(timeout=0.1).run()
    events = await streamed(handler)
    print(events[-1].timeout, events[-1].active_steps, isinstance(events[-1], WorkflowTimedOutEvent))
    error = await fails(handler, "Operation timed out after 0.1 seconds", "Currently active steps: slow")
    print(isinstance(error, WorkflowTimeoutError), isinstance(error, TimeoutError))
    handler = Quiet(timeout=0.1).run()
    await streamed(handler)
    await fails(handler, "Operation timed out after 0.1 seconds", "No steps active")
asyncio.run(timing())

title("cancelling")
class Cancelled(Workflow):
    @step
    async def slow(self, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            print("the step hears it")
            raise
        return StopEvent()
    @catch_error
    async def never(self, ev: StepFailedEvent) -> StopEvent:
        print("must not happen")
        return StopEvent()
async def cancelling():
    handler = Cancelled().run()
    await asyncio.sleep(0.05)
    print(await handler.cancel_run(), handler.is_done())
    await streamed(handler)
    error = await fails(handler)
    print(isinstance(error, WorkflowCancelledByUser))
    print(await handler.cancel_run())
asyncio.run(cancelling())

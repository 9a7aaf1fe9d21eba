import asyncio
import logging
import warnings
from workflows import Context, Workflow, step
from workflows.errors import ContextStateError, WorkflowCancelledByUser, WorkflowRuntimeError
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, WorkflowCancelledEvent
from workflows.handler import WorkflowHandler
from show import errors, fails, streamed, title, until


class Tick(Event):
    n: int = 0
class Go(Event):
    ...

class Ticks(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(ev.get("count", 3)):
            ctx.write_event_to_stream(Tick(n=n))
        return StopEvent(result="done")

class Waits(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> Go | StopEvent:
        await ctx.store.set("here", True)
        await asyncio.sleep(5)
        return Go()
    @step
    async def go(self, ev: Go) -> StopEvent:
        return StopEvent()

title("a handler and its result")
async def result():
    workflow = Ticks(workflow_name="Ticks")
    handler = workflow.run(run_id="mine")
    print(isinstance(handler, WorkflowHandler), handler.run_id, handler.is_done(), handler.get_stop_event())
    print(await handler, await handler, handler.is_done(), repr(handler.get_stop_event()), repr(await handler.stop_event_result()))
    print("Ticks" in str(handler), "mine" in str(handler), "done" in str(handler))
    one, two = workflow.run().run_id, workflow.run().run_id
    print(len(one), one.isalnum(), one != two)
asyncio.run(result())

title("streams: late, broken off, read once")
async def streams():
    handler = Ticks().run()
    await handler
    await streamed(handler)
    try:
        async for event in handler.stream_events():
            print("must not happen")
    except WorkflowRuntimeError as error:
        print("already been consumed" in str(error))
    handler = Ticks().run(count=4)
    async for event in handler.stream_events():
        if event.n == 1:
            break
    await streamed(handler)
    print(await handler)
asyncio.run(streams())

title("run ids")
async def ids():
    workflow = Waits()
    first = workflow.run(run_id="taken")
    errors(lambda: workflow.run(run_id="taken"), "already exists")
    await first.cancel_run()
asyncio.run(ids())

title("cancelled runs")
async def cancelled():
    handler = Waits().run()
    await asyncio.sleep(0.02)
    await handler.cancel_run(timeout=1.0)
    events = await streamed(handler)
    print(isinstance(events[-1], WorkflowCancelledEvent), isinstance(handler.get_stop_event(), WorkflowCancelledEvent))
    error = await fails(handler)
    print(isinstance(error, WorkflowCancelledByUser), await handler.ctx.store.get("here"), handler.ctx.to_dict()["is_running"])
    handler = Ticks().run()
    await handler
    await handler.cancel_run()
    print(await handler)
asyncio.run(cancelled())

title("old members warn")
async def old():
    handler = Ticks().run()
    await handler
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(handler.done(), handler.exception(), handler.cancelled())
    print(sorted({w.category.__name__ for w in caught}))
asyncio.run(old())

title("dropping a handler does not stop its run")
class Marks(Workflow):
    marks: list = []
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0.02)
        self.marks.append(1)
        return StopEvent()
async def dropped():
    workflow = Marks()
    workflow.run()
    print(await until(lambda: workflow.marks))
asyncio.run(dropped())

title("at most so many runs at once")
class Limited(Workflow):
    running = most = 0
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05)
        self.running -= 1
        return StopEvent(result=ev.n)
async def limited():
    for limit in (None, 1, 3):
        workflow = Limited(num_concurrent_runs=limit, timeout=0.2)
        handlers = [workflow.run(n=n) for n in range(6)]
        print(await asyncio.gather(*handlers), workflow.most)
asyncio.run(limited())

title("a context shows its three faces")
class Faces(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        errors(lambda: ctx.to_dict(), "only available from handler code")
        errors(lambda: ctx.stream_events(), "only available from handler code")
        await fails(ctx.running_steps(), "only available from handler code")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(ctx.is_running, [w.category.__name__ for w in caught], ["is_running called from within a step" in str(w.message) for w in caught])
        print(Context.get_step_context() is ctx, ctx.retry_info().retry_number, ctx.retry_info().last_exception)
        return InputRequiredEvent()
    @step
    async def end(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=helper())
def helper():
    return type(Context.get_step_context()).__name__
async def faces():
    workflow = Faces()
    ctx = Context(workflow)
    print(ctx.is_running)
    errors(lambda: ctx.send_event(Go()), "send_event() called before workflow started")
    errors(lambda: ctx.collect_events(Go(), [Go]), "requires a running workflow")
    errors(lambda: ctx.write_event_to_stream(Go()), "requires a running workflow")
    errors(lambda: ctx.retry_info(), "requires a running workflow")
    await fails(ctx.wait_for_event(Go), "requires a running workflow")
    errors(lambda: ctx.stream_events(), "requires a running workflow")
    errors(lambda: Context.get_step_context(), "may only be called from within")
    handler = workflow.run(ctx=ctx)
    async for event in handler.stream_events():
        break
    outside = handler.ctx
    print(outside.is_running, await outside.running_steps())
    errors(lambda: outside.collect_events(Go(), [Go]), "only available from within step functions")
    errors(lambda: outside.write_event_to_stream(Go()), "only available from within step functions")
    errors(lambda: outside.retry_info(), "only available from within step functions")
    await fails(outside.wait_for_event(Go), "only available from within step functions")
    error = errors(lambda: workflow.run(ctx=outside), "already running")
    print(isinstance(error, ContextStateError))
    errors(lambda: outside.send_event(Go(), step="nowhere"), "Step nowhere does not exist")
    errors(lambda: outside.send_event(Go(), step="end"), "Step end does not accept event of type")
    await handler.send_event(HumanResponseEvent(), step="end")
    print(await handler, outside.is_running, await outside.running_steps())
asyncio.run(faces())

title("events sent from outside")
class Outside(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Tick | None:
        return None
    @step
    async def count(self, ctx: Context, ev: Tick) -> StopEvent | None:
        got = ctx.collect_events(ev, [Tick] * 3)
        return StopEvent(result=[t.n for t in got]) if got else None
async def outside():
    handler = Outside().run()
    await asyncio.sleep(0.01)
    handler.ctx.send_event(Tick(n=1))
    await handler.send_event(Tick(n=2), step="count")
    handler.ctx.send_event(Tick(n=3))
    print(await handler)
asyncio.run(outside())

title("start events")
class Starts(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(ev.get("a"), ev.get("b")))
async def starts():
    logging.disable(logging.CRITICAL)
    print(await Starts().run(a=1, b=2), await Starts().run(start_event=StartEvent(a=3)), await Starts().run(start_event=StartEvent(a=4), b=5))
asyncio.run(starts())
try:
    Starts().run()
except Exception as error:
    print("no loop", isinstance(error, RuntimeError))

import asyncio
import contextlib
import io
import os
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StepStateChanged, StopEvent
from workflows.testing import WorkflowTestRunner
from workflows.testing.runner import WorkflowTestResult
from llama_index.utils.workflow import draw_all_possible_flows, draw_most_recent_execution
from show import title


class Item(Event):
    n: int = 0
class Progress(Event):
    n: int = 0

class Flow(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Item:
        ctx.write_event_to_stream(Progress(n=1))
        return Item(n=ev.get("n", 1))
    @step
    async def end(self, ctx: Context, ev: Item) -> StopEvent:
        ctx.write_event_to_stream(Progress(n=2))
        await ctx.store.set("kept", ev.n)
        return StopEvent(result=ev.n * 2)

title("the test runner")
async def runner():
    result = await WorkflowTestRunner(Flow()).run(start_event=StartEvent(n=4))
    print(isinstance(result, WorkflowTestResult), result.result, {t.__name__: n for t, n in result.event_types.items()})
    print([type(e).__name__ for e in result.collected], await result.ctx.store.get("kept"))
    result = await WorkflowTestRunner(Flow()).run(expose_internal=False)
    print(result.result, {t.__name__: n for t, n in result.event_types.items()})
    result = await WorkflowTestRunner(Flow()).run(exclude_events=[StepStateChanged, Progress])
    print({t.__name__: n for t, n in result.event_types.items()}, result.event_types.get(StepStateChanged, 0))
    workflow = Flow()
    ctx = Context(workflow)
    await ctx.store.set("before", 1)
    result = await WorkflowTestRunner(workflow).run(ctx=ctx)
    print(await result.ctx.store.get("before"))
asyncio.run(runner())

title("drawings")
with contextlib.redirect_stdout(io.StringIO()):  # upstream's renderer prints the name of the file
    draw_all_possible_flows(Flow, filename="class.html")
    draw_all_possible_flows(Flow(), filename="instance.html")
for name in ("class.html", "instance.html"):
    with open(name) as file:
        text = file.read()
    print(name, "<html" in text.lower(), all(word in text for word in ("begin", "end", "Item", "StartEvent", "StopEvent")), os.path.getsize(name) > 1000)
async def recent():
    handler = Flow().run(n=3)
    print(await handler)
    with contextlib.redirect_stdout(io.StringIO()):
        draw_most_recent_execution(handler, filename="recent.html")
    with open("recent.html") as file:
        text = file.read()
    print("<html" in text.lower(), "begin" in text, "Item" in text)
asyncio.run(recent())

title("verbose lines begin with a bracket")
async def verbose():
    print(await Flow(verbose=True).run(n=1))
asyncio.run(verbose())

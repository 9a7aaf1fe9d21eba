import asyncio
from typing import Any
import llama_index.core.instrumentation as instrument
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from scripts import script
from show import fails, title


heard: list = []
parents: dict = {}

def name(span_id):
    return None if span_id is None else span_id.split("-")[0]

def given(bound_args):
    """The names and types of arguments, but for the two of a run that are the engine's own."""
    return [f"{name}={type(value).__name__}" for name, value in bound_args.arguments.items() if name not in ("init_state", "tags")]

class Mine(BaseEvent):
    what: str = ""

class Events(BaseEventHandler):
    @classmethod
    def class_name(cls) -> str:
        return "Events"
    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        if isinstance(event, Mine):
            heard.append(("event", event.what))

class Span(BaseSpan):
    ...

class Spans(BaseSpanHandler[Span]):
    @classmethod
    def class_name(cls) -> str:
        return "Spans"
    def new_span(self, id_: str, bound_args: Any, instance: Any = None, parent_span_id: Any = None, tags: Any = None, **kwargs: Any):
        heard.append(("enter", name(id_), name(parent_span_id), *given(bound_args)))
        parents[id_] = parent_span_id
        return Span(id_=id_, parent_id=parent_span_id)
    def prepare_to_exit_span(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **kwargs: Any):
        heard.append(("exit", name(id_), *given(bound_args)))
        return self.open_spans.get(id_)
    def prepare_to_drop_span(self, id_: str, bound_args: Any, instance: Any = None, err: Any = None, **kwargs: Any):
        heard.append(("drop", name(id_), type(err).__name__, *given(bound_args)))
        return self.open_spans.get(id_)

class Broken(BaseEventHandler):
    @classmethod
    def class_name(cls) -> str:
        return "Broken"
    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        heard.append(("broken", type(event).__name__)) if isinstance(event, Mine) else None

root = instrument.get_dispatcher()
root.add_event_handler(Events())
root.add_span_handler(Spans())
dispatcher = instrument.get_dispatcher("tests.programs")

def told(keep=lambda entry: True):
    for entry in heard:
        if keep(entry):
            print("  ", *entry)
    heard.clear()

title("functions, async and sync, failing ones")
@dispatcher.span
def sync(x):
    dispatcher.event(Mine(what=f"sync {x}"))
    return x
@dispatcher.span
async def inner(x):
    dispatcher.event(Mine(what=f"inner {x}"))
    if x > 1:
        raise ValueError("too big")
    return sync(x)
@dispatcher.span
async def outer():
    await inner(1)
    try:
        await inner(2)
    except ValueError:
        pass
    return "done"
print(asyncio.run(outer()))
told()

title("a run is a span, its steps are spans within it")
class Item(Event):
    n: int = 0
class Flow(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Item:
        dispatcher.event(Mine(what="in begin"))
        return Item(n=sync(4))
    @step
    async def end(self, ev: Item) -> StopEvent:
        return StopEvent(result=ev.n)
async def flow():
    print(await Flow().run())
    await asyncio.sleep(0.05)
asyncio.run(flow())
told(lambda entry: entry[0] != "exit" or "sync" not in entry[1])

title("failures")
class Fails(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        raise KeyError("k")
async def failing():
    await fails(Fails().run(), "k")
    await asyncio.sleep(0.05)
asyncio.run(failing())
told(lambda entry: entry[0] == "enter" or (entry[0] == "drop" and "begin" in entry[1]))

title("what the tools of a team are given")
def depth(ctx: Context, harbour: str) -> str:
    """How deep it is."""
    return "eight metres"
async def team():
    looker = FunctionAgent(name="looker", description="Looks.", tools=[depth], llm=script([("depth", {"harbour": "Emden"})], "Eight."))
    print(await AgentWorkflow(agents=[looker]).run("How deep?"))
    await asyncio.sleep(0.05)
asyncio.run(team())
told(lambda entry: entry[0] != "event" and entry[1].endswith((".run", ".call_tool", ".acall")))

title("handlers on a named dispatcher hear their own")
quiet = instrument.get_dispatcher("tests.programs.quiet")
print(quiet.name, instrument.get_dispatcher("tests.programs.quiet") is quiet)
quiet.add_event_handler(Broken())
quiet.event(Mine(what="from quiet"))
dispatcher.event(Mine(what="from the parent"))
told()

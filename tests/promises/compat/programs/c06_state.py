import asyncio
import json
import warnings
from pydantic import BaseModel, ConfigDict, Field
from workflows import Context, Workflow, step
from workflows.context import JsonSerializer, PickleSerializer
from workflows.context.state_store import DictState, InMemoryStateStore, StateStore, UnserializableKeyWarning
from workflows.events import Event, StartEvent, StopEvent
from show import errors, fails, title


class Flow(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

class Inner(BaseModel):
    names: list[str] = []
    table: dict = {}

class State(BaseModel):
    count: int = 0
    inner: Inner = Field(default_factory=Inner)

class More(State):
    extra: str = "none"

class A(Event):
    n: int = 0


async def paths():
    title("paths")
    store = Context(Flow()).store
    print(isinstance(store, StateStore), store.state_type.__name__)
    await store.set("plain", 1)
    await store.set("a.b.c", [10, {"d": 20}])
    print(await store.get("plain"), await store.get("a.b.c.0"), await store.get("a.b.c.1.d"), await store.get("a.b"))
    await store.set("a.b.c.1.d", 21)
    await store.set("a.x", "new")
    print(await store.get("a"))
    print(await store.get("missing", default=None), await store.get("a.b.zzz", default=5), await store.get("a.b.c.9", default="no"))
    await fails(store.get("missing"), "missing")
    await fails(store.get("a.b.zzz"))
    await fails(store.get(".".join(["k"] * 1001)))
    await fails(store.set("", 1))
    await fails(store.set(".".join(["k"] * 1001), 1))
    await store.set("items", {"get": 3})
    await store.set("keys", [4])
    print(await store.get("items.get"), await store.get("keys.0"), await store.get("items"))

async def sharing():
    title("who holds an old value is not disturbed")
    store = InMemoryStateStore(DictState())
    untouched = {"stay": [1]}
    await store.set("untouched", untouched)
    await store.set("tree.left.leaf", 1)
    await store.set("tree.right.leaf", 2)
    old, right = await store.get("tree"), await store.get("tree.right")
    await store.set("tree.left.leaf", 100)
    print(old, await store.get("tree"), await store.get("tree.right") is right, await store.get("untouched") is untouched)
    state = await store.get_state()
    await store.set("later", 1)
    print("later" in state, sorted(state.keys()))

async def whole():
    title("whole states")
    store = InMemoryStateStore(DictState(a=1))
    print((await store.get_state()).a, (await store.get_state())["a"])
    await store.set_state(DictState(b=2))
    print((await store.get_state()).to_dict())
    await store.clear()
    print((await store.get_state()).to_dict())
    typed = InMemoryStateStore(More(count=1, extra="e"))
    await typed.set_state(State(count=5, inner=Inner(names=["x"])))
    print(repr(await typed.get_state()))
    await typed.set_state(More(count=6, extra="whole"))
    print(repr(await typed.get_state()))
    await fails(typed.set_state(Inner()))
    await fails(typed.set_state(DictState(a=1)))
    base = InMemoryStateStore(State(count=3))
    await base.set_state(More(count=4, extra="sub"))
    print(repr(await base.get_state()))
    await typed.set("inner.names", ["a", "b"])
    await typed.set("inner.table.deep.er", 1)
    print(await typed.get("inner.names.1"), await typed.get("inner.table"), await typed.get("count"))
    await fails(typed.get("nowhere"))
    await typed.clear()
    print(repr(await typed.get_state()), typed.state_type.__name__)

async def editing():
    title("edit_state")
    store = InMemoryStateStore(DictState(n=0, l=[1]))
    async with store.edit_state() as state:
        state.n += 1
        state["l"].append(2)
        state.more = "m"
        print("inside, readers see", await store.get("n"), await store.get("l"), await store.get("more", default="nothing"))
    print((await store.get_state()).to_dict())
    try:
        async with store.edit_state() as state:
            state.n = 100
            state["l"].append(3)
            raise KeyError("rolled back")
    except KeyError:
        print(await store.get("n"), await store.get("l"))
    async with store.edit_state() as state:
        await fails(store.set("n", 5), "edit_state")
        await fails(store.clear(), "edit_state")
        await fails(store.set_state(DictState()), "edit_state")
        state.n = 7
    print(await store.get("n"))
    async def add():
        async with store.edit_state() as state:
            before = state.n
            await asyncio.sleep(0)
            state.n = before + 1
    await asyncio.gather(*(add() for _ in range(20)))
    print(await store.get("n"))
    class Shared(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        plain: list = []
        left_out: list = Field(default_factory=list, exclude=True)
    shared = InMemoryStateStore(Shared())
    async with shared.edit_state() as state:
        state.plain.append(1)
        state.left_out.append(1)
    print(repr(await shared.get_state()))

async def saving():
    title("to_dict and back")
    store = InMemoryStateStore(DictState(a=[1, {"b": None}], model=Inner(names=["n"])))
    payload = store.to_dict(JsonSerializer())
    print(sorted(payload), payload["store_type"], payload["state_type"], json.loads(payload["state_data"]["_data"]["a"]))
    back = InMemoryStateStore.from_dict(payload, JsonSerializer())
    print(await back.get("a"), repr(await back.get("model")))
    typed = InMemoryStateStore(More(count=2, extra="t", inner=Inner(table={"k": 1})))
    payload = typed.to_dict(JsonSerializer())
    print(payload["state_type"], repr(await InMemoryStateStore.from_dict(payload, JsonSerializer()).get_state()))
    bad = InMemoryStateStore(DictState(ok=1, bad=object()))
    errors(lambda: bad.to_dict(JsonSerializer()), "bad")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        payload = InMemoryStateStore(DictState(ok=1, memory=object())).to_dict(JsonSerializer())
    print(sorted(payload["state_data"]["_data"]), [issubclass(w.category, UnserializableKeyWarning) for w in caught])
    pickled = InMemoryStateStore(DictState(some={1, 2})).to_dict(PickleSerializer())
    print(await InMemoryStateStore.from_dict(pickled, PickleSerializer()).get("some"))

for part in (paths, sharing, whole, editing, saving):
    asyncio.run(part())

title("typed by the steps, along one line of inheritance")
class Typed(Workflow):
    @step
    async def start(self, ctx: Context[State], ev: StartEvent) -> A:
        async with ctx.store.edit_state() as state:
            state.count += 1
            state.inner.names.append("start")
        return A()
    @step
    async def more(self, ctx: Context[More], ev: A) -> StopEvent:
        state = await ctx.store.get_state()
        print(type(state).__name__, repr(state))
        async with ctx.store.edit_state() as state:
            state.extra = "more"
        await ctx.store.set_state(State(count=50))
        return StopEvent(result=await ctx.store.get_state())
class Child(Typed):
    @step
    async def more(self, ctx: Context[More], ev: A) -> StopEvent:
        return StopEvent(result=(await ctx.store.get("count"), await ctx.store.get("extra")))
class Apart(Workflow):
    @step
    async def start(self, ctx: Context[State], ev: StartEvent) -> A:
        return A()
    @step
    async def end(self, ctx: Context[Inner], ev: A) -> StopEvent:
        return StopEvent()
class NeedsArguments(BaseModel):
    required: int
async def run(workflow, **kwargs):
    return await workflow.run(**kwargs)
async def typed():
    print(repr(await run(Typed())))
    print(await run(Child()))
    await fails(run(Apart()), "compatible inheritance")
    await fails(InMemoryStateStore(NeedsArguments(required=1)).clear(), "State must have defaults for all fields")
asyncio.run(typed())

title("staged before the run, kept for the next one")
class Counts(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        runs = await ctx.store.get("runs", default=0) + 1
        await ctx.store.set("runs", runs)
        return StopEvent(result=(runs, await ctx.store.get("staged", default=None)))
async def staged():
    workflow = Counts()
    ctx = Context(workflow)
    await ctx.store.set("staged", "before")
    handler = workflow.run(ctx=ctx)
    print(await handler, await handler.ctx.store.get("runs"))
    print(await workflow.run(ctx=handler.ctx), await workflow.run(ctx=ctx), await workflow.run())
asyncio.run(staged())

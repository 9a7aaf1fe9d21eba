import asyncio
import json
import pickle
from pydantic import BaseModel
from workflows import Context, Workflow, catch_error, step
from workflows.context import JsonSerializer, PickleSerializer
from workflows.context.serializers import BaseSerializer, JsonPickleSerializer
from workflows.errors import ContextSerdeError
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepFailedEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from show import errors, fails, title, until


class Item(Event):
    n: int = 0
class Other(Event):
    n: int = 0
class Done(Event):
    n: int = 0
class Item2(Event):
    n: int = 0
class Note(BaseModel):
    text: str = ""

def through_json(handler, **kwargs):
    return json.loads(json.dumps(handler.ctx.to_dict(**kwargs)))

async def resume(workflow, payload, *answers, serializer=None):
    ctx = Context.from_dict(workflow, payload, serializer=serializer)
    handler = workflow.run(ctx=ctx)
    for answer in answers:
        handler.ctx.send_event(answer)
    return await handler

title("waiting for a person, resumed elsewhere")
class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("topic", ev.topic)
        await ctx.store.set("note", Note(text=ev.topic))
        got = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="ok?"), requirements={"user": "ann"})
        return StopEvent(result=(got.response, await ctx.store.get("topic"), (await ctx.store.get("note")).text))
async def asking():
    handler = Ask().run(topic="tides")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    payload = through_json(handler)
    print(payload["version"], payload["is_running"], sorted(payload["state"]), list(payload["workers"]))
    await handler.cancel_run()
    print(handler.ctx.to_dict()["is_running"])
    for snapshot in (payload, through_json(handler)):
        print(await resume(Ask(), snapshot, HumanResponseEvent(user="ann", response="yes")))
    ctx = Context.from_dict(Ask(), payload)
    print(ctx.is_running, await ctx.store.get("topic"))
asyncio.run(asking())

title("a returned question, answered by a step")
class ByStep(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        await ctx.store.set("n", 5)
        return InputRequiredEvent(prefix="go?")
    @step
    async def answer(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=(ev.response, await ctx.store.get("n")))
async def by_step():
    handler = ByStep().run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    payload = through_json(handler, serializer=JsonSerializer())
    await handler.cancel_run()
    print(await resume(ByStep(), payload, HumanResponseEvent(response="go"), serializer=JsonSerializer()))
asyncio.run(by_step())

title("queued, in progress, half collected")
class Queue(Workflow):
    gate: bool = False
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Item | None:
        for n in range(5):
            ctx.send_event(Item(n=n))
    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Item) -> Done:
        if ev.n == 2:
            await until(lambda: self.gate)
        return Done(n=ev.n)
    @step(num_workers=1)
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        got = ctx.collect_events(ev, [Done] * 5)
        return StopEvent(result=sorted(d.n for d in got)) if got else None
async def queued():
    handler = Queue(timeout=10).run()
    await asyncio.sleep(0.1)
    payload = through_json(handler)
    print({name: (len(w["queue"]), len(w["in_progress"]), {k: len(v) for k, v in w["collected_events"].items()})
           for name, w in sorted(payload["workers"].items())})
    await handler.cancel_run()
    workflow = Queue(timeout=10)
    workflow.gate = True
    print(await resume(workflow, payload))
asyncio.run(queued())

title("open streams, nested, and slots half filled")
class Streams(Workflow):
    gate: bool = False
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=1), Item(n=2)]
    @step
    async def inner(self, ev: Item) -> list[Other]:
        return [Other(n=10 * ev.n + k) for k in range(2)]
    @step
    async def work(self, ev: Other) -> Done:
        if ev.n == 21:
            await until(lambda: self.gate)
        return Done(n=ev.n)
    @step
    async def inner_join(self, evs: list[Done]) -> Item2:
        return Item2(n=sum(e.n for e in evs))
    @step
    async def outer_join(self, evs: list[Item2]) -> StopEvent:
        return StopEvent(result=[e.n for e in evs])
class Slots(Workflow):
    gate: bool = False
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Item | Other | None:
        ctx.send_event(Item(n=1))
        await until(lambda: self.gate)
        ctx.send_event(Other(n=2))
    @step
    async def pair(self, a: Item, b: Other) -> StopEvent:
        return StopEvent(result=(a.n, b.n))
async def streams():
    handler = Streams(timeout=10).run()
    await asyncio.sleep(0.1)
    payload = through_json(handler)
    print(len(payload["streams"]) > 0)
    await handler.cancel_run()
    workflow = Streams(timeout=10)
    workflow.gate = True
    print(await resume(workflow, payload))
    handler = Slots(timeout=10).run()
    await asyncio.sleep(0.1)
    payload = through_json(handler)
    print(len(payload["workers"]["pair"]["static_collect_events"]))
    await handler.cancel_run()
    workflow = Slots(timeout=10)
    workflow.gate = True
    print(await resume(workflow, payload))

asyncio.run(streams())

title("a delayed retry keeps its count")
class Retries(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(0.3), stop=stop_after_attempt(3)))
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        info = ctx.retry_info()
        if info.retry_number == 0:
            raise ValueError("first")
        return StopEvent(result=(info.retry_number, repr(info.last_exception), info.elapsed_seconds > 0.25))
async def retries():
    handler = Retries(timeout=5).run()
    await asyncio.sleep(0.1)
    payload = through_json(handler)
    attempt = payload["workers"]["start"]["queue"][0]
    print(attempt["attempts"], attempt["last_exception"], attempt["not_before"] > attempt["last_failed_at"])
    await handler.cancel_run()
    print(await resume(Retries(timeout=5), payload))
asyncio.run(retries())

title("recovery counts survive")
class Recovers(Workflow):
    gate: bool = False
    @step
    async def start(self, ev: StartEvent | Item) -> StopEvent:
        if isinstance(ev, Item):
            await until(lambda: self.gate)
        raise ValueError("always")
    @catch_error(max_recoveries=1)
    async def recover(self, ev: StepFailedEvent) -> Item:
        return Item()
async def recovers():
    handler = Recovers(timeout=5).run()
    await asyncio.sleep(0.1)
    payload = through_json(handler)
    await handler.cancel_run()
    workflow = Recovers(timeout=5)
    workflow.gate = True
    await fails(resume(workflow, payload), "always")
asyncio.run(recovers())

title("a start event is not needed to go on, and is ignored")
class NeedsTopic(StartEvent):
    topic: str
class Needs(Workflow):
    @step
    async def ask(self, ctx: Context, ev: NeedsTopic) -> InputRequiredEvent:
        await ctx.store.set("topic", ev.topic)
        return InputRequiredEvent()
    @step
    async def answer(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=await ctx.store.get("topic"))
async def needs():
    handler = Needs().run(topic="kept")
    async for event in handler.stream_events():
        break
    payload = through_json(handler)
    await handler.cancel_run()
    workflow = Needs()
    again = workflow.run(ctx=Context.from_dict(workflow, payload), topic="dropped")
    again.ctx.send_event(HumanResponseEvent())
    print(await again)
    print(through_json(again)["is_running"])
asyncio.run(needs())

title("finished contexts and contexts before a run")
class Count(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        n = await ctx.store.get("n", default=0) + 1
        await ctx.store.set("n", n)
        return StopEvent(result=n)
async def finished():
    handler = Count().run()
    print(await handler)
    payload = through_json(handler)
    print(payload["is_running"])
    print(await resume(Count(), payload))
    ctx = Context(Count())
    await ctx.store.set("n", 40)
    payload = ctx.to_dict()
    print(await resume(Count(), payload), sorted(handler.ctx.to_dict(include_state=False)["state"]))
asyncio.run(finished())

title("old and foreign payloads")
START = JsonSerializer().serialize(StartEvent())
async def payloads():
    state = {"state_type": "DictState", "state_module": "workflows.context.state_store", "state_data": {"_data": {"n": "7"}}}
    v0 = {"state": state, "streaming_queue": "[]", "queues": {"start": json.dumps([START])}, "event_buffers": {}, "in_progress": {},
          "accepted_events": [], "broker_log": [], "is_running": True, "waiting_ids": []}
    print(await resume(Count(), v0))
    v0 = {**v0, "queues": {}, "in_progress": {"start": [START]}}
    print(await resume(Count(), v0))
    v1 = {"version": 1, "state": {**state, "store_type": "in_memory"}, "is_running": True,
          "workers": {"start": {"queue": [{"event": START, "attempts": 0, "first_attempt_at": None}], "in_progress": [], "collected_events": {}, "collected_waiters": []}}}
    print(await resume(Count(), v1))
    v1["workers"]["start"] = {"queue": [], "in_progress": [START], "collected_events": {}, "collected_waiters": []}
    print(await resume(Count(), v1))
    v2 = {**v1, "version": 2, "workers": {"start": {"queue": [], "in_progress": [{"event": START, "attempts": 0}]}, "gone": {"queue": []}}}
    print(await resume(Count(), v2))
    print(await resume(Count(), {"version": 2, "is_running": False, "state": state, "workers": {}}))
    errors(lambda: Context.from_dict(Count(), {"version": 99}), "newer version")
    errors(lambda: Context.from_dict(Count(), {"version": "x"}))
    errors(lambda: Context.from_dict(Count(), {"version": 2, "workers": {"start": 5}}))
    errors(lambda: Context.from_dict(Count(), {"version": 2, "workers": {"start": {"queue": [{"event": "not json"}]}}}))
    errors(lambda: Context.from_dict(Count(), {"version": 2, "state": {"store_type": "postgres"}, "workers": {}}).store, "durable state store")
    print(issubclass(ContextSerdeError, Exception))
asyncio.run(payloads())

title("serializers")
class Plain:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n == other.n
class Component:
    def __init__(self, n):
        self.n = n
    @classmethod
    def class_name(cls):
        return "Component"
    def to_dict(self):
        return {"n": self.n}
    @classmethod
    def from_dict(cls, data):
        return cls(data["n"])
json_serializer, pickle_serializer = JsonSerializer(), PickleSerializer()
print(JsonPickleSerializer is PickleSerializer, isinstance(pickle_serializer, JsonSerializer), isinstance(json_serializer, BaseSerializer))
for value in (1, "text", [1, {"a": None}], Note(text="n"), {"deep": [Note(text="m"), Item(n=3)]}):
    print(json_serializer.deserialize(json_serializer.serialize(value)) == value, pickle_serializer.deserialize(pickle_serializer.serialize(value)) == value)
print(json.loads(json_serializer.serialize(Note(text="n"))))
print(json_serializer.deserialize(json_serializer.serialize(Component(5))).n, json.loads(json_serializer.serialize(Component(5)))["__is_component"])
errors(lambda: json_serializer.serialize(Plain(1)), "Plain")
print(pickle_serializer.deserialize(pickle_serializer.serialize(Plain(4))) == Plain(4))
limited = JsonSerializer(allowed_types=[Note])
print(limited.deserialize(json_serializer.serialize(Note(text="in"))))
try:
    limited.deserialize(json_serializer.serialize(Item(n=1)))
except ValueError as error:
    print("refused", "Item" in str(error))

title("values that only pickle can carry")
class Pickled(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        await ctx.store.set("plain", Plain(8))
        return InputRequiredEvent()
    @step
    async def answer(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=(await ctx.store.get("plain")).n)
async def pickled():
    handler = Pickled().run()
    async for event in handler.stream_events():
        break
    errors(lambda: handler.ctx.to_dict(), "plain")
    payload = through_json(handler, serializer=PickleSerializer())
    await handler.cancel_run()
    print(await resume(Pickled(), payload, HumanResponseEvent(), serializer=PickleSerializer()))
asyncio.run(pickled())
print(pickle.loads(pickle.dumps(Item(n=4))).n)

import asyncio
from typing import Any
from pydantic import BaseModel, PrivateAttr, ValidationError
from workflows import Workflow, step
from workflows.context import JsonSerializer
from workflows.events import (
    Event, EventType, HumanResponseEvent, InputRequiredEvent, InternalDispatchEvent, StartEvent, StepFailedEvent, StepState,
    StepStateChanged, StopEvent, UnhandledEvent, WorkflowCancelledEvent, WorkflowFailedEvent, WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)
from show import errors, title


class Point(BaseModel):
    x: int
    y: int = 0

class Typed(Event):
    number: int
    text: str = "none"
    _secret: str = PrivateAttr(default="hidden")
    _count: int = PrivateAttr(default=0)

class Nested(Event):
    inner: Typed
    point: Point
    many: list[Typed] = []

title("three kinds of data")
event = Typed(number="3", _secret="told", other=[1, 2], more={"a": 1})
print(event.number, event.text, event._secret, event._count, event.other, event.more)
event.text = "new"
event.fresh = 9
event._count = 4
print(event.text, event.fresh, event._count, sorted(event.keys()))
errors(lambda: event.absent, "Typed", "absent")
errors(lambda: Typed(number="x"))
try:
    Typed()
except ValidationError as error:
    print(error.error_count(), error.errors()[0]["loc"])

title("mapping access sees dynamic data only")
free = Event(a=1, b="two", c=[3])
print(free["a"], free.get("b"), free.get("missing"), free.get("missing", 5), "c" in free, "z" in free, len(free))
print(list(free), list(free.keys()), list(free.values()), list(free.items()))
free["d"] = 4
free["a"] = 10
print(free.d, free.a, free.to_dict())
free.to_dict()["live"] = True
print(free.live, bool(Event()), bool(free), len(Event()))
errors(lambda: free["zzz"])
print(event.get("number"), "number" in event, "other" in event, len(event))

title("dumps and back")
print(event.model_dump())
print(free.model_dump(), Event().model_dump(), Typed(number=1).model_dump())
back = Typed.model_validate(event.model_dump())
print(back.number, back.text, back.other, back.fresh, back._secret)
print(Typed(**event.model_dump()).other)
print(Typed.model_validate_json(event.model_dump_json()).more)
nested = Nested(inner=Typed(number=1, dyn="d"), point=Point(x=1), many=[Typed(number=2), Typed(number=3, k=0)])
again = Nested.model_validate_json(nested.model_dump_json())
print(again.inner.number, again.inner.dyn, again.point, [e.number for e in again.many], again.many[1].k)
serializer = JsonSerializer()
free2 = Event(item=Typed(number=5, deep={"k": [1, None]}), point=Point(x=7))
again = serializer.deserialize(serializer.serialize(free2))
print(type(again).__name__, sorted(again.keys()))
once_more = serializer.deserialize(serializer.serialize(Typed(number=8, extra="e")))
print(type(once_more).__name__, once_more.number, once_more.extra)
print(serializer.deserialize(serializer.serialize({"e": Typed(number=1), "l": [Point(x=1), 2, None]})))

title("stop events")
for stop in (StopEvent(), StopEvent("word"), StopEvent(result={"a": 1}), StopEvent(result=0), StopEvent(result=1, k=2)):
    print(str(stop), "|", repr(stop), "|", stop.result, stop.model_dump())

class Report(StopEvent):
    pages: int = 1

class Computed(StopEvent):
    n: int
    def _get_result(self) -> Any:
        return self.n * 2

print(repr(Report(pages=3)), str(Report()), Report().result, Computed(n=4).result, Computed(n=4).model_dump())
print(StopEvent.model_validate(StopEvent(result=[1]).model_dump()).result)
print(repr(Event(a=1)), repr(Typed(number=1)), repr(StartEvent()), repr(InputRequiredEvent(prefix="p")))

class Ends(Workflow):
    @step
    async def end(self, ev: StartEvent) -> Report:
        return Report(pages=ev.pages)

class EndsPlain(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.value)

class EndsComputed(Workflow):
    @step
    async def end(self, ev: StartEvent) -> Computed:
        return Computed(n=ev.n)

async def endings():
    print(repr(await Ends().run(pages=7)))
    print(repr(await EndsPlain().run(value=[1, 2])), repr(await EndsPlain().run(value=None)))
    print(repr(await EndsComputed().run(n=5)))
asyncio.run(endings())

title("an event is shared, not copied")
class Shared(Event):
    marks: list = []

class Sharing(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Shared:
        self.sent = Shared()
        return self.sent
    @step
    async def end(self, ev: Shared) -> StopEvent:
        ev.marks.append("end")
        ev.later = "written"
        return StopEvent(result=(ev is self.sent, self.sent.marks, self.sent.later))
async def sharing():
    print(await Sharing().run())
asyncio.run(sharing())

title("the engine's events")
print(StepState.PREPARING.value, StepState.RUNNING.value, StepState.NOT_RUNNING.value)
changed = StepStateChanged(name="s", step_state=StepState.RUNNING, worker_id="0", input_event_name="A")
print(changed.output_event_name, isinstance(changed, InternalDispatchEvent), isinstance(WorkflowIdleEvent(), InternalDispatchEvent))
unhandled = UnhandledEvent(event_type="A", qualified_name="m.A", step_name=None, idle=False)
print(unhandled.event_type, unhandled.idle, isinstance(unhandled, InternalDispatchEvent))
print([isinstance(e, StopEvent) for e in (WorkflowTimedOutEvent(timeout=1.0, active_steps=["a"]), WorkflowCancelledEvent())])
print(issubclass(HumanResponseEvent, Event), issubclass(InputRequiredEvent, StopEvent), EventType == type[Event])

title("exceptions in events")
from datetime import datetime, timezone
when = datetime(2026, 1, 2, tzinfo=timezone.utc)
failed = StepFailedEvent(step_name="s", input_event=Typed(number=1), exception=ValueError("bad value"), attempts=2,
                         elapsed_seconds=0.5, failed_at=when)
again = StepFailedEvent.model_validate_json(failed.model_dump_json())
print(again.step_name, repr(again.exception), again.attempts, again.elapsed_seconds, again.failed_at == when)
class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
broken = WorkflowFailedEvent(step_name="s", exception=Odd(1, 2))
again = WorkflowFailedEvent.model_validate_json(broken.model_dump_json())
print(type(again.exception).__name__, str(again.exception), again.attempts, again.elapsed_seconds)
evil = broken.model_dump(mode="json")
evil["exception"] = {"exception_type": "builtins.eval", "exception_message": "print('called')"}
try:
    again = WorkflowFailedEvent.model_validate(evil)
    print(isinstance(again.exception, Exception), str(again.exception))
except Exception as error:
    print("refused", isinstance(error, ValueError))

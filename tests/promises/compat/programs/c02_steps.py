from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Optional, Union
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from workflows.errors import WorkflowRuntimeError, WorkflowValidationError
from show import errors, fails, streamed, title

variable = contextvars.ContextVar("variable", default="unset")
main_thread = threading.get_ident()

class A(Event):
    n: int = 0
class SubA(A):
    ...
class B(Event):
    n: int = 0
class C(Event):
    n: int = 0

title("async and sync steps, unions of every spelling, free functions")
class Mixed(Workflow):
    @step
    def first(self, ev: StartEvent) -> A:
        return A(n=int(threading.get_ident() != main_thread) + 10 * int(variable.get() == "set"))
    @step()
    async def second(self, ev: Union[A, B], context: Context) -> Optional[Union[B, C]]:
        assert threading.get_ident() == main_thread
        await context.store.set(type(ev).__name__, ev.n)
        return B(n=ev.n + 1) if isinstance(ev, A) else C(n=ev.n + 1)

@step(workflow=Mixed, num_workers=2)
def last(ev: C) -> StopEvent:
    return StopEvent(result=ev.n)

async def mixed():
    variable.set("set")
    handler = Mixed(timeout=5).run()
    print(await handler, await handler.ctx.store.get("A"), await handler.ctx.store.get("B"))
asyncio.run(mixed())

title("a decorated function is still itself")
print(last(C(n=4)).result, last._step_config.num_workers, Mixed.first._step_config.num_workers)
print(sorted(t.__name__ for t in Mixed.second._step_config.accepted_events))

title("add_step, and what it refuses")
class Later(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> A | StopEvent:
        return A(n=1) if ev.go else StopEvent(result="short")
errors(lambda: Later.add_step(lambda ev: None), "missing the `@step` decorator")
@step(workflow=Later)
async def ending(ev: A) -> StopEvent:
    return StopEvent(result=f"long {ev.n}")
async def later():
    print(await Later().run(go=True), await Later().run(go=False))
asyncio.run(later())
errors(lambda: step(workflow=Later)(ending), "already part of this workflow")

title("steps are inherited, overridden, dropped")
class Parent(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A | B:
        return A(n=1)
    @step
    async def end_a(self, ev: A) -> StopEvent:
        return StopEvent(result="parent")
    @step
    async def end_b(self, ev: B) -> StopEvent:
        return StopEvent(result="parent b")
class Child(Parent):
    @step
    async def end_a(self, ev: A) -> StopEvent:
        return StopEvent(result="child")
class Dropped(Parent):
    async def end_a(self, ev: A) -> StopEvent:
        return StopEvent(result="never")
async def inherit():
    print(await Parent().run(), await Child().run())
    await fails(_start(Dropped()), "produced but never consumed", "A")
async def _start(workflow):
    return await workflow.run()
asyncio.run(inherit())

title("exact type, or subclasses on request")
class Exact(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A | SubA:
        return SubA(n=1)
    @step
    async def exact(self, ev: A) -> StopEvent:
        return StopEvent(result="exact")
    @step(accept_event_subclasses=True)
    async def wide(self, ev: A) -> StopEvent:
        return StopEvent(result=f"wide {type(ev).__name__}")
async def exact():
    print(await Exact(timeout=2).run())
asyncio.run(exact())

title("an undeclared event is routed")
class Undeclared(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A:
        return B(n=5)
    @step
    async def a(self, ev: A) -> B:
        return B()
    @step
    async def b(self, ev: B) -> StopEvent:
        return StopEvent(result=ev.n)
async def undeclared():
    print(await Undeclared().run())
asyncio.run(undeclared())

title("broadcast to every step that accepts")
class Broadcast(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A:
        return A(n=2)
    @step
    async def one(self, ev: A) -> B:
        return B(n=ev.n + 1)
    @step
    async def two(self, ev: A) -> B:
        return B(n=ev.n + 2)
    @step
    async def end(self, ctx: Context, ev: B) -> StopEvent | None:
        both = ctx.collect_events(ev, [B, B])
        return StopEvent(result=sorted(b.n for b in both)) if both else None
async def broadcast():
    print(await Broadcast().run())
asyncio.run(broadcast())

title("num_workers bounds what runs at once, in order of arrival")
class Workers(Workflow):
    running = most = 0
    order: list = []
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | B | None:
        for n in range(6):
            ctx.send_event(A(n=n))
            ctx.send_event(B(n=n))
    @step(num_workers=2)
    async def two(self, ev: A) -> C:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return C()
    @step(num_workers=1)
    async def one(self, ev: B) -> C:
        self.order.append(ev.n)
        await asyncio.sleep(0)
        return C()
    @step
    async def end(self, ctx: Context, ev: C) -> StopEvent | None:
        if ctx.collect_events(ev, [C] * 12):
            return StopEvent(result=(self.most, self.order))
async def workers():
    print(await Workers(timeout=5).run())
asyncio.run(workers())

title("targeted sends")
class Targeted(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A | None:
        errors(lambda: ctx.send_event(A(), step="nowhere"), "Step nowhere does not exist")
        errors(lambda: ctx.send_event(B(), step="two"), "Step two does not accept event of type")
        print(ctx.send_event(A(n=7), step="two"))
    @step
    async def one(self, ev: A) -> StopEvent:
        return StopEvent(result="one")
    @step
    async def two(self, ev: A) -> StopEvent:
        return StopEvent(result=f"two {ev.n}")
async def targeted():
    print(await Targeted().run())
asyncio.run(targeted())

title("what a step may not return")
class Wrong(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        return ev.value
class WrongList(Workflow):
    @step
    async def start(self, ev: StartEvent) -> list[A]:
        return ev.value
    @step
    async def end(self, evs: list[A]) -> StopEvent:
        return StopEvent(result=len(evs))
async def wrong():
    await fails(_run(Wrong(), value="text"), "Step function start returned str instead of an Event instance")
    await fails(_run(Wrong(), value=[StopEvent()]), "start")
    await fails(_run(WrongList(), value=[A(), "text"]))
    await fails(_run(WrongList(), value=A()), "bare")
async def _run(workflow, **kwargs):
    return await workflow.run(**kwargs)
asyncio.run(wrong())

title("a StopEvent sent by hand does not stop")
class ByHand(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> A:
        ctx.send_event(StopEvent(result="by hand"))
        return A()
    @step
    async def end(self, ev: A) -> StopEvent:
        await asyncio.sleep(0.02)
        return StopEvent(result="in order")
async def by_hand():
    handler = ByHand().run()
    await streamed(handler)
    print(await handler)
asyncio.run(by_hand())

title("a stop cancels what runs beside it")
class Stops(Workflow):
    @step
    async def slow(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            print("slow was cancelled")
            raise
        return StopEvent(result="slow")
    @step
    async def quick(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(B(n=1))
        ctx.write_event_to_stream(None)
        await asyncio.sleep(0.02)
        return StopEvent(result="quick")
async def stops():
    handler = Stops(timeout=2).run()
    await streamed(handler)
    print(await handler)
asyncio.run(stops())

title("signatures that are refused")
def refused(make, *words):
    errors(make, *words)
def no_event():
    class W(Workflow):
        @step
        async def s(self, x: int) -> StopEvent: ...
def no_return():
    class W(Workflow):
        @step
        async def s(self, ev: StartEvent): ...
def two_lists():
    class W(Workflow):
        @step
        async def s(self, a: list[A], b: list[B]) -> StopEvent: ...
def list_and_event():
    class W(Workflow):
        @step
        async def s(self, a: list[A], b: B) -> StopEvent: ...
def union_in_join():
    class W(Workflow):
        @step
        async def s(self, a: A | B, b: C) -> StopEvent: ...
def unknown_name():
    class W(Workflow):
        @step
        async def s(self, ev: NotDefinedAnywhere) -> StopEvent: ...
def workers_zero():
    class W(Workflow):
        @step(num_workers=0)
        async def s(self, ev: StartEvent) -> StopEvent: ...
def unbound():
    @step
    async def s(ev: StartEvent) -> StopEvent: ...
def generator():
    class W(Workflow):
        @step
        async def s(self, ev: StartEvent) -> StopEvent:
            yield StopEvent()
refused(no_event, "at least one parameter annotated as type Event")
refused(no_return, "Return types of workflows step functions must be annotated with their type")
refused(two_lists, "at most one list[E]")
refused(list_and_event, "cannot be combined with other")
refused(union_in_join, "single event type")
refused(unknown_name, "NotDefinedAnywhere")
refused(workers_zero, "num_workers must be an integer greater than 0")
refused(unbound)
refused(generator, "Async-iterator fan-out")
print(issubclass(WorkflowValidationError, Exception), issubclass(WorkflowRuntimeError, Exception))

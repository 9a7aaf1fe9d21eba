"""The programs that are crashed: each goes on in another way, and gives the same result whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from batonflow.durable.stores.memory import MemoryStore
from batonflow.workflow_core import (
    Collect,
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowHandler,
    catch_error,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from tests.promises.crash.world import Ledger


@dataclass(frozen=True)
class Program:
    """A workflow with the one who uses it.

    Attributes:
        name: For messages.
        make: Builds the workflow.
        drive: Uses it.
        start: Arguments of ``run``.
        expected: The result.
        asks_before_repeating: Whether a person is asked before anything is done again.
        real_time: Whether it works with other processes, for which no clock can be turned forward.
    """

    name: str
    make: Callable[[MemoryStore, Ledger], Workflow]
    drive: Callable[[Workflow, WorkflowHandler], Awaitable[Any]]
    start: dict[str, Any]
    expected: Any
    asks_before_repeating: bool = False
    real_time: bool = False


async def awaited(_: Workflow, handler: WorkflowHandler) -> Any:
    return await handler


class Link(Event):
    n: int
    seen: list[int]


class Shown(Event):
    n: int


class Noted(Event):
    effect: str


class Recorded(Workflow):
    """Notes its effects outside."""

    def __init__(self, store: MemoryStore, ledger: Ledger, **options: Any) -> None:
        super().__init__(store=store, timeout=None, disable_validation=True, **options)
        self.ledger = ledger

    def note(self, ctx: Context[Any], effect: str) -> None:
        """Do something outside, and say so in the stream: where the record has that, it must not be done again."""
        self.ledger.note(effect, ctx.run_id)
        ctx.write_event_to_stream(Noted(effect=effect))


# --- a chain ----------------------------------------------------------------------------------------------------------


class Chain(Recorded):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Link:
        await ctx.store.set("seen", [])
        return Link(n=0, seen=[])

    @step
    async def go(self, ctx: Context, ev: Link) -> Link | StopEvent:
        seen = await ctx.store.get("seen")
        seen.append(ev.n)  # in place, without set
        await asyncio.sleep(0)
        paid = await ctx.once(f"pay {ev.n}", self.pay, ctx, ev.n)
        await ctx.store.set(f"paid.{ev.n}", paid)
        # After the last boundary: what comes before one is done again by an attempt that begins again.
        self.note(ctx, f"link {ev.n}")
        if ev.n == 4:
            return StopEvent(result=[await ctx.store.get("seen"), await ctx.store.get("paid"), [*ev.seen, ev.n]])
        return Link(n=ev.n + 1, seen=[*ev.seen, ev.n])

    async def pay(self, ctx: Context, n: int) -> int:
        await asyncio.sleep(0)
        self.note(ctx, f"paid {n}")
        return n * 10


# --- fan-out and fan-in -----------------------------------------------------------------------------------------------


class Part(Event):
    n: int


class Done(Event):
    n: int


class Half(Event):
    total: int


class Sent(Event):
    n: int


class Counted(Event):
    n: int


class Other(Event):
    total: int


class Fans(Recorded):
    """A list fan-out with its collection, events sent one by one with collect_events, and a join of both."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Part]:
        for n in range(4):
            ctx.send_event(Sent(n=n))
            await asyncio.sleep(0)
        return [Part(n=n) for n in range(5)]

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Part) -> Done | None:
        self.note(ctx, f"part {ev.n}")
        await asyncio.sleep(0.01 * (5 - ev.n))
        return Done(n=ev.n) if ev.n != 3 else None

    @step
    async def gather(self, ctx: Context, ev: Annotated[list[Done], Collect()]) -> Half:
        self.note(ctx, "gather")
        return Half(total=sum(one.n for one in ev))

    @step(num_workers=3)
    async def count(self, ctx: Context, ev: Sent) -> Counted:
        await asyncio.sleep(0.01)
        return Counted(n=ev.n)

    @step
    async def add(self, ctx: Context, ev: Counted) -> Other | None:
        found = ctx.collect_events(ev, [Counted] * 4)
        await asyncio.sleep(0)
        if found is None:
            return None
        return Other(total=sum(one.n for one in found))

    @step
    async def join(self, ctx: Context, half: Half, other: Other) -> StopEvent:
        self.note(ctx, "join")
        return StopEvent(result=[half.total, other.total])


# --- people -----------------------------------------------------------------------------------------------------------


class Ask(InputRequiredEvent):
    who: str


class Answer(HumanResponseEvent):
    who: str
    text: str


class Asked(Event):
    who: str


class Heard(Event):
    who: str
    text: str


class Knock(Event):
    who: str


class People(Recorded):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> None:
        for who in ("ann", "bob"):
            ctx.send_event(Asked(who=who))

    @step
    async def wait(self, ctx: Context, ev: Asked) -> Heard:
        await ctx.store.set(f"asked.{ev.who}", True)
        ctx.send_event(Knock(who=ev.who))
        answer = await ctx.wait_for_event(
            Answer, waiter_event=Ask(who=ev.who), waiter_id=ev.who, requirements={"who": ev.who}
        )
        # The step begins again after a restore, and this is not its last wait.
        await ctx.once("hear", self.note, ctx, f"heard {ev.who}")
        again = await ctx.wait_for_event(Answer, waiter_event=Ask(who=f"{ev.who}!"), requirements={"who": f"{ev.who}!"})
        return Heard(who=ev.who, text=f"{answer.text} {again.text}")

    @step
    async def knock(self, ctx: Context, ev: Knock) -> None:
        self.note(ctx, f"knock {ev.who}")

    @step
    async def end(self, ctx: Context, ev: Heard) -> StopEvent | None:
        found = ctx.collect_events(ev, [Heard, Heard])
        if found is None:
            return None
        asked = sorted(await ctx.store.get("asked"))
        return StopEvent(result=[asked, sorted(f"{one.who}: {one.text}" for one in found)])


async def answered(workflow: Workflow, handler: WorkflowHandler) -> Any:
    async for request in handler.inputs():
        request.respond(who=request.event.who, text=f"yes {request.event.who}")
    return await handler


# --- retries with timers ----------------------------------------------------------------------------------------------


class Try(Event):
    n: int


class Tried(Event):
    n: int
    retries: int


class Retries(Recorded):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        for n in range(3):
            ctx.send_event(Try(n=n))

    @step(retry_policy=retry_policy(wait=wait_fixed(30), stop=stop_after_attempt(3)))
    async def attempt(self, ctx: Context, ev: Try) -> Tried:
        retries = ctx.retry_info().retry_number
        self.note(ctx, f"attempt {ev.n} {retries}")
        await ctx.store.set(f"tries.{ev.n}", retries)
        await asyncio.sleep(0)
        if retries < ev.n:
            raise OSError(f"no {ev.n}")
        if ev.n == 2:
            raise OSError("never")
        return Tried(n=ev.n, retries=retries)

    @catch_error(for_steps=["attempt"])
    async def rescue(self, ctx: Context, ev: StepFailedEvent) -> Tried:
        await asyncio.sleep(0)
        self.note(ctx, "rescue")
        return Tried(n=100, retries=ev.attempts)

    @step
    async def end(self, ctx: Context, ev: Tried) -> StopEvent | None:
        found = ctx.collect_events(ev, [Tried] * 3)
        if found is None:
            return None
        return StopEvent(result=[sorted((one.n, one.retries) for one in found), await ctx.store.get("tries")])


# --- effects that rest on a step which is still at work ---------------------------------------------------------------


class Task(Event):
    n: int


class Held(Recorded):
    """A step sends work out and goes on for long: what others do with it meanwhile rests on what it sent."""

    seconds = 8.0  # longer than an effect waits for its intent to be written

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        for n in range(2):
            ctx.send_event(Task(n=n))
        await asyncio.sleep(self.seconds)
        self.note(ctx, "sent")

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Task) -> Counted:
        paid = await ctx.once("pay", self.pay, ctx, ev.n)
        await asyncio.sleep(0.01)
        ctx.write_event_to_stream(Shown(n=paid))
        return Counted(n=paid)

    async def pay(self, ctx: Context, n: int) -> int:
        await asyncio.sleep(0.01)
        self.note(ctx, f"paid {n}")
        return n + 1

    @step
    async def end(self, ctx: Context, ev: Counted) -> StopEvent | None:
        found = ctx.collect_events(ev, [Counted] * 2)
        return None if found is None else StopEvent(result=sum(one.n for one in found))


# --- workflows inside -------------------------------------------------------------------------------------------------


class Order(Event):
    n: int


class Receipt(Event):
    n: int


class Packed(Event):
    n: int


class Packing(Workflow, entry=[Order]):
    """Starts on an event of the workflow around it, and answers with one."""

    @step
    async def pack(self, ctx: Context, ev: Order) -> Packed:
        await ctx.store.set("n", ev.n)
        await asyncio.sleep(0.02)
        return Packed(n=ev.n)

    @step
    async def send(self, ctx: Context, ev: Packed) -> StopEvent:
        ctx.write_event_to_stream(Shown(n=ev.n))
        ctx.send_event(Receipt(n=ev.n + await ctx.store.get("n")))
        return StopEvent()


class Asking(Workflow):
    """Is called by a step, and asks a person."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> Asked:
        await asyncio.sleep(0)
        return Asked(who=ev.who)

    @step
    async def ask(self, ctx: Context, ev: Asked) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Ask(who=ev.who))
        return StopEvent(result=answer.text)


class Family(Recorded):
    def __init__(self, store: MemoryStore, ledger: Ledger) -> None:
        super().__init__(store, ledger, workflows={"packing": Packing(timeout=None), "asking": Asking(timeout=None)})

    @step
    async def begin(self, ctx: Context, ev: StartEvent, asking: Asking) -> None:
        ctx.send_event(Order(n=1))
        ctx.send_event(Order(n=2))
        await ctx.once("ordered", self.note, ctx, "ordered")
        await asyncio.sleep(0.01)
        said = await asking.run(who="cleo")
        self.note(ctx, "asked")
        await ctx.store.set("said", said)
        ctx.send_event(Receipt(n=100))

    @step
    async def end(self, ctx: Context, ev: Receipt) -> StopEvent | None:
        found = ctx.collect_events(ev, [Receipt] * 3)
        if found is None:
            return None
        return StopEvent(result=[sorted(one.n for one in found), await ctx.store.get("said")])


PROGRAMS = [
    Program(
        "chain",
        Chain,
        awaited,
        {"topic": "tides"},
        [[0, 1, 2, 3, 4], {str(n): n * 10 for n in range(5)}, [0, 1, 2, 3, 4]],
    ),
    Program("fans", Fans, awaited, {}, [7, 6]),
    Program("people", People, answered, {}, [["ann", "bob"], ["ann: yes ann yes ann!", "bob: yes bob yes bob!"]]),
    Program("retries", Retries, awaited, {}, [[(0, 0), (1, 1), (100, 3)], {"0": 0, "1": 1, "2": 2}]),
    Program("held", Held, awaited, {}, 3),
    Program("family", Family, answered, {}, [[2, 4, 100], "yes cleo"]),
]

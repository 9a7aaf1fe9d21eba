"""Six workflows whose steps pause at places drawn from a seed, each with what has to come out whatever the order.

Every delivery is counted twice: in the state (``handled``) and on the stream (``Seen``). Pauses come from ``dice``;
what the steps do does not depend on them.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from batonflow.workflow_core.collect import Collect, Take
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_exponential

__all__ = ["PROGRAMS", "Answer", "Explored", "Program", "Question", "Seen"]


class Seen(Event):
    """A step says on the stream that it handled a delivery."""

    key: str


class Question(Event):
    """A step asks the caller."""

    who: int
    turn: int


class Answer(HumanResponseEvent):
    """The caller answers."""

    who: int
    turn: int
    text: str


class Explored(Workflow):
    """A workflow whose steps pause as the dice say, and count what they handle and how many work at a time."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(timeout=1_000_000.0, on_stall="raise")
        self.dice = dice
        self.working: Counter[str] = Counter()
        self.most_working: Counter[str] = Counter()

    async def pause(self) -> None:
        kind = self.dice.random()
        if kind < 0.3:
            return
        if kind < 0.7:
            for _ in range(self.dice.randrange(1, 4)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self.dice.randrange(1, 5))

    async def work(self, name: str) -> None:
        """Hold a worker of step ``name`` for a while."""
        self.working[name] += 1
        self.most_working[name] = max(self.most_working[name], self.working[name])
        try:
            await self.pause()
        finally:
            self.working[name] -= 1

    async def handled(self, ctx: Context, key: str) -> None:
        """Count a delivery in the state and on the stream."""
        await self.pause()
        async with ctx.store.edit_state() as state:
            counts = state.get("handled", {})
            await self.pause()
            state["handled"] = {**counts, key: counts.get(key, 0) + 1}
        ctx.write_event_to_stream(Seen(key=key))


@dataclass(slots=True)
class Program:
    """A workflow to explore.

    Attributes:
        make: Builds it around the dice; also for going on with a snapshot.
        result: What the run has to give.
        handled: The deliveries of the run itself, each exactly once, as counted in its state.
        seen: All deliveries, of its children too, as counted on the stream.
        seconds: About how long a run takes.
        limits: Step -> how many executions may work at a time.
    """

    make: type[Explored]
    result: object
    handled: set[str]
    seconds: float
    seen_besides: set[str] = field(default_factory=set[str])
    limits: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def seen(self) -> set[str]:
        return self.handled | self.seen_besides


# --- chain: one event at a time, with side events that are counted in at the end


class Hop(Event):
    n: int


class Turn(Event):
    n: int


class Side(Event):
    n: int


class SideDone(Event):
    n: int


class Last(Event):
    pass


class Chain(Explored):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Hop:
        await self.handled(ctx, "begin")
        return Hop(n=0)

    @step
    async def even(self, ctx: Context, ev: Hop) -> Turn | Last | Side:
        await self.handled(ctx, f"even:{ev.n}")
        if ev.n % 4 == 0:
            ctx.send_event(Side(n=ev.n))
        return Turn(n=ev.n + 1) if ev.n < 10 else Last()

    @step
    async def odd(self, ev: Turn) -> Hop:
        return Hop(n=ev.n + 1)

    @step(num_workers=1)
    async def aside(self, ctx: Context, ev: Side) -> SideDone:
        await self.work("aside")
        await self.handled(ctx, f"aside:{ev.n}")
        return SideDone(n=ev.n)

    @step
    async def finish(self, ctx: Context, ev: Last | SideDone) -> StopEvent | None:
        await self.pause()
        found = ctx.collect_events(ev, [Last, SideDone, SideDone, SideDone])
        if found is None:
            return None
        await self.handled(ctx, "finish")
        return StopEvent(result=sorted(event.n for event in found[1:]))


CHAIN = Program(
    make=Chain,
    result=[0, 4, 8],
    handled={"begin", "finish", *(f"even:{n}" for n in range(0, 11, 2)), *(f"aside:{n}" for n in (0, 4, 8))},
    seconds=40,
    limits={"aside": 1},
)

# --- fan-out and fan-in: events sent by hand, taken by two steps, collected in two buffers, joined


class Work(Event):
    n: int


class Done(Event):
    n: int


class Audited(Event):
    n: int


class AllDone(Event):
    total: int


class AllAudited(Event):
    total: int


WORK = 9


class FanOut(Explored):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Work | None:
        for n in range(WORK):
            ctx.send_event(Work(n=n))
            if n % 3 == 2:
                await self.pause()
        await self.handled(ctx, "begin")
        return None

    @step(num_workers=3)
    async def build(self, ctx: Context, ev: Work) -> Done:
        await self.work("build")
        await self.handled(ctx, f"build:{ev.n}")
        return Done(n=ev.n)

    @step(num_workers=2)
    async def audit(self, ctx: Context, ev: Work) -> Audited | None:
        await self.work("audit")
        await self.handled(ctx, f"audit:{ev.n}")
        ctx.send_event(Audited(n=ev.n), step="gather")
        await self.pause()
        return None

    @step(num_workers=4)
    async def gather(self, ctx: Context, ev: Done | Audited) -> AllDone | AllAudited | None:
        kind = type(ev)
        await self.handled(ctx, f"gather:{kind.__name__}:{ev.n}")
        await self.pause()
        found = ctx.collect_events(ev, [kind] * WORK, buffer_id=kind.__name__)
        await self.pause()
        if found is None:
            return None
        total = sum(event.n for event in found)
        return AllDone(total=total) if kind is Done else AllAudited(total=total)

    @step
    async def finish(self, ctx: Context, done: AllDone, audited: AllAudited) -> StopEvent:
        await self.handled(ctx, "finish")
        return StopEvent(result=[done.total, audited.total])


FAN_OUT = Program(
    make=FanOut,
    result=[36, 36],
    handled={
        "begin",
        "finish",
        *(f"{name}:{n}" for name in ("build", "audit", "gather:Done", "gather:Audited") for n in range(WORK)),
    },
    seconds=60,
    limits={"build": 3, "audit": 2},
)

# --- streams of lists: nested, with an empty one, members that leave, a retry inside and a second collector


class Page(Event):
    n: int


class Line(Event):
    page: int
    n: int


class Read(Event):
    page: int
    n: int


class PageRead(Event):
    page: int
    lines: list[int]


LINES = {0: 3, 1: 0, 2: 5}


class Lists(Explored):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        await self.handled(ctx, "begin")
        return [Page(n=n) for n in LINES]

    @step
    async def split(self, ctx: Context, ev: Page) -> list[Line]:
        await self.handled(ctx, f"split:{ev.n}")
        return [Line(page=ev.n, n=n) for n in range(LINES[ev.n])]

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_exponential(), stop=stop_after_attempt(3)))
    async def read(self, ctx: Context, ev: Line) -> Read | None:
        attempt = ctx.retry_info().retry_number
        await self.work("read")
        await self.handled(ctx, f"read:{ev.page}.{ev.n}@{attempt}")
        if ev.n == 1 and attempt < 2:
            raise ConnectionError(f"line {ev.n} cannot be read")
        return Read(page=ev.page, n=ev.n) if ev.n != 2 else None

    @step
    async def join_page(self, ctx: Context, read: list[Read]) -> PageRead:
        page = read[0].page if read else 1
        await self.handled(ctx, f"join_page:{page}")
        return PageRead(page=page, lines=sorted(line.n for line in read))

    @step
    async def glimpse(self, ctx: Context, read: Annotated[list[Read], Collect(Take(2))]) -> None:
        await self.handled(ctx, f"glimpse:{read[0].page if read else 1}:{len(read)}")

    @step
    async def join_all(self, ctx: Context, pages: list[PageRead]) -> StopEvent:
        await self.handled(ctx, "join_all")
        return StopEvent(result=sorted([page.page, *page.lines] for page in pages))


LISTS = Program(
    make=Lists,
    result=[[0, 0, 1], [1], [2, 0, 1, 3, 4]],
    handled={
        "begin",
        "join_all",
        *(f"{name}:{n}" for name in ("split", "join_page") for n in LINES),
        *(f"read:{page}.{n}@0" for page, count in LINES.items() for n in range(count)),
        *(f"read:{page}.1@{attempt}" for page in (0, 2) for attempt in (1, 2)),
        *("glimpse:0:2", "glimpse:1:0", "glimpse:2:2"),
    },
    seconds=50,
    limits={"read": 2},
)

# --- waits: two questions in one step, told apart by requirements, one that nobody answers, one answered by a step


class Patient(Event):
    who: int


class Approval(InputRequiredEvent):
    pass


class Approved(HumanResponseEvent):
    pass


class Heard(Event):
    who: int
    texts: list[str]


class Silence(HumanResponseEvent):
    pass


class Waits(Explored):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Patient | None:
        for who in range(4):
            ctx.send_event(Patient(who=who))
        await self.handled(ctx, "begin")
        return None

    @step(num_workers=2)
    async def ask(self, ctx: Context, ev: Patient) -> Heard:
        await self.work("ask")
        texts: list[str] = []
        for turn in range(2):
            question = Question(who=ev.who, turn=turn)
            answer = await ctx.wait_for_event(
                Answer, waiter_event=question, requirements={"who": ev.who, "turn": turn}, timeout=None
            )
            await self.work("ask")
            texts.append(answer.text)
        await self.handled(ctx, f"ask:{ev.who}")
        return Heard(who=ev.who, texts=texts)

    @step
    async def in_vain(self, ctx: Context, ev: StartEvent) -> Heard:
        await self.pause()
        try:
            await ctx.wait_for_event(Silence, timeout=20)
        except TimeoutError:
            await self.handled(ctx, "in_vain")
        return Heard(who=9, texts=["nobody"])

    @step
    async def gather(self, ctx: Context, ev: Heard) -> Approval | None:
        await self.pause()
        found = ctx.collect_events(ev, [Heard] * 5)
        if found is None:
            return None
        # By key, as the set is the same for a repeated attempt.
        await ctx.store.set("heard", {str(event.who): event.texts for event in found})
        await self.handled(ctx, "gather")
        return Approval()

    @step
    async def finish(self, ctx: Context, ev: Approved) -> StopEvent:
        await self.handled(ctx, "finish")
        return StopEvent(result=sorted((await ctx.store.get("heard")).items()))


WAITS = Program(
    make=Waits,
    result=[*((str(who), [f"{who}/0", f"{who}/1"]) for who in range(4)), ("9", ["nobody"])],
    handled={"begin", "in_vain", "gather", "finish", *(f"ask:{who}" for who in range(4))},
    seconds=40,
    limits={"ask": 2},
)

# --- retries with timers, and what remains after them handed to @catch_error


class Job(Event):
    n: int
    easy: bool = False


class JobDone(Event):
    n: int
    attempts: int


class Retries(Explored):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(5):
            ctx.send_event(Job(n=n))
        await self.handled(ctx, "begin")
        return None

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_exponential(multiplier=2), stop=stop_after_attempt(4)))
    async def job(self, ctx: Context, ev: Job) -> JobDone:
        attempt = ctx.retry_info().retry_number
        await self.work("job")
        await self.handled(ctx, f"job:{ev.n}{'easy' if ev.easy else ''}@{attempt}")
        if attempt < ev.n and not ev.easy:
            raise ConnectionError(f"job {ev.n}, attempt {attempt}")
        return JobDone(n=ev.n, attempts=attempt + 1)

    @catch_error(for_steps=["job"])
    async def rescue(self, ctx: Context, ev: StepFailedEvent) -> Job:
        assert isinstance(ev.input_event, Job)
        await self.handled(ctx, f"rescue:{ev.input_event.n}:{ev.attempts}:{ev.exception}")
        return Job(n=ev.input_event.n, easy=True)

    @step
    async def gather(self, ctx: Context, ev: JobDone) -> StopEvent | None:
        await self.pause()
        found = ctx.collect_events(ev, [JobDone] * 5)
        if found is None:
            return None
        await self.handled(ctx, "gather")
        return StopEvent(result=sorted((event.n, event.attempts) for event in found))


RETRIES = Program(
    make=Retries,
    result=[(0, 1), (1, 2), (2, 3), (3, 4), (4, 1)],
    handled={
        "begin",
        "gather",
        "rescue:4:4:job 4, attempt 3",
        "job:4easy@0",
        *(f"job:{n}@{attempt}" for n in range(5) for attempt in range(min(n + 1, 4))),
    },
    seconds=60,
    limits={"job": 2},
)

# --- parent and children: one kind that a step runs, one kind that events start


class Order(Event):
    n: int


class Quoted(Event):
    n: int


class Shipped(Event):
    n: int


class Packed(Event):
    n: int


class Quote(StartEvent):
    n: int


class Priced(Event):
    n: int
    price: int


class Pricing(Explored):
    """A step of the parent runs it and awaits its result."""

    @step
    async def look_up(self, ctx: Context, ev: Quote) -> Packed:
        await self.handled(ctx, f"look_up:{ev.n}")
        return Packed(n=ev.n)

    @step
    async def price(self, ctx: Context, ev: Packed) -> StopEvent:
        await self.handled(ctx, f"price:{ev.n}")
        return StopEvent(result=10 * ev.n)


class Station(Explored, entry=[Order]):
    """Every Order of the parent starts one run of it; it answers with an event."""

    @step
    async def pack(self, ctx: Context, ev: Order) -> Packed:
        await self.handled(ctx, f"pack:{ev.n}")
        return Packed(n=ev.n)

    @step
    async def ship(self, ctx: Context, ev: Packed) -> Shipped | StopEvent:
        await self.handled(ctx, f"ship:{ev.n}")
        ctx.send_event(Shipped(n=ev.n))
        return StopEvent()


class Shop(Explored):
    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice)
        self.add_workflows(station=Station(dice), pricing=Pricing(dice))

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Order | Quoted:
        for n in (1, 2, 3):
            ctx.send_event(Order(n=n))
            await self.pause()
            ctx.send_event(Quoted(n=n))
        await self.handled(ctx, "begin")
        return Quoted(n=4)

    @step(num_workers=2)
    async def quote(self, ctx: Context, ev: Quoted, pricing: Pricing) -> Priced:
        await self.work("quote")
        price = await pricing.run(n=ev.n)
        await self.handled(ctx, f"quote:{ev.n}")
        return Priced(n=ev.n, price=price)

    @step
    async def gather(self, ctx: Context, ev: Shipped | Priced) -> StopEvent | None:
        await self.pause()
        found = ctx.collect_events(ev, [Shipped] * 3 + [Priced] * 4)
        if found is None:
            return None
        await self.handled(ctx, "gather")
        return StopEvent(result=[sorted(event.n for event in found[:3]), sorted(event.price for event in found[3:])])


FAMILY = Program(
    make=Shop,
    result=[[1, 2, 3], [10, 20, 30, 40]],
    handled={"begin", "gather", *(f"quote:{n}" for n in (1, 2, 3, 4))},
    seen_besides={
        *(f"{name}:{n}" for name in ("pack", "ship") for n in (1, 2, 3)),
        *(f"{name}:{n}" for name in ("look_up", "price") for n in (1, 2, 3, 4)),
    },
    seconds=50,
    limits={"quote": 2},
)

PROGRAMS = {"chain": CHAIN, "fan-out": FAN_OUT, "lists": LISTS, "waits": WAITS, "retries": RETRIES, "family": FAMILY}

"""Workflows of every kind that the page has to show, and ways to record a run of them."""

import asyncio
from typing import Any, Literal, NamedTuple

from batonflow import AgentWorkflow, FunctionAgent, tool
from batonflow.durable.store_protocol import RunStore
from batonflow.llms import LLM, ChatMessage, ScriptedLLM, tool_call
from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    MemoryStore,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none

HOSTILE = (
    "<script>window.hit=1</script>",
    "<img src=x onerror='window.hit=1'>",
    "javascript:window.hit=1",
    "</script><script>window.hit=1</script>",
    "![picture](http://elsewhere.test/x.png)",
    "${window.hit=1}",
    "<svg onload=window.hit=1>",
    "\N{RIGHT-TO-LEFT OVERRIDE}turned\x00",
    "$& $' $$ $` \N{LINE SEPARATOR}",
)


class Tick(Event):
    number: int


class Note(Event):
    text: str


class Part(Event):
    number: int


class Done(Event):
    number: int


class Approved(HumanResponseEvent):
    approved: bool
    amount: float = 10.0
    colour: Literal["red", "blue"] = "red"


class Order(StartEvent):
    """What to make."""

    item: str
    count: int = 3
    gift: bool = False
    colour: Literal["red", "blue"] = "blue"


class Counting(Workflow):
    """Counts, and says so now and then."""

    @step
    async def begin(self, ev: StartEvent) -> Tick:
        return Tick(number=0)

    @step
    async def count(self, ctx: Context, ev: Tick) -> Tick | StopEvent:
        if ev.number % 3 == 0:
            ctx.write_event_to_stream(Note(text=f"at {ev.number}"))
        await ctx.store.set("number", ev.number)
        return StopEvent(result=ev.number) if ev.number == self.last else Tick(number=ev.number + 1)

    def __init__(self, last: int = 8, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.last = last


class Retrying(Workflow):
    """Several at once, one of which succeeds at the third attempt."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Part | None:
        for number in range(4):
            ctx.send_event(Part(number=number))

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: Part) -> Done:
        if ev.number == 2 and ctx.retry_info().retry_number < 2:
            raise OSError(f"no connection, try {ctx.retry_info().retry_number}")
        return Done(number=ev.number)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, [Done] * 4)
        return StopEvent(result=sum(one.number for one in found)) if found else None


class Failing(Workflow):
    """Fails in its second step."""

    @step
    async def prepare(self, ctx: Context, ev: StartEvent) -> Tick:
        await ctx.store.set("progress", "half")
        return Tick(number=1)

    @step
    async def fail(self, ev: Tick) -> StopEvent:
        raise ValueError("there is no such book: 'Tides & Times'")


class Asking(Workflow):
    """Asks a person."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(
            Approved, waiter_event=InputRequiredEvent(prefix="May I spend it?"), requirements={"who": "ann"}
        )
        return StopEvent(result={"approved": answer.approved, "amount": answer.amount, "colour": answer.colour})


class Inner(Workflow):
    """Inside another."""

    @step
    async def shout(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("seen", ev.word)
        return StopEvent(result=ev.word.upper())


class Outer(Workflow):
    """Has a child, which it runs twice."""

    @step
    async def ask_twice(self, ctx: Context, ev: StartEvent, inner: Inner) -> StopEvent:
        return StopEvent(result=[await inner.run(word="high"), await inner.run(word="water")])


class Hostile(Workflow):
    """<script>window.hit=1</script>"""

    @step
    async def attack(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for text in HOSTILE:
            ctx.write_event_to_stream(Note(text=text))
        await ctx.store.set("<img src=x onerror=window.hit=1>", {"<b>": HOSTILE[0]})
        raise ValueError("<img src=x onerror=window.hit=1>")


class Making(Workflow):
    """Takes its time over an order, and waits with each part until it may go on."""

    def __init__(self, go_on: asyncio.Event | None = None) -> None:
        super().__init__()
        self.go_on = go_on

    @step
    async def plan(self, ctx: Context, ev: Order) -> Part | None:
        await ctx.store.set("item", ev.item)
        for number in range(ev.count):
            ctx.send_event(Part(number=number))
        await ctx.store.set("left", ev.count)

    @step(num_workers=2)
    async def make(self, ctx: Context, ev: Part) -> Done:
        ctx.write_event_to_stream(Note(text=f"making part {ev.number}"))
        await asyncio.sleep(0.3)
        if self.go_on is not None:
            await self.go_on.wait()
        return Done(number=ev.number)

    @step
    async def pack(self, ctx: Context, ev: Done) -> StopEvent | None:
        left = await ctx.store.get("left") - 1
        await ctx.store.set("left", left)
        return None if left else StopEvent(result=f"{await ctx.store.get('item')}, packed")


class Large(Workflow):
    """Makes something large."""

    @step
    async def write(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("book", "tide " * 20_000)
        return StopEvent(result=f"{'page ' * 4_000}the end")


@tool(requires_approval=True)
def publish(title: str, body: str) -> str:
    """Publish an article."""
    return f"published {title}, {len(body)} letters"


def search(topic: str) -> str:
    """Find the note on a topic."""
    if topic != "tides":
        raise FileNotFoundError(f"there is no note on {topic}; there is one on tides")
    return "The moon pulls the sea towards it. High water comes twice a day."


def make_team(**options: Any) -> AgentWorkflow:
    """A team: an agent with an agent as its tool and a tool that fails, which hands over to another."""
    surveyor = FunctionAgent(
        name="surveyor",
        description="Surveys.",
        tools=[search],
        llm=ScriptedLLM([tool_call("search", topic="tides"), "It is calm."]),
    )
    asks = [tool_call("surveyor", input="How is Dover?"), tool_call("search", topic="rain")]
    researcher = FunctionAgent(
        name="researcher",
        description="Finds facts.",
        tools=[surveyor.as_tool(), search],
        can_handoff_to=["author"],
        llm=ScriptedLLM([["I ask.", *asks], tool_call("handoff", to_agent="author", reason="to write")]),
    )
    author = FunctionAgent(name="author", description="Writes.", llm=ScriptedLLM(["# Tides\n\nThe *sea*."]))
    return AgentWorkflow(agents=[researcher, author], root_agent="researcher", **options)


def make_writer(**options: Any) -> FunctionAgent:
    """An agent with a tool that fails once, and one that has to be approved."""
    return FunctionAgent(
        name="writer",
        description="Writes and publishes.",
        tools=[search, publish],
        llm=ScriptedLLM(
            [
                ["I will look for notes.", tool_call("search", topic="tide")],
                ["The note has another name.", tool_call("search", topic="tides")],
                ["I will publish this.", tool_call("publish", title="Tides", body="High water comes twice a day.")],
                "It is published.",
            ]
        ),
        **options,
    )


class Conversing(Workflow):
    """Asks a model with a conversation, again after an error."""

    def __init__(self, llm: LLM, *conversations: list[ChatMessage], **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.llm = llm
        self.conversations = conversations

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        response = None
        for messages in self.conversations:
            response = await self.llm.achat(messages)
        return StopEvent(result=response and response.message.content)


class Recorded(NamedTuple):
    """A run in a store."""

    store: RunStore
    run_id: str
    workflow: Workflow


async def recorded(workflow: Workflow, store: RunStore, **start: Any) -> Recorded:
    """Runs a workflow to its end, whatever that is."""
    run_id = type(workflow).__name__.lower()
    handler = workflow.run(run_id=run_id, **start)
    await asyncio.gather(handler.stop_event_result(), return_exceptions=True)
    return Recorded(store, run_id, workflow)


async def conversation_of(*conversations: list[ChatMessage], answers: list[Any], **start: Any) -> Recorded:
    """Records calls of a model with the given conversations."""
    store = MemoryStore()
    return await recorded(Conversing(ScriptedLLM(answers), *conversations, store=store), store, **start)


async def team_run() -> Recorded:
    """Records a team."""
    store = MemoryStore()
    return await recorded(make_team(store=store), store, user_msg="Write about the sea.")


async def run_of(cls: type[Workflow], **options: Any) -> Recorded:
    """Records a run of a class of workflows."""
    store = MemoryStore()
    if cls is Outer:
        options["workflows"] = {"inner": Inner()}
    return await recorded(cls(store=store, **options), store)


async def waiting_run(*, cancelled: bool = False) -> Recorded:
    """Records a run up to a question that nobody answers; its process then stops, or somebody cancels the run."""
    store = MemoryStore()
    workflow = Asking(store=store)
    handler = workflow.run(run_id="asking")
    async for _ in handler.inputs():
        break
    while (info := await store.info("asking")) is None or info.seq < 2:  # noqa: ASYNC110 - a store says nothing by itself
        await asyncio.sleep(0.01)
    await (handler.cancel_run() if cancelled else handler.interrupt())
    return Recorded(store, "asking", workflow)


async def agent_run() -> Recorded:
    """Records an agent that calls tools, one of them after an approval."""
    store = MemoryStore()
    agent = make_writer(store=store)
    handler = agent.run("Write about tides, and publish it.", run_id="agent")
    async for request in handler.approvals():
        request.approve()
    await handler
    return Recorded(store, "agent", agent)

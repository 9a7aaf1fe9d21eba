"""Programs whose runs were written down by an earlier layout of the source, and must go on under the present one."""

import asyncio
import json
import os
import signal
from pathlib import Path

from pydantic import BaseModel

from batonflow import Context, Event, FunctionAgent, HumanResponseEvent, StartEvent, StopEvent, Workflow, step, tool
from batonflow.llms import ScriptedLLM
from batonflow.llms.scripted import tool_call
from batonflow.workflow_core import InputRequiredEvent

__all__ = ["HERE", "TIDES", "Desk", "Order", "clerk", "converse", "main", "writer"]

HERE = Path(__file__).parent


class Item(Event):
    name: str


class Priced(Event):
    name: str
    price: int


class Progress(Event):
    text: str


class Till(BaseModel):
    seen: list[str] = []
    total: int = 0


class Packing(Workflow):
    @step
    async def pack(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"packed {ev.what}")


class Order(Workflow):
    """Prices items, asks a person, and packs them with an attached workflow."""

    @step
    async def split(self, ctx: Context[Till], ev: StartEvent) -> list[Item]:
        await ctx.store.set("seen", list(ev.items_wanted))
        return [Item(name=name) for name in ev.items_wanted]

    @step(num_workers=2)
    async def price(self, ctx: Context[Till], ev: Item) -> Priced:
        ctx.write_event_to_stream(Progress(text=f"pricing {ev.name}"))
        return Priced(name=ev.name, price=await ctx.once("price", len, ev.name))

    @step
    async def confirm(self, ctx: Context[Till], priced: list[Priced], packing: Packing) -> StopEvent:
        total = sum(one.price for one in priced)
        await ctx.store.set("total", total)
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=f"Pay {total}?"), timeout=None
        )
        packed = await packing.run(what=", ".join(sorted(one.name for one in priced)))
        return StopEvent(result=f"{answer.response}: {packed} for {total}")


class Desk(Workflow):
    """Keeps a deadline and an answer in a snapshot."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("asked", ev.question)
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=ev.question), timeout=None
        )
        return StopEvent(result=[await ctx.store.get("asked"), answer.response])


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish an article."""
    return f"published {title}"


def order(store: str) -> Order:
    return Order(store=store, workflows={"packing": Packing()}, workflow_name="order")


def clerk(store: str) -> FunctionAgent:
    """Return an agent whose model has one call and an answer left, whichever process asks it."""

    def turn(request: object) -> object:
        told = any(message.role == "tool" for message in request.messages)  # type: ignore[attr-defined]
        return "It is out." if told else tool_call("publish", title="Tides")

    llm = ScriptedLLM([turn, turn, turn])
    return FunctionAgent(name="clerk", llm=llm, tools=[publish], store=store, workflow_name="clerk")


TIDES = "The tide is high at noon. " * 20


@tool(idempotent=True)
def look_up(topic: str) -> str:
    """Look a topic up."""
    return f"{topic}: {TIDES}"


def writer(store: str) -> FunctionAgent:
    """Return an agent that looks a topic up, or publishes it when it is asked to."""

    def turn(request: object) -> object:
        last = request.messages[-1]  # type: ignore[attr-defined]
        if last.role == "tool":
            return f"I have done it. {TIDES}"
        return tool_call("publish" if "Publish" in last.content else "look_up", **_argument_of(last.content))

    llm = ScriptedLLM([turn] * 20)
    return FunctionAgent(name="writer", llm=llm, tools=[look_up, publish], store=store, workflow_name="writer")


def _argument_of(text: str) -> dict[str, str]:
    return {"title": "Tides"} if "Publish" in text else {"topic": text}


async def converse(folder: Path) -> None:
    """Have two turns of a session, and end this process when the third one asks for an approval."""
    agent = writer(str(folder / "runs.db"))
    for topic in ("tides", "moon"):
        await agent.run(f"{topic} {TIDES}", session="talk")
    asking = agent.run("Publish it.", session="talk")
    async for _ in asking.approvals():
        break
    await asyncio.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: Path) -> None:
    """Begin the runs and end this process in their midst."""
    store = str(folder / "runs.db")
    running = order(store).run(items_wanted=["rope", "lamp", "tide table"], run_id="order-1")
    asking = clerk(store).run("Publish it.", run_id="clerk-1")
    desk = Desk().run(question="Open?")
    async for _ in desk.inputs():
        break
    (folder / "snapshot.json").write_text(json.dumps(desk.ctx.to_dict()))
    async for _ in running.inputs():
        break
    async for _ in asking.approvals():
        break
    await asyncio.sleep(0.5)  # until the store has both waits
    os.kill(os.getpid(), signal.SIGKILL)

"""A chat of customers and staff with an order desk: typed dependencies, state and output, over sessions that survive.

    python order_desk.py ann "What did I order?"
    python order_desk.py --staff eve "Refund B-2 250" --request mail-7

The same request id is answered once. A refund over 100 waits for a person.
"""

import argparse
import asyncio
import os
import re
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from batonflow import (
    LLM,
    BaseTool,
    Context,
    FunctionAgent,
    Middleware,
    RunContext,
    ScriptedLLM,
    ToolOutput,
    ToolRetry,
    Toolset,
    tool,
)
from batonflow.agents import CallTool, ToolRequest
from batonflow.llms import tool_call
from batonflow.llms.scripted import Answer
from batonflow.llms.stream import ChatRequest

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, price INTEGER);
CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, order_id TEXT, amount INTEGER);
CREATE TABLE IF NOT EXISTS audit (user TEXT, tool TEXT, arguments TEXT);
INSERT OR IGNORE INTO orders VALUES ('A-1', 'ann', 40), ('B-2', 'bob', 400);
"""


class Shop:
    """The orders and refunds in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as db, db:
            db.executescript(TABLES)

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(query, values).fetchall()

    def write(self, query: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(query, values)


@dataclass
class Deps:
    shop: Shop
    user: str
    staff: bool = False


class Case(BaseModel):
    """The state of a conversation."""

    refunded: int = 0


class Reply(BaseModel):
    text: str
    refunded: int = 0


@tool
async def orders(ctx: RunContext[Deps, Case]) -> str:
    """List the orders of the customer."""
    rows = ctx.deps.shop.read("SELECT id, price FROM orders WHERE customer = ?", ctx.deps.user)
    return ", ".join(f"{order}: {price} euros" for order, price in rows) or "no orders"


@tool(requires_approval=lambda arguments: arguments["amount"] > 100, idempotent=True)
async def refund(ctx: RunContext[Deps, Case], order: str, amount: int, idempotency_key: str) -> str:
    """Pay money back for an order."""
    price = ctx.deps.shop.read("SELECT price FROM orders WHERE id = ?", order)
    if not price or amount > price[0][0]:
        raise ToolRetry(f"order {order} cannot be refunded with {amount} euros")
    ctx.deps.shop.write("INSERT OR IGNORE INTO refunds VALUES (?, ?, ?)", idempotency_key, order, amount)
    if os.environ.get("DIE_AFTER_REFUND"):  # for the test: the worst moment, before the result is recorded
        os.kill(os.getpid(), signal.SIGKILL)
    async with ctx.store.edit_state() as case:
        case.refunded += amount
    return f"refunded {amount} euros for {order}"


class Desk(Toolset[Deps]):
    """The tools of the desk; the staff alone can refund."""

    async def tools(self, ctx: Context[Any, Deps]) -> Sequence[BaseTool]:
        return [orders, refund] if ctx.deps.staff else [orders]


class Audit(Middleware[Deps]):
    """Write a row for each tool call."""

    async def around_tool(self, ctx: Context[Any, Deps], request: ToolRequest, call_next: CallTool) -> ToolOutput:
        ctx.deps.shop.write(
            "INSERT INTO audit VALUES (?, ?, ?)", ctx.deps.user, request.call.tool_name, str(request.arguments)
        )
        return await call_next(request)


def answer(request: ChatRequest) -> Answer:
    """Answer as a model would: by the conversation and by the tools of the request."""
    last = request.messages[-1]
    text = str(last.content)  # a question stands behind the state of the conversation
    if last.role == "tool":
        paid = re.match(r"refunded (\d+)", text)
        return tool_call("final_answer", text=text, refunded=int(paid[1]) if paid else 0)
    asked = re.search(r"Refund (\S+) (\d+)", text)
    if asked and "refund" in {one.name for one in request.tools}:
        return tool_call("refund", order=asked[1], amount=int(asked[2]))
    return tool_call("orders")


def build(folder: Path, llm: LLM | None = None) -> FunctionAgent[Deps, Reply]:
    """Return the agent of the desk, with its runs in a folder."""
    return FunctionAgent(
        name="desk",
        description="Answers questions about orders.",
        llm=llm or ScriptedLLM([answer] * 20),
        tools=[Desk()],
        middleware=[Audit()],
        deps_type=Deps,
        state=Case,
        output_type=Reply,
        store=folder / "runs.db",
    )


async def chat(folder: Path, user: str, message: str, *, staff: bool, request: str | None, approve: bool) -> Reply:
    """Answer one message; a repeated request gets its recorded answer."""
    deps = Deps(Shop(folder / "shop.db"), user, staff)
    handler = build(folder).run(message, deps=deps, session=user, request_id=request)
    async for question in handler.approvals():
        question.approve() if approve else question.deny("ask the manager")
    return (await handler).output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("user")
    parser.add_argument("message")
    parser.add_argument("--staff", action="store_true")
    parser.add_argument("--approve", action="store_true")
    parser.add_argument("--request")
    given = parser.parse_args()
    reply = asyncio.run(
        chat(Path(), given.user, given.message, staff=given.staff, request=given.request, approve=given.approve)
    )
    print(reply.text)

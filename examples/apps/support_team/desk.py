"""A support team: a clerk that looks orders up, and a cashier that pays money back after a person has agreed."""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from batonflow import LLM, AgentWorkflow, FunctionAgent, RunContext, ScriptedLLM, SQLiteStore, llm_from, tool
from batonflow.agents import RunInfo
from batonflow.llms import tool_call
from batonflow.llms.scripted import Answer
from batonflow.llms.stream import ChatRequest

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, price INTEGER);
CREATE TABLE IF NOT EXISTS tickets (run_id TEXT PRIMARY KEY, customer TEXT);
CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, order_id TEXT, amount INTEGER);
INSERT OR IGNORE INTO orders VALUES ('A-17', 'ann', 40), ('B-2', 'bob', 15);
"""


class Shop:
    """The shop's own database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.open() as db:
            db.executescript(TABLES)

    @contextmanager
    def open(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path)) as db, db:
            yield db

    def add_ticket(self, run_id: str, customer: str) -> None:
        with self.open() as db:
            db.execute("INSERT INTO tickets VALUES (?, ?)", (run_id, customer))

    def customer_of(self, run_id: str) -> str:
        with self.open() as db:
            row = db.execute("SELECT customer FROM tickets WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise LookupError(f"run {run_id} has no ticket")
        return str(row[0])


@dataclass
class Desk:
    """The dependencies of the tools in one run. They are not stored: ``deps_for`` makes them in each process."""

    shop: Shop
    customer: str


def orders(ctx: RunContext[Desk]) -> list[str]:
    """List the customer's orders with their prices."""
    with ctx.deps.shop.open() as db:
        found = db.execute("SELECT id, price FROM orders WHERE customer = ?", (ctx.deps.customer,)).fetchall()
    return [f"{order}: {price} euros" for order, price in found]


@tool(requires_approval=True, idempotent=True)
def refund(ctx: RunContext[Desk], order: str, amount: int, idempotency_key: str) -> str:
    """Pay money back for an order of the customer."""
    with ctx.deps.shop.open() as db:
        owned = db.execute("SELECT 1 FROM orders WHERE id = ? AND customer = ?", (order, ctx.deps.customer))
        if owned.fetchone() is None:
            return f"{ctx.deps.customer} has no order {order}"
        # A call that was cut off is made again under the same key, and pays nothing the second time.
        db.execute("INSERT OR IGNORE INTO refunds VALUES (?, ?, ?)", (idempotency_key, order, amount))
    return f"{amount} euros for {order}"


def build(shop: Shop, store: SQLiteStore) -> AgentWorkflow[Desk, str]:
    def desk_for(run: RunInfo) -> Desk:
        return Desk(shop, shop.customer_of(run.run_id))

    clerk = FunctionAgent(
        name="clerk",
        description="Talks with customers and looks up their orders.",
        system_prompt="Hand refunds over to the cashier.",
        llm=model(clerk_says),
        tools=[orders],
        deps_type=Desk,
    )
    cashier = FunctionAgent(
        name="cashier", description="Pays money back.", llm=model(cashier_says), tools=[refund], deps_type=Desk
    )
    return AgentWorkflow(
        agents=[clerk, cashier],
        root_agent="clerk",
        deps_type=Desk,
        deps_for=desk_for,
        store=store,
        timeout=None,
        workflow_name="support",
    )


def clerk_says(request: ChatRequest) -> Answer:
    """Answer by the conversation alone, as the same model in another process would."""
    if request.messages[-1].role == "tool":
        return tool_call("handoff", to_agent="cashier", reason="a refund is due")
    return tool_call("orders")


def cashier_says(request: ChatRequest) -> Answer:
    last = request.messages[-1]
    if "was not run" in str(last.content):
        return "I am sorry, we cannot pay it back."
    if last.role == "tool" and str(last.content).endswith("euros for A-17"):
        return f"We paid back {last.content}."
    return tool_call("refund", order="A-17", amount=40)


def model(says: Callable[[ChatRequest], Answer]) -> LLM:
    """A real model where one is named, else one that follows a script."""
    named = os.environ.get("BATONFLOW_MODEL")
    return llm_from(named) if named else ScriptedLLM([says] * 1000)

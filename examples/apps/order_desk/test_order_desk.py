"""The staff refunds once, customers see their own orders, and a killed process repeats nothing."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from order_desk import Case, Deps, Shop, build, chat

from batonflow.workflow_core import DepsMissingError

PROGRAM = Path(__file__).with_name("order_desk.py")


def ask(folder: Path, user: str, message: str, *, staff: bool = False, request: str | None = None) -> str:
    return asyncio.run(chat(folder, user, message, staff=staff, request=request, approve=True)).text


def refunds(folder: Path) -> list[tuple[str, int]]:
    return [(order, amount) for order, amount in Shop(folder / "shop.db").read("SELECT order_id, amount FROM refunds")]


def test_customers_see_their_own_orders(tmp_path: Path) -> None:
    assert ask(tmp_path, "ann", "What did I order?") == "A-1: 40 euros"
    assert ask(tmp_path, "bob", "What did I order?") == "B-2: 400 euros"


def test_a_customer_cannot_refund(tmp_path: Path) -> None:
    assert ask(tmp_path, "bob", "Refund B-2 250") == "B-2: 400 euros"
    assert refunds(tmp_path) == []


def test_the_staff_refunds_and_each_call_is_audited(tmp_path: Path) -> None:
    assert ask(tmp_path, "eve", "Refund B-2 250", staff=True) == "refunded 250 euros for B-2"
    assert refunds(tmp_path) == [("B-2", 250)]
    rows = Shop(tmp_path / "shop.db").read("SELECT user, tool FROM audit")
    assert rows[0] == ("eve", "refund")


def test_a_refund_over_100_can_be_denied(tmp_path: Path) -> None:
    reply = asyncio.run(chat(tmp_path, "eve", "Refund B-2 250", staff=True, request=None, approve=False))
    assert "ask the manager" in reply.text
    assert refunds(tmp_path) == []


def test_a_repeated_request_is_answered_once(tmp_path: Path) -> None:
    first, second = (ask(tmp_path, "eve", "Refund A-1 20", staff=True, request="mail-7") for _ in range(2))
    assert first == second == "refunded 20 euros for A-1"
    assert refunds(tmp_path) == [("A-1", 20)]


def test_a_killed_process_refunds_once(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--staff", "eve", "Refund A-1 20", "--request", "mail-8"]
    killed = subprocess.run(command, cwd=tmp_path, env={**os.environ, "DIE_AFTER_REFUND": "1"}, check=False)
    assert killed.returncode == -9
    assert refunds(tmp_path) == [("A-1", 20)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "refunded 20 euros for A-1\n"
    assert refunds(tmp_path) == [("A-1", 20)]


def test_the_state_of_the_conversation_counts_refunds(tmp_path: Path) -> None:
    async def refunded() -> Case:
        agent = build(tmp_path)
        deps = Deps(Shop(tmp_path / "shop.db"), "eve", staff=True)
        for amount in (10, 20):
            await agent.run(f"Refund A-1 {amount}", deps=deps, session="eve")
        return await agent.session("eve").state(Case)

    assert asyncio.run(refunded()).refunded == 30


def test_dependencies_are_required(tmp_path: Path) -> None:
    with pytest.raises(DepsMissingError, match="needs deps of type Deps"):
        build(tmp_path).run_sync("What did I order?")  # type: ignore[call-overload]

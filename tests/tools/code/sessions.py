"""Opens sessions for tests, and answers their calls with the real functions."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batonflow.tools import FunctionTool
from batonflow.tools.code import (
    BubblewrapExecutor,
    Calls,
    Executor,
    Limits,
    MontyExecutor,
    Session,
    Turn,
    UnsafeLocalExecutor,
    Waiting,
)

__all__ = ["EXECUTORS", "KEY", "SANDBOXES", "TOOLS", "children", "opened", "replied", "run", "turns"]

KEY = b"a key for tests, 32 bytes long.."
BUBBLEWRAP = pytest.param(BubblewrapExecutor, id="bubblewrap", marks=pytest.mark.external("bubblewrap"))
SANDBOXES = [pytest.param(MontyExecutor, id="monty"), BUBBLEWRAP]
EXECUTORS = [*SANDBOXES, pytest.param(UnsafeLocalExecutor, id="unsafe")]


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def find(name: str) -> dict[str, Any]:
    """Find a person."""
    if name == "nobody":
        raise LookupError("there is no nobody")
    return {"name": name, "tags": ["x", 1, None, 2.5, True]}


def echo(value: Any) -> Any:
    """Give back what was given."""
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {"add": add, "find": find, "echo": echo}
TOOLS = [FunctionTool.from_defaults(function) for function in FUNCTIONS.values()]


@asynccontextmanager
async def opened(executor: Executor, limits: Limits | None = None, **options: Any) -> AsyncIterator[Session]:
    session = await executor.open(TOOLS, limits or Limits(), **options)
    try:
        yield session
    finally:
        await session.aclose()


def replied(session: Session) -> dict[str, Any]:
    """What the functions answer to every pending call."""
    answers: dict[str, Any] = {}
    for call in session.pending:
        try:
            answers[call.id] = FUNCTIONS[call.tool](**call.arguments)
        except Exception as err:  # noqa: BLE001 - as whoever runs tools for a model
            answers[call.id] = err
    return answers


async def turns(session: Session, code: str) -> list[Turn]:
    """All turns of a snippet whose calls are answered at once."""
    made = [await session.start(code)]
    while isinstance(made[-1], Calls | Waiting):
        made.append(await session.answer(replied(session)))
    return made


async def run(session: Session, code: str) -> Turn:
    """The last turn of a snippet."""
    return (await turns(session, code))[-1]


def children() -> set[int]:
    """The processes that this one, or one of its own, has started and that are still there."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found = {os.getpid()}
    while grown := {one for one, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {os.getpid()}

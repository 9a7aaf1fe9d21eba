"""Stops the world at a chosen moment of a run, as the end of a process does, and lets it go on in a new one.

The event loop is seeded, its clock virtual, so that a moment can be named by its number: the n-th turn of the loop, or
the n-th group of commits, before or after it is written. At that moment nothing more happens: no step goes on, no
commit is written, whatever code still runs to clean up after itself.
"""

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from batonflow.clock import use_source
from batonflow.durable.store_protocol import CommitDone, RunCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.testing.interleaving import SeededLoop
from batonflow.testing.virtual_time import VirtualSource
from batonflow.workflow_core import Workflow, WorkflowHandler

MOST_SECONDS = 20.0
TURNS_TO_WRITE = 3


class ProcessEnd(SystemExit):
    """The process ends here."""


@dataclass
class Moment:
    """When the process ends.

    Attributes:
        turn: At the beginning of this turn of the loop, from 1; 0: at none.
        group: At this group of commits, from 1; 0: at none.
        written: Whether that group is written before.
    """

    turn: int = 0
    group: int = 0
    written: bool = False


@dataclass
class Ledger:
    """What was done outside the store, which no crash undoes: effects by key, in order."""

    effects: list[str] = field(default_factory=list[str])

    def note(self, effect: str, run_id: str = "") -> None:
        self.effects.append(effect)


class MortalStore(MemoryStore):
    """A store of a process that ends at a moment; the runs outlive it.

    Args:
        moment: When.
        beside: The store of an earlier process.
    """

    def __init__(self, moment: Moment, beside: MemoryStore | None = None) -> None:
        super().__init__(beside=beside)
        self.moment = moment
        self.groups = 0
        self.dead = False

    def commit_soon(self, batch: Sequence[RunCommit], done: CommitDone) -> None:
        if self.dead:
            return
        self.groups += 1
        if self.groups == self.moment.group:
            if self.moment.written:
                super().commit_soon(batch, lambda verdicts, error: None)
            self.dead = True
            raise ProcessEnd
        # As with a disk, the loop goes on while it is written.
        asyncio.get_running_loop().call_soon(self._write_later, batch, done, TURNS_TO_WRITE)

    def _write_later(self, batch: Sequence[RunCommit], done: CommitDone, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._write_later, batch, done, turns - 1)
        elif not self.dead:
            super().commit_soon(batch, done)


class WholeStore(MortalStore):
    """A mortal store without parts: every record is whole, as in stores of users."""

    keeps_parts = False


class MortalLoop(SeededLoop):
    """An event loop that ends with its process."""

    def __init__(self, seed: int, moment: Moment, *, real_time: bool = False) -> None:
        super().__init__(seed)
        # As if a thread worked all the time, so that the clock never jumps.
        self.threads_at_work = int(real_time)
        self.moment = moment
        self.turns = 0
        # Of its own core, so that a machine with other work does not end a process that goes on.
        self.now = time.monotonic if real_time else time.process_time
        self.killed_at = self.now() + MOST_SECONDS

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> asyncio.Handle:
        """What other threads, of a process that is no more, still want to say is not heard."""
        if self.is_closed():
            return asyncio.Handle(lambda: None, (), self)
        return super().call_soon_threadsafe(*args, **options)

    def _run_once(self) -> None:
        self.turns += 1
        # With nothing to do and no timer it would wait for ever: the run hangs, and somebody kills the process.
        hangs = not (self._ready or self._scheduled or self.threads_at_work or self._stopping)  # type: ignore[attr-defined]
        if hangs or self.turns == self.moment.turn or self.now() > self.killed_at:
            raise ProcessEnd
        super()._run_once()


@dataclass
class Life:
    """One process.

    Attributes:
        result: What the run gave; None when the process ended before.
        ended: Whether the process ended before the run.
        turns: How many turns the loop made.
        groups: How many groups of commits there were.
    """

    result: Any = None
    ended: bool = False
    turns: int = 0
    groups: int = 0


Driver = Callable[[Workflow, WorkflowHandler], Awaitable[Any]]


def live(
    make: Callable[[MemoryStore, Ledger], Workflow],
    drive: Driver,
    ledger: Ledger,
    store: MortalStore,
    *,
    seed: int,
    begin: Callable[[Workflow], WorkflowHandler],
    real_time: bool = False,
) -> Life:
    """Let a process begin or take up a run and bring it to its end, or until the process ends.

    Args:
        make: The workflow, as the program of the process builds it.
        drive: Answers what the run asks, and awaits it.
        ledger: Outlives processes.
        store: Of this process.
        seed: Of the order in which tasks run.
        begin: Begins or takes up the run.
        real_time: Let no virtual time pass.
    """
    loop = MortalLoop(seed, store.moment, real_time=real_time)
    life = Life()

    async def main() -> Any:
        workflow = make(store, ledger)
        return await drive(workflow, begin(workflow))

    source = VirtualSource(loop, seed)
    try:
        with use_source(source):
            asyncio.set_event_loop(loop)
            task = loop.create_task(main(), context=copy_context())
            life.result = loop.run_until_complete(task)
    except ProcessEnd:
        life.ended = True
    finally:
        store.dead = True
        bury(loop)
        asyncio.set_event_loop(None)
        life.turns, life.groups = loop.turns, store.groups
        with use_source(source):
            run_now(store.aclose())
    return life


def run_now(awaitable: Awaitable[Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    coroutine: Any = awaitable
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def bury(loop: asyncio.AbstractEventLoop) -> None:
    """Nothing of a dead process goes on: its tasks are thrown away, and what they still try on their way out fails."""
    buried: set[asyncio.Task[Any]] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while tasks := [task for task in asyncio.all_tasks(loop) if task.get_coro() is not None]:
            buried.update(tasks)
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with suppress(BaseException):
                    coroutine.close()
            if not any(_is_alive(task.get_coro()) for task in tasks):
                break
        # They never end, so asyncio would go through all of them each time a later process asks for its own tasks.
        for task in buried:
            asyncio.tasks._unregister_task(task)  # type: ignore[attr-defined]
        loop._ready.clear()  # type: ignore[attr-defined]
        loop._scheduled.clear()  # type: ignore[attr-defined]
        loop.close()


def _is_alive(coroutine: Any) -> bool:
    return coroutine is not None and getattr(coroutine, "cr_frame", None) is not None

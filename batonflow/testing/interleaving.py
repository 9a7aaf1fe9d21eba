"""Explore the orders in which concurrent steps may run, and repeat any of them from its seed."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from batonflow.clock import use_source
from batonflow.testing.virtual_time import VirtualClockLoop, VirtualSource

__all__ = ["SeededLoop", "SeededRun", "run_seeded"]

_SHARE_OF_YIELDS = 0.3
"""Probability that a step lets other ready tasks go first, beyond the yields after long work."""


class SeededLoop(VirtualClockLoop):
    """Event loop that runs ready tasks in an order drawn from a seed.

    Plain callbacks keep their places, and tasks do not overtake them, so that the guarantees of the event loop hold.

    Args:
        seed: Any integer.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)  # noqa: S311 - repeatability is the point

    def _run_once(self) -> None:
        # asyncio has no public access to the ready queue; the tests of this module notice changes.
        ready = cast("deque[asyncio.Handle]", getattr(self, "_ready"))  # noqa: B009
        if len(ready) > 1:
            self._shuffle(ready)
        super()._run_once()  # type: ignore[misc]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]

    def _shuffle(self, ready: "deque[asyncio.Handle]") -> None:
        # Threads append at any moment; their new entries stay behind these.
        handles = [ready.popleft() for _ in range(len(ready))]
        start = 0
        for end in range(len(handles) + 1):
            if end == len(handles) or not _drives_task(handles[end]):
                group = handles[start:end]
                self._random.shuffle(group)
                handles[start:end] = group
                start = end + 1
        ready.extendleft(reversed(handles))


class _SeededSource(VirtualSource):
    """Clock that randomly ends a task's turn, so that the task yields between two steps."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int, ticks: list[str]) -> None:
        super().__init__(loop, seed, ticks)
        self._yields = random.Random(~seed)  # noqa: S311 - repeatability is the point
        self._worked = 0.0
        self.stopwatch = self._work

    def _work(self) -> float:
        if self._yields.random() < _SHARE_OF_YIELDS:
            self._worked += 1.0
        return self._worked


def _drives_task(handle: asyncio.Handle) -> bool:
    callback = getattr(handle, "_callback", None)
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


@dataclass(slots=True)
class SeededRun:
    """One explored interleaving.

    Attributes:
        seed: Repeats the same run.
        result: The result of the coroutine.
        ticks: A line for every tick of its workflow runs, in order; equal for equal seeds.
        tasks_left: Names of tasks that were still running at the end.
    """

    seed: int
    result: Any = None
    ticks: list[str] = field(default_factory=list[str])
    tasks_left: list[str] = field(default_factory=list[str])


def run_seeded(make: Callable[[random.Random], Coroutine[Any, Any, Any]], seed: int) -> SeededRun:
    """Run a coroutine under a virtual clock, with the order of concurrent tasks drawn from ``seed``.

    Args:
        make: Receives a seeded random source for its own delays, and returns the coroutine.
        seed: Any integer.

    Example:
        >>> for seed in range(100):
        ...     assert run_seeded(lambda dice: flow(dice), seed).tasks_left == []
    """
    found = SeededRun(seed)

    async def watched() -> Any:
        result = await make(random.Random(seed))  # noqa: S311 - repeatability is the point
        await asyncio.sleep(0)
        here = asyncio.current_task()
        found.tasks_left = sorted(task.get_name() for task in asyncio.all_tasks() if task is not here)
        return result

    with (
        asyncio.Runner(loop_factory=lambda: SeededLoop(seed)) as runner,
        use_source(_SeededSource(runner.get_loop(), seed, found.ticks)),
    ):
        found.result = runner.run(watched(), context=copy_context())
    return found

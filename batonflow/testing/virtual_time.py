"""A virtual clock: hours of timers pass in milliseconds, in the right order, without mocks."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from batonflow.clock import SeededSource, use_source

__all__ = ["VirtualClockLoop", "VirtualSource", "run_virtual"]

T = TypeVar("T")

START = 1_700_000_000.0
"""Wall-clock start of a virtual run, in seconds since the epoch."""

_REAL_PAUSE = 0.01


class _JumpingSelector(selectors.BaseSelector):
    """Selector that advances the clock to the next timer instead of sleeping."""

    def __init__(self, loop: "VirtualClockLoop") -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return self._real.select(None)
        if self._loop.threads_at_work:
            return self._real.select(_REAL_PAUSE)
        self._loop.jump(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def close(self) -> None:
        self._real.close()


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Event loop with a clock that stands still while code runs. An idle loop jumps to its next timer.

    While threads of its executor work, it waits for them in real time.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self.threads_at_work = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Return virtual seconds since the creation of the loop."""
        return self._seconds

    def jump(self, seconds: float) -> None:
        """Advance the time."""
        self._seconds += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Run in a thread; time does not jump before the thread has ended."""
        self.threads_at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Wait for the threads of the executor in real time."""
        self.threads_at_work += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self.threads_at_work -= 1

    def _thread_ended(self, _: "asyncio.Future[Any]") -> None:
        self.threads_at_work -= 1


class VirtualSource(SeededSource):
    """Time, ids and randomness of a virtual run, equal for equal seeds.

    Args:
        loop: The loop with the time.
        seed: Any integer.
        ticks: A list that receives a line for every tick of the runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int = 0, ticks: list[str] | None = None) -> None:
        super().__init__(seed)
        self._loop = loop
        self.tick_log = ticks
        self.now = lambda: START + loop.time()
        # With real time, equal seeds would yield to the loop at different places.
        self.stopwatch = loop.time

    def monotonic(self) -> float:
        """Return virtual seconds since the creation of the loop."""
        return self._loop.time()


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run a coroutine under a virtual clock, like ``asyncio.run``.

    Args:
        main: The coroutine.
        seed: Seeds ids and randomness of the runs inside.

    Example:
        >>> run_virtual(asyncio.wait_for(flow_with_hours_of_timers(), timeout=86_400))
    """
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        loop = runner.get_loop()
        with use_source(VirtualSource(loop, seed)):
            return runner.run(main, context=copy_context())

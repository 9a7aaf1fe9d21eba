"""The source of time, ids and randomness of a run, so that a run can be repeated exactly.

The engine has no other clock, ids or random numbers. A run takes its source from :func:`current_source` when it
starts. Tests replace the source with :func:`use_source` (see ``batonflow.testing``).
"""

import asyncio
import os
import random
import string
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from typing_extensions import override

__all__ = ["SeededSource", "Source", "TaskTimer", "current_source", "use_source"]

_ALPHABET = string.ascii_letters + string.digits
# Maps each byte to a letter or digit: ten times faster than ``choice`` for each character.
_LETTERS = bytes(_ALPHABET[byte % len(_ALPHABET)].encode()[0] for byte in range(256))


class Source:
    """The time, ids and randomness of the operating system.

    Example:
        >>> from batonflow.clock import current_source
        >>> len(current_source().token())
        10
    """

    tick_log: list[str] | None = None
    """Collects a line for every tick of the runs that use this source, for tests that compare runs."""

    now: Callable[[], float] = staticmethod(time.time)
    """The wall clock in seconds since the epoch; means the same after a restart. Asked twice a step, so no method."""

    stopwatch: Callable[[], float] = staticmethod(time.perf_counter)
    """Seconds of work; tells how long a task has kept the event loop to itself."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; they are not comparable between processes."""
        return time.monotonic()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()  # noqa: S311 - jitter, not secrets

    def token(self, length: int = 10) -> str:
        """Return ``length`` unguessable letters and digits, for ids that leave the process."""
        return os.urandom(length).translate(_LETTERS).decode()


class SeededSource(Source):
    """Repeatable ids and randomness: the same seed gives the same sequence.

    Args:
        seed: Any integer.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatability is the point

    @override
    def random(self) -> float:
        return self._random.random()

    @override
    def token(self, length: int = 10) -> str:
        return "".join(self._random.choices(_ALPHABET, k=length))


_SYSTEM = Source()
_source: ContextVar[Source] = ContextVar("batonflow_source", default=_SYSTEM)


def current_source() -> Source:
    """Return the source for runs that start here."""
    return _source.get()


@contextmanager
def use_source(source: Source) -> Generator[Source]:
    """Let every run that starts inside the block use ``source``."""
    token = _source.set(source)
    try:
        yield source
    finally:
        _source.reset(token)


class TaskTimer:
    """A time limit that cancels a task, and can pause."""

    __slots__ = ("deadline", "fired", "handle", "left", "task")

    def __init__(self, seconds: float, task: "asyncio.Task[Any]") -> None:
        self.left = seconds
        self.task = task
        self.deadline = 0.0
        self.fired = False
        self.handle: asyncio.TimerHandle | None = None

    def go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer, or let it go on."""
        self.deadline = loop.time() + self.left
        self.handle = loop.call_at(self.deadline, self._fire)

    def pause(self, loop: asyncio.AbstractEventLoop) -> None:
        """Keep the rest of the time."""
        if self.handle is not None:
            self.left = max(0.0, self.deadline - loop.time())
            self.cancel()

    def cancel(self) -> None:
        """Stop the timer."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _fire(self) -> None:
        self.fired = True
        self.task.cancel()

"""Tools that report while they work: what a generator yields is progress, what it returns is the result.

Asynchronous generators run on the event loop. A synchronous one runs in one thread from beginning to end, because what
it opened there, a database connection for example, may refuse to be used in another.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from batonflow.llms._bridge import run_sync
from batonflow.threads import in_thread

__all__ = ["GENERATORS", "Report", "settled", "settled_sync"]


Report = Callable[[Any], None]

GENERATORS = (GeneratorType, AsyncGeneratorType)
"""What a generator function returns."""


async def settled(value: Any, report: Report | None) -> Any:
    """What a function returned; a generator is run to its end first.

    Args:
        value: What the function returned.
        report: Called on the event loop's thread with everything the generator yields, at once.

    Returns:
        The ``return`` value of a synchronous generator if it is not None, else what was yielded last.
    """
    if inspect.isasyncgen(value):
        return await _on_loop(cast("AsyncGenerator[Any]", value), report)
    if inspect.isgenerator(value):
        return await _in_thread(cast("Generator[Any, Any, Any]", value), report)
    return value


def settled_sync(value: Any) -> Any:
    """The same without waiting for a loop; what is yielded is dropped."""
    if inspect.isasyncgen(value):
        return run_sync(_on_loop(cast("AsyncGenerator[Any]", value), None))
    if inspect.isgenerator(value):
        return _exhausted(cast("Generator[Any, Any, Any]", value), None)
    return value


async def _on_loop(generator: AsyncGenerator[Any], report: Report | None) -> Any:
    last = None
    async with aclosing(generator):
        async for last in generator:
            if report is not None:
                report(last)
    return last


def _exhausted(generator: Generator[Any, Any, Any], keep_on: Callable[[Any], bool] | None) -> Any:
    """Run ``generator`` until it ends, or until ``keep_on`` says no to what it yields; it is closed in any case."""
    last = None
    with closing(generator):
        while True:
            try:
                last = next(generator)
            except StopIteration as end:
                return last if end.value is None else end.value
            if keep_on is not None and not keep_on(last):
                return None


async def _in_thread(generator: Generator[Any, Any, Any], report: Report | None) -> Any:
    relay = _Relay(asyncio.get_running_loop(), report)
    try:
        result = await in_thread(_exhausted, generator, relay.send)
    finally:
        # After a cancellation the thread goes on to the next yield; there it learns that nobody listens any more.
        relay.closed = True
    if relay.failure is not None:
        raise relay.failure
    return result


class _Relay:
    """Carries what a thread yields to ``report`` on the event loop's thread.

    Args:
        loop: Where ``report`` is called.
        report: What to call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report | None) -> None:
        self._loop = loop
        self._report = report
        self.closed = False
        self.failure: Exception | None = None

    def send(self, value: Any) -> bool:
        """Called in the thread; False when the generator should end."""
        if self._report is not None and not self.closed:
            self._loop.call_soon_threadsafe(self._deliver, value)
        return not self.closed

    def _deliver(self, value: Any) -> None:
        if self.closed or self._report is None:
            return
        try:
            self._report(value)
        except Exception as err:  # noqa: BLE001 - raised in `_in_thread`, where the call is awaited
            self.failure = err
            self.closed = True

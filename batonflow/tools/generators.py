"""Generator functions as tools: yielded values are progress, the returned value is the result.

Asynchronous generators run on the event loop. A synchronous one runs in a single thread, because objects that it opens,
such as a database connection, may be bound to that thread.
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
"""The generators that generator functions return."""


async def settled(value: Any, report: Report | None) -> Any:
    """Return the result of a function; run a generator to its end first.

    Args:
        value: The function's return value.
        report: Called on the event loop's thread with each value that the generator yields.

    Returns:
        The ``return`` value of a synchronous generator if it is not None, else the last yielded value.
    """
    if inspect.isasyncgen(value):
        return await _on_loop(cast("AsyncGenerator[Any]", value), report)
    if inspect.isgenerator(value):
        return await _in_thread(cast("Generator[Any, Any, Any]", value), report)
    return value


def settled_sync(value: Any) -> Any:
    """Return the result of a function without an event loop; yielded values are dropped."""
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
    """Run ``generator`` until it ends or until ``keep_on`` returns False, and close it in any case."""
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
        # After a cancellation the thread continues to the next yield; there it learns that the call has ended.
        relay.closed = True
    if relay.failure is not None:
        raise relay.failure
    return result


class _Relay:
    """Carrier of yielded values from a thread to ``report`` on the event loop's thread.

    Args:
        loop: The event loop that calls ``report``.
        report: Receives the values.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report | None) -> None:
        self._loop = loop
        self._report = report
        self.closed = False
        self.failure: Exception | None = None

    def send(self, value: Any) -> bool:
        """Pass on a value from the thread; return False if the generator should end."""
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

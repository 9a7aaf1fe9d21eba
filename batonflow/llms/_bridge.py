"""Synchronous forms of asynchronous methods, on the background loops of ``batonflow.bridge``."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from batonflow.bridge import BackgroundLoop, background_loop, is_background_thread, wait_for_outcome
from batonflow.threads import in_thread, start_in_thread

__all__ = ["closed_after", "iterate_in_thread", "iterate_sync", "run_sync"]

_T = TypeVar("_T")


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on a background loop, with the caller's context variables, and return its result."""
    return cast("_T", wait_for_outcome(coroutine))


def iterate_sync(items: AsyncIterator[_T]) -> Generator[_T, None, None]:
    """Yield the items of an asynchronous iterator, each fetched on demand and all on one loop."""
    end = object()

    async def advance() -> Any:
        return await anext(items, end)

    # An asynchronous generator belongs to the loop of its first item, so all items are fetched on this loop.
    home = background_loop()
    try:
        while (item := wait_for_outcome(advance(), home)) is not end:
            yield item
    finally:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            _close(aclose, home)


def _close(aclose: Callable[[], Coroutine[Any, Any, None]], home: BackgroundLoop) -> None:
    if sys.is_finalizing():
        # At the end of the program the thread of the loop no longer runs, and waiting for it would block forever.
        return
    if is_background_thread():
        # The garbage collector may close an abandoned generator in the thread of this loop. Waiting here would be a
        # deadlock.
        asyncio.run_coroutine_threadsafe(aclose(), home.loop)
        return
    wait_for_outcome(aclose(), home)


@asynccontextmanager
async def closed_after(items: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T], None]:
    """Close ``items`` at the end of the block, so that its connection is closed at once.

    An override of a streaming method may return an iterator without ``aclose``.
    """
    try:
        yield items
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


async def iterate_in_thread(items: Iterator[_T]) -> AsyncGenerator[_T, None]:
    """Yield the items of a blocking iterator, each fetched in a thread."""
    end, busy = object(), threading.Lock()

    def advance() -> Any:
        with busy:
            return next(items, end)

    def close() -> None:
        if isinstance(items, Generator):
            with busy:
                items.close()

    try:
        while (item := await in_thread(advance)) is not end:
            yield cast("_T", item)
    finally:
        if busy.locked():
            # The consumer was cancelled, but the fetching thread cannot be. It closes the iterator when it returns.
            start_in_thread(close)
        else:
            close()

"""Synchronous forms of asynchronous methods, on the background loops of ``batonflow.bridge``."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from batonflow.bridge import BackgroundLoop, background_loop, is_background_thread, wait_for_outcome

__all__ = ["iterate_sync", "run_sync"]

_T = TypeVar("_T")


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on a background loop, with the caller's context variables, and return its result."""
    return cast("_T", wait_for_outcome(coroutine))


def iterate_sync(items: AsyncIterator[_T]) -> Generator[_T, None, None]:
    """Yield the items of an asynchronous iterator, each fetched on demand and all on one loop."""
    end = object()

    async def advance() -> Any:
        return await anext(items, end)

    # An asynchronous generator belongs to the loop of its first item, wherever the later ones are asked for.
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
        # At the end of the program the loop's thread no longer runs, and waiting for it would never end.
        return
    if is_background_thread():
        # A forgotten generator is closed wherever the collector of cycles happens to run; here waiting could be for
        # this very thread.
        asyncio.run_coroutine_threadsafe(aclose(), home.loop)
        return
    wait_for_outcome(aclose(), home)

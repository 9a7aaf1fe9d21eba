"""The one way from synchronous code into asynchronous code: an event loop in a thread of its own.

It works in scripts, in notebooks and under a running loop alike, because the caller's loop is never asked to wait for
itself.
"""

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

__all__ = ["iterate_sync", "run_sync"]

_T = TypeVar("_T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _bridge_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread  # noqa: PLW0603 - one per process is the point
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():
            _loop = asyncio.new_event_loop()
            # A daemon: a program that has ended its work must not be kept alive by an idle loop.
            _thread = threading.Thread(target=_loop.run_forever, name="batonflow-sync-bridge", daemon=True)
            _thread.start()
        return _loop


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on the bridge's loop, with the caller's context variables, and return what it returns.

    Raises:
        RuntimeError: Called on the bridge's own thread, where waiting would wait for ever.
    """
    if threading.current_thread() is _thread:
        coroutine.close()
        raise RuntimeError(
            "a synchronous method was called from asynchronous code that runs inside another synchronous call; "
            "await the asynchronous method there (achat for chat, acall for call)"
        )

    async def outcome() -> tuple[_T | None, BaseException | None]:
        try:
            return await coroutine, None
        except (KeyboardInterrupt, SystemExit) as error:
            # It is for the caller, and would end the bridge's loop if it went on from here.
            return None, error

    future = asyncio.run_coroutine_threadsafe(outcome(), _bridge_loop())
    try:
        result, error = future.result()
    except BaseException:
        # Ctrl-C arrives here while the work goes on over there.
        if not future.done():
            future.cancel()
            concurrent.futures.wait([future], timeout=5)
        raise
    if error is not None:
        raise error
    return cast("_T", result)


def iterate_sync(items: AsyncIterator[_T]) -> Generator[_T, None, None]:
    """The items of an asynchronous iterator, fetched one at a time when asked for."""
    end = object()

    async def advance() -> Any:
        return await anext(items, end)

    try:
        while (item := run_sync(advance())) is not end:
            yield item
    finally:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            _close(aclose)


def _close(aclose: Callable[[], Coroutine[Any, Any, None]]) -> None:
    if sys.is_finalizing():
        # A generator that nobody ended, at the end of the program: the loop's thread no longer runs, and waiting for it
        # would wait for ever.
        return
    if threading.current_thread() is _thread:
        # A forgotten generator is closed wherever the collector of cycles happens to run; here it cannot be waited for.
        asyncio.run_coroutine_threadsafe(aclose(), _bridge_loop())
        return
    run_sync(aclose())

"""The one bridge from plain code to async code: a background thread with an event loop, one per process."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

__all__ = ["run_on_background_loop"]


SECONDS_TO_CANCEL = 2.0
"""How long an interrupted caller waits for the run's steps to clean up."""

SECONDS_ALONE = 0.5
"""What takes no longer has nothing going on beside it."""


class _Background:
    """The loop and its thread, made at first use; the thread ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="batonflow-sync", daemon=True)
                self._thread.start()
            return self._loop

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread


_background = _Background()


def run_on_background_loop(
    start: Callable[[], Awaitable[Any]], beside: Callable[[Any], Coroutine[Any, Any, None]] | None = None
) -> Any:
    """Call ``start`` on the background loop, await what it returns, and give the result back to this thread.

    Args:
        start: Returns an awaitable; one with ``interrupt`` is stopped by it when this thread is interrupted.
        beside: Given that awaitable, what goes on beside it when it takes long, until it is over.

    Raises:
        RuntimeError: Called on the background loop's own thread, which would wait for itself.
    """
    if _background.is_here():
        raise RuntimeError(
            "run_sync() was called on the loop that runs it and would wait for ever: await run() instead"
        )
    loop = _background.loop()
    running: list[Any] = []

    async def outcome() -> tuple[Any, BaseException | None]:
        awaitable = start()
        running.append(awaitable)
        tasks: list[asyncio.Task[None]] = []
        timer: asyncio.TimerHandle | None = None
        if beside is not None:
            begin = partial(beside, awaitable)
            timer = loop.call_later(SECONDS_ALONE, lambda: tasks.append(loop.create_task(begin())))
        try:
            return await awaitable, None
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised by a step: it is for the caller, and would end the background loop if it went on from here.
            return None, error
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks:
                task.cancel()

    future = asyncio.run_coroutine_threadsafe(outcome(), loop)
    try:
        result, error = future.result()
    except (KeyboardInterrupt, SystemExit):
        _cancel(loop, running, future)
        raise
    if error is not None:
        raise error
    return result


def _cancel(loop: asyncio.AbstractEventLoop, running: list[Any], future: "concurrent.futures.Future[Any]") -> None:
    interrupt = getattr(running[0], "interrupt", None) if running else None
    if interrupt is None:
        future.cancel()
        return
    with contextlib.suppress(TimeoutError):  # a step that blocks the loop must not hold the interrupt up for long
        asyncio.run_coroutine_threadsafe(interrupt(), loop).result(timeout=SECONDS_TO_CANCEL)

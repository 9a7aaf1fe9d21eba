"""The bridge from synchronous to asynchronous code: event loops in threads of their own.

It works in scripts, in notebooks and under a running loop, because the caller's loop never waits for itself. Each call
gets an idle loop or a new one, so a step that blocks its loop does not delay other calls. With very many concurrent
calls, only calls of equal nesting depth share a loop, so an inner call never waits for a loop that waits for it.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

__all__ = ["BackgroundLoop", "background_loop", "is_background_thread", "run_on_background_loop", "wait_for_outcome"]


SECONDS_TO_CANCEL = 2.0
"""Seconds that an interrupted caller waits for the steps of the run to clean up."""

SECONDS_TO_LOOK = 1.0
"""Seconds between two looks at a loop that is not a background one: it may have ended."""

_GONE = "The event loop of the run has ended, so run_sync() of the attached workflow cannot come to its end"

SECONDS_ALONE = 0.5
"""A call that takes longer gets its companion, see ``run_on_background_loop``."""

LOOPS_PER_DEPTH = 32
"""So many loops serve the calls of one depth of nesting; more calls at a time share them."""

_depth: ContextVar[int] = ContextVar("batonflow_sync_depth", default=0)


_ENDED = "The background event loop of run_sync() has ended"


class BackgroundLoop:
    """An event loop in a thread that ends with the process.

    Args:
        depth: The nesting depth of the synchronous calls that run here.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # the collector may close a forgotten generator here
        self._awaited: set[concurrent.futures.Future[Any]] = set()
        # The number of running calls on this loop.
        self.calls = 0
        # A daemon, so that an idle loop does not keep the process alive.
        self.thread = threading.Thread(target=self._run, name=f"batonflow-sync-{depth}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.loop.is_closed():
                # sys.exit() in a task and loop.stop() end run_forever(). Other calls need the loop, so it runs again;
                # the caller of the task gets the SystemExit.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        finally:
            with self._lock:
                awaited, self._awaited = self._awaited, set()
            for future in awaited:
                with contextlib.suppress(concurrent.futures.InvalidStateError):
                    future.set_exception(RuntimeError(_ENDED))

    def submit(self, work: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        """Run a coroutine here; its future ends at the latest with the loop."""

        async def deeper() -> Any:
            _depth.set(self.depth + 1)
            return await work

        future = asyncio.run_coroutine_threadsafe(deeper(), self.loop)
        with self._lock:
            self._awaited.add(future)
        future.add_done_callback(self._forget)
        if not self.thread.is_alive():
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                future.set_exception(RuntimeError(_ENDED))
        return future

    def _forget(self, future: "concurrent.futures.Future[Any]") -> None:
        with self._lock:
            self._awaited.discard(future)


class _Loops:
    """The background loops of the process, by depth of nesting."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all loops, after a fork."""
        self._lock = threading.RLock()  # the collector may close a forgotten generator here
        self._by_depth: dict[int, list[BackgroundLoop]] = {}

    def __iter__(self) -> Iterator[BackgroundLoop]:
        with self._lock:
            return iter([one for loops in self._by_depth.values() for one in loops])

    def take(self, *, for_call: bool) -> BackgroundLoop:
        """Return a loop for a synchronous call from this thread: an idle, new or least busy one."""
        here = threading.current_thread()
        around = next(
            (one.depth + 1 for one in self if one.thread is here), 0
        )  # without the context variables of the caller
        depth = max(_depth.get(), around)
        with self._lock:
            loops = self._by_depth.setdefault(depth, [])
            loops[:] = [one for one in loops if one.thread.is_alive()]
            found = next((one for one in loops if not one.calls), None)
            if found is None and len(loops) < LOOPS_PER_DEPTH:
                found = BackgroundLoop(depth)
                loops.append(found)
            if found is None:
                found = min(loops, key=lambda one: one.calls)
            found.calls += for_call
            return found

    def give_back(self, background: BackgroundLoop) -> None:
        """Note that a call on a loop has ended."""
        with self._lock:
            background.calls -= 1


_loops = _Loops()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loops.forget)


def background_loop() -> BackgroundLoop:
    """Return a loop for several synchronous calls, for example the steps of one iterator."""
    return _loops.take(for_call=False)


def is_background_thread() -> bool:
    """Tell whether the current thread runs one of the background loops."""
    here = threading.current_thread()
    return any(known.thread is here for known in _loops)


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except (KeyboardInterrupt, SystemExit) as error:
        # The exit is for the caller; here it would end the background loop's run_forever().
        return None, error


def wait_for_outcome(coroutine: Coroutine[Any, Any, Any], background: BackgroundLoop | None = None) -> Any:
    """Run a coroutine on a background loop, with the caller's context variables, and return its result.

    Ctrl-C cancels it.

    Args:
        coroutine: The coroutine.
        background: The loop to use; by default a loop for a call from this thread.

    Raises:
        RuntimeError: This thread runs the loop, which would wait for itself, or the loop has ended.
    """
    if background is None:
        background = taken = _loops.take(for_call=True)
    else:
        taken = None
    try:
        return _waited_for(coroutine, background)
    finally:
        if taken is not None:
            _loops.give_back(taken)


def _waited_for(coroutine: Coroutine[Any, Any, Any], background: BackgroundLoop) -> Any:
    if background.thread is threading.current_thread():
        coroutine.close()
        raise RuntimeError(
            "A synchronous iterator was continued on the event loop that produces its items. Use the asynchronous "
            "method there (astream_chat for stream_chat)"
        )
    future = background.submit(_outcome(coroutine))
    try:
        result, error = future.result()
    except BaseException:
        # Ctrl-C interrupts this thread while the work goes on in the other one.
        if not future.done():
            future.cancel()
            concurrent.futures.wait([future], timeout=5)
        raise
    if error is not None:
        raise error
    return result


def run_on_background_loop(
    start: Callable[[], Awaitable[Any]],
    beside: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Any:
    """Call ``start`` on a background loop, await its outcome, and return the result to this thread.

    Args:
        start: Returns an awaitable. Its method ``interrupt``, if any, is called when this thread is interrupted.
        beside: Returns a companion for the awaitable, which runs concurrently if the work takes long.
        loop: Another running loop to use, for a workflow that belongs to a run there.

    Raises:
        RuntimeError: The loop has ended.
    """
    running: list[Any] = []

    async def outcome() -> tuple[Any, BaseException | None]:
        here = asyncio.get_running_loop()
        awaitable = start()
        running.append(awaitable)
        tasks: list[asyncio.Task[None]] = []
        timer: asyncio.TimerHandle | None = None
        if beside is not None:
            begin = partial(beside, awaitable)
            timer = here.call_later(SECONDS_ALONE, lambda: tasks.append(here.create_task(begin())))
        try:
            return await _outcome(awaitable)
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks:
                task.cancel()

    taken = None if loop is not None else _loops.take(for_call=True)
    try:
        if taken is not None:
            loop, future = taken.loop, taken.submit(outcome())
        else:
            assert loop is not None
            future = _submitted(outcome(), loop)
        try:
            result, error = _result_of(future, loop)
        except (KeyboardInterrupt, SystemExit):
            _cancel(loop, running, future)
            raise
    finally:
        if taken is not None:
            _loops.give_back(taken)
    if error is not None:
        raise error
    return result


def _submitted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> "concurrent.futures.Future[Any]":
    try:
        return asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:  # the loop was closed
        work.close()
        raise RuntimeError(_GONE) from error


def _result_of(future: "concurrent.futures.Future[Any]", loop: asyncio.AbstractEventLoop) -> Any:
    """Wait for a future of a loop of the program, which may end at any time."""
    while True:
        concurrent.futures.wait([future], SECONDS_TO_LOOK)
        if future.done():
            return future.result()
        if loop.is_closed():
            raise RuntimeError(_GONE)


def _cancel(loop: asyncio.AbstractEventLoop, running: list[Any], future: "concurrent.futures.Future[Any]") -> None:
    interrupt = getattr(running[0], "interrupt", None) if running else None
    if interrupt is None:
        future.cancel()
        return
    with contextlib.suppress(TimeoutError):  # a step that blocks the loop must not delay the interrupt for long
        asyncio.run_coroutine_threadsafe(interrupt(), loop).result(timeout=SECONDS_TO_CANCEL)

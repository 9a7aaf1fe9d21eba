"""Threads for the synchronous code of steps, tools, memories and models.

Each call gets a thread at once: an idle thread or a new one. ``num_workers`` bounds the calls per step and run, so no
call waits here for another call, and its time counts from its start. The default pool of the event loop stays free; it
also looks up host names.

A thread cannot be stopped. If its caller is cancelled, for example after a timeout, the thread is abandoned: it goes
on, is counted under the name of its function, and does not keep the process alive.
"""

import asyncio
import concurrent.futures
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from typing_extensions import override

from batonflow.instrumentation.logs import logger_named

__all__ = ["abandoned_threads", "call_in_thread", "in_thread", "start_in_thread"]

# The engine replaces this function: it can name the run and the step that call.
_caller_in_words: Callable[[], str] = str


def name_callers_by(describe: Callable[[], str]) -> None:
    """Set the function that names the caller in warnings of abandoned calls.

    Args:
        describe: Returns the name of the caller after a blank, or an empty text.
    """
    global _caller_in_words  # noqa: PLW0603 - set by the engine, which this module cannot import
    _caller_in_words = describe


P = ParamSpec("P")
T = TypeVar("T")

SECONDS_IDLE = 10.0
"""Seconds that a thread without work stays for the next call."""

logger = logger_named("batonflow.workflow")


class _Call:
    """One call of a function, with the future of its outcome."""

    __slots__ = ("function", "future")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run(self) -> Callable[[], None] | None:
        """Call the function, and return a function that delivers the outcome."""
        if not self.future.set_running_or_notify_cancel():
            return None
        try:
            result = self.function()
        except StopIteration as error:  # a future refuses StopIteration
            raised = RuntimeError("A synchronous function raised StopIteration")
            raised.__cause__ = error
            return partial(self.future.set_exception, raised)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, which awaits the future
            return partial(self.future.set_exception, error)
        return partial(self.future.set_result, result)


class _Worker(threading.Thread):
    """A thread that runs one call after another, and ends after some idle seconds."""

    def __init__(self, threads: "_Threads", first: _Call) -> None:
        # A daemon, so that a call without end does not keep the process alive.
        super().__init__(name="batonflow-sync-work", daemon=True)
        self._threads = threads
        self.calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self.calls.put(first)

    @override
    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=SECONDS_IDLE)
            except queue.Empty:
                if self._threads.retire(self):
                    return
                continue  # a call arrived meanwhile
            deliver = call.run()
            del call
            # Becomes idle before the outcome is delivered, so that the caller's next call can use this thread.
            self._threads.idle(self)
            if deliver is not None:
                deliver()
            del deliver  # an idle thread must not hold values of the last call


class _Threads(concurrent.futures.Executor):
    """The threads of the process. It is an executor, so that event loops can await calls."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all threads, after a fork."""
        self._lock = threading.RLock()  # reentrant, as the garbage collector may end a call here
        self._idle: list[_Worker] = []
        self.abandoned: Counter[str] = Counter()

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "concurrent.futures.Future[T]":
        call = _Call(partial(fn, *args, **kwargs) if args or kwargs else fn)
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                worker.calls.put(call)  # inside the lock, as a worker may retire while it has no call
        if worker is None:
            try:
                _Worker(self, call).start()
            except RuntimeError as error:
                raise RuntimeError(
                    f"No thread could be started for synchronous work: {threading.active_count()} threads are alive, "
                    f"{self.abandoned.total()} of them abandoned by calls that timed out ({error}). Lower "
                    "num_workers or num_concurrent_runs, or let the functions give up by themselves"
                ) from error
        return call.future

    def idle(self, worker: _Worker) -> None:
        """Keep a thread for the next call."""
        with self._lock:
            self._idle.append(worker)

    def retire(self, worker: _Worker) -> bool:
        """Let an idle thread end, unless it has a new call."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def begun(self, call: "_Watched") -> None:
        """Note that a call has its thread."""
        with self._lock:
            call.state = "running"

    def abandon(self, name: str, call: "_Watched") -> None:
        """Count an abandoned call until it ends."""
        with self._lock:
            if call.state != "running":
                return
            call.state = "abandoned"
            self.abandoned[name] += 1
            count = self.abandoned.total()
        logger.warning(
            "%s goes on in its thread although its caller%s has given it up; a thread cannot be stopped "
            "(%d such threads in this process)",
            name,
            _caller_in_words(),
            count,
        )

    def ended(self, name: str, call: "_Watched") -> None:
        """Note that a call has returned or raised."""
        with self._lock:
            if call.state == "abandoned":
                self.abandoned[name] -= 1
                if not self.abandoned[name]:
                    del self.abandoned[name]
            call.state = "ended"


class _Watched:
    """A call that can be abandoned.

    Args:
        name: Names it in the log.
        function: The function.
    """

    __slots__ = ("_function", "_name", "state")

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self._name = name
        self._function = function
        self.state = "waiting"

    def __call__(self) -> Any:
        _threads.begun(self)
        try:
            return self._function()
        finally:
            _threads.ended(self._name, self)

    def abandon(self) -> None:
        """Note that the caller no longer waits."""
        _threads.abandon(self._name, self)


_threads = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


def abandoned_threads() -> dict[str, int]:
    """Return the number of abandoned threads that still run, by the name of the function.

    Example:
        >>> abandoned_threads()
        {'fetch': 2}
    """
    return dict(_threads.abandoned)


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a synchronous function in a thread, with the context variables of the caller.

    Args:
        function: The function; the log names it if the call is abandoned.
        args: Passed on.
        kwargs: Passed on.

    Raises:
        RuntimeError: The system cannot start another thread, or the function raised StopIteration.

    Example:
        >>> await in_thread(json.load, file)
    """
    call: Callable[[], T] = partial(function, *args, **kwargs) if args or kwargs else function
    return await call_in_thread(call, getattr(function, "__qualname__", None) or repr(function))


async def call_in_thread(call: Callable[[], T], name: str) -> T:
    """Call a function without arguments in a thread; see ``in_thread``.

    Args:
        call: The function.
        name: The name for the log if the call is abandoned.
    """
    watched = _Watched(name, partial(copy_context().run, call))
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, watched)
    except asyncio.CancelledError:
        watched.abandon()
        raise


def start_in_thread(function: Callable[[], T]) -> "concurrent.futures.Future[T]":
    """Call a function in a thread without waiting, and return the future of its outcome."""
    return _threads.submit(function)

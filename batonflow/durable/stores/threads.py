"""Threads that carry out the operations of a store, in the order in which they were queued."""

import asyncio
import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from batonflow.instrumentation.logs import logger_named
from batonflow.workflow_core.errors import StoreError

__all__ = ["Done", "HeldLeases", "Job", "StoreThreads", "forget_all", "outcome"]

Done: TypeAlias = Callable[[Any, BaseException | None], None]

_logger = logger_named("batonflow.store")


@dataclass(slots=True)
class Job:
    """A queued operation.

    Attributes:
        operation: Called with the session of the thread, perhaps more than once.
        done: Receives the result or the error, once.
        is_patient: Whether it waits for the end of an outage for as long as the commits of driven runs do.
        is_finished: Whether it has received them.
        stuck_since: When a lock of another session kept it from being carried out for the first time.
    """

    operation: Callable[[Any], Any]
    done: Done
    is_patient: bool = True
    is_finished: bool = False
    stuck_since: float | None = None

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Deliver the outcome; an error of the receiver does not end the thread."""
        self.is_finished = True
        try:
            self.done(result, error)
        except Exception:
            _logger.exception("The receiver of a store's result raised an error")


class StoreThreads:
    """Threads that carry out queued jobs; they are started when jobs need them.

    Args:
        where: The place of the store, for messages.
        most: The largest number of threads.
    """

    name: ClassVar[str]

    def __init__(self, where: str, most: int) -> None:
        self._where = where
        self._most = most
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._callbacks: list[Callable[[], None]] = []
        self._running = 0
        self._waiting = 0
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Queue a job, from any thread.

        Raises:
            StoreError: The store is closed.
        """
        with self._guard:
            self.check_open()
            if self._waiting > 0:
                self._waiting -= 1
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._run_to_end, name=f"batonflow-store-{self.name}", daemon=True)
                self._threads.append(thread)
                self._running += 1
                thread.start()
                if len(self._threads) == 1:
                    _begun[self.name].add(self)
            self._jobs.put(job)

    def check_open(self) -> None:
        """Raise an error if the store is closed.

        Raises:
            StoreError: The store is closed.
        """
        if self._stopped:
            raise StoreError(f"The store at {self._where} is closed: open another one")

    def stop(self) -> None:
        """Let the threads end when all queued jobs are done."""
        with self._guard:
            if not self._stopped:
                self._stopped = True
                for _ in self._threads:
                    self._jobs.put(None)

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the threads."""
        for thread in self._threads:
            thread.join(seconds)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call back on the last of the threads, at its end; at once when no thread runs."""
        with self._guard:
            if self._running:
                self._callbacks.append(callback)
                return
        callback()

    def _run_to_end(self) -> None:
        try:
            self._run()
        finally:
            with self._guard:
                self._running -= 1
                callbacks = [] if self._running else self._callbacks
            for callback in callbacks:
                callback()

    def _run(self) -> None:
        """Carry out jobs until None comes."""
        raise NotImplementedError


class HeldLeases:
    """The runs whose leases are renewed automatically."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, tuple[int, Callable[[], None] | None]] = {}
        self.dropped: dict[str, int] = {}  # epochs of runs that left memory in an outage, until they are given back

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, run_id: str, epoch: int, lost: Callable[[], None] | None) -> None:
        """Renew the lease of a run from now on."""
        with self._guard:
            self._held[run_id] = epoch, lost

    def let_go(self, run_id: str, *, is_dropped: bool = False) -> None:
        """Stop the automatic renewal of a run's lease."""
        with self._guard:
            held = self._held.pop(run_id, None)
            if held is not None and is_dropped:
                self.dropped[run_id] = held[0]

    def epochs(self) -> dict[str, int]:
        """Return the epochs of the held runs by their ids."""
        with self._guard:
            return {run_id: epoch for run_id, (epoch, _) in self._held.items()}

    def tell_lost(self, lost: list[tuple[str, int]] | None, _: BaseException | None = None) -> None:
        """Call back for the runs that were lost, by id and epoch."""
        for run_id, epoch in lost or ():
            with self._guard:
                held = self._held.get(run_id)
                if held is None or held[0] != epoch:
                    continue
                del self._held[run_id]
            if held[1] is not None:
                held[1]()


async def outcome(threads: StoreThreads, operate: Callable[[Any], Any], *, is_patient: bool = True) -> Any:
    """Run an operation in a thread, and wait for it. It is also completed if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(result: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(_resolve, future, result, error)
        except RuntimeError:
            return  # the event loop was closed

    threads.submit(Job(operate, done, is_patient))
    return await future


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


# A reader of SQLite that closes after the writer leaves the log behind, so readers come first.
_begun: "dict[str, weakref.WeakSet[StoreThreads]]" = {"reader": weakref.WeakSet(), "writer": weakref.WeakSet()}


def _finish_all() -> None:
    """Write the queued operations before the interpreter ends."""
    for each in [each for begun in _begun.values() for each in begun]:
        each.stop()
        each.join(10.0)


atexit.register(_finish_all)


def forget_all() -> None:
    """Start again in a forked child, which has no threads."""
    for begun in _begun.values():
        begun.clear()

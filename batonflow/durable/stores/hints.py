"""Signals for readers that wait for changes of runs. A signal may be lost or false, so readers check for changes."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from weakref import WeakMethod

from batonflow.durable.store_protocol import Changes

__all__ = ["Bell", "Hints"]

MOST_RECENT = 1000
"""The number of appends whose changes are kept."""

QUESTION_SECONDS = 5.0
"""The time for which a question of a reader holds."""


class Bell:
    """A signal from any thread for a coroutine on the event loop of its creation."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rung = False

    def ring(self) -> None:
        """Let ``wait`` return, now or at its next call."""
        if self._rung:
            return
        self._rung = True
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float | None = None) -> None:
        """Return after a signal since the last call, or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        # A signal before this line is not lost, because the caller checks for changes afterwards.
        self._event.clear()
        self._rung = False


class Hints:
    """Waiting readers by run.

    Args:
        begun: Called when a reader begins to wait, to start polling for other processes.
    """

    def __init__(self, begun: Callable[[], None] = lambda: None) -> None:
        self.appends = 0
        """Grows with everything that is appended, as far as it is heard of."""
        # The last of them: the runs with new items, or None for any, and whether a run may be ready.
        self._recent: deque[tuple[frozenset[str] | None, bool]] = deque(maxlen=MOST_RECENT)
        self._begun = begun
        self._lock = threading.Lock()
        self._for_appends: set[Bell] = set()
        self._for_runs: dict[str, set[Bell]] = {}
        self._live: dict[str, set[Callable[[str], None]]] = {}
        self._asked: list[WeakMethod[Callable[[str, int, int], None]]] = []
        # The last questions of readers, for a connection that is made when the first of its runs is claimed.
        self._questions: deque[tuple[float, str, int, int]] = deque(maxlen=100)

    @property
    def wanted(self) -> bool:
        """Tell whether a reader waits."""
        return bool(self._for_appends or self._for_runs)

    def appended(self, runs: Iterable[str] | None = None, *, ready: bool = True) -> None:
        """Signal that items were appended to inboxes, or that a run is ready.

        Args:
            runs: The runs with new items; None for any.
            ready: Whether a run may be ready.
        """
        with self._lock:
            self.appends += 1
            self._recent.append((None if runs is None else frozenset(runs), ready))
            bells = list(self._for_appends)
        for bell in bells:
            bell.ring()

    def close(self) -> None:
        """Wake all readers at the end."""
        self.appended()
        self.anything()

    def committed(self, run_ids: Iterable[str]) -> None:
        """Signal that runs have new commits, are over, or are deleted."""
        if not self._for_runs:
            return
        with self._lock:
            bells = [bell for run_id in run_ids for bell in self._for_runs.get(run_id, ())]
        for bell in bells:
            bell.ring()

    def anything(self) -> None:
        """Signal that another process has committed."""
        with self._lock:
            bells = [bell for listening in self._for_runs.values() for bell in listening]
        for bell in bells:
            bell.ring()

    @contextmanager
    def listening(self, run_id: str) -> Generator[Bell]:
        """Return a signal for the commits of a run."""
        bell = Bell()
        with self._lock:
            self._for_runs.setdefault(run_id, set()).add(bell)
        self._begun()
        try:
            yield bell
        finally:
            with self._lock:
                bells = self._for_runs[run_id]
                bells.discard(bell)
                if not bells:
                    del self._for_runs[run_id]

    @property
    def wants_live(self) -> bool:
        """Tell whether a reader follows a run that another process drives."""
        return bool(self._live)

    def follow_live(self, run_id: str, heard: Callable[[str], None]) -> Callable[[], None]:
        """See ``LiveStore.follow_live``."""
        with self._lock:
            self._live.setdefault(run_id, set()).add(heard)

        def leave() -> None:
            with self._lock:
                readers = self._live.get(run_id, set())
                readers.discard(heard)
                if not readers:
                    self._live.pop(run_id, None)

        self._begun()
        return leave

    def told_live(self, run_id: str, message: str) -> None:
        """Pass a message about a run to its readers."""
        with self._lock:
            readers = list(self._live.get(run_id, ()))
        for heard in readers:
            heard(message)

    def when_asked(self, asked: Callable[[str, int, int], None]) -> None:
        """See ``LiveStore.when_asked``."""
        with self._lock:
            self._asked = [known for known in self._asked if known() is not None] + [WeakMethod(asked)]
            questions = list(self._questions)
        for at, run_id, after, commit in questions:
            if at > time.monotonic() - QUESTION_SECONDS:
                asked(run_id, after, commit)

    def asked_live(self, run_id: str, after: int, commit: int) -> None:
        """Pass a question of a reader to the connections of this process."""
        with self._lock:
            known = list(self._asked)
            self._questions.append((time.monotonic(), run_id, after, commit))
        for weak in known:
            if (asked := weak()) is not None:
                asked(run_id, after, commit)

    async def changed(self, seen: int) -> Changes:
        """See ``RunStore.changed``."""
        if self.appends != seen:
            return self._changes_after(seen)
        bell = Bell()
        with self._lock:
            self._for_appends.add(bell)
        self._begun()
        try:
            while self.appends == seen:
                await bell.wait()
        finally:
            with self._lock:
                self._for_appends.discard(bell)
        return self._changes_after(seen)

    def _changes_after(self, seen: int) -> Changes:
        with self._lock:
            number, recent = self.appends, list(self._recent)
        new = recent[seen - number :]
        if not 0 <= seen < number or number - seen > len(recent):
            return Changes(number, None, ready=True)
        known = [runs for runs, _ in new if runs is not None]
        runs = frozenset(run_id for one in known for run_id in one) if len(known) == len(new) else None
        return Changes(number, runs, ready=any(ready for _, ready in new))

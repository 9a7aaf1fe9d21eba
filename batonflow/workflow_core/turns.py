"""The queue of a workflow's runs with a limit on active runs."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import Context as ContextVars
from functools import partial
from typing import NamedTuple

from batonflow.workflow_core.engine.state import Causes, current_item
from batonflow.workflow_core.engine.ticks import EventArrived
from batonflow.workflow_core.events import Event
from batonflow.workflow_core.options import Options
from batonflow.workflow_core.run import Run

__all__ = ["Turns"]


class _Watch(NamedTuple):
    """A task that detects the end of its event loop."""

    task: "asyncio.Task[None]"
    over: asyncio.Event


class Turns:
    """The active and the waiting runs of one workflow, on any number of event loops."""

    __slots__ = ("_active", "_lock", "_options", "_pending", "_watches")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.RLock()
        # The ids of active runs; a set of runs would keep abandoned ones alive. Each change is atomic.
        self._active: set[int] = set()
        self._pending: OrderedDict[Run, tuple[Event | None, str | None, Causes]] = OrderedDict()
        # The watches of event loops with waiting runs.
        self._watches: dict[asyncio.AbstractEventLoop, _Watch] = {}

    @property
    def active(self) -> int:
        """The number of active runs."""
        return len(self._active)

    @property
    def pending(self) -> int:
        """The number of runs that wait for their turn."""
        return len(self._pending)

    def launch(self, run: Run, event: Event | None, step: str | None = None, causes: Causes = ()) -> None:
        """Begin a run now, or when an active run ends. A restored run has no event."""
        limit = self._options.num_concurrent_runs
        if limit is None:
            self._active.add(id(run))
            run.begin(event, step, causes)
            return
        with self._lock:
            may_begin = len(self._active) < limit
            if may_begin:
                self._active.add(id(run))
            else:
                self._pending[run] = event, step, causes
                self._watch(run.loop)
        if may_begin:
            run.begin(event, step, causes)
        elif event is not None:  # for snapshots that are taken before its turn
            run.state.running = True
            run.state.restored_ticks = [EventArrived(event, step)]
        if not may_begin:
            self.check(run)

    def check(self, run: Run) -> None:
        """Warn of a run that may wait for ever. All active runs wait for further runs of the workflow."""
        limit = self._options.num_concurrent_runs
        with self._lock:
            if limit is None or run not in self._pending or run.ending.awaited_in is None:
                return
            awaited_in = {waiting.ending.awaited_in for waiting in self._pending}
            callers = {one for caller in awaited_in for one in _callers(caller)}
            held = [one for one in callers if one.workflow.__batonflow__.turns is self and one not in self._pending]
            if len(held) < len(self._active):
                return
        name = type(run.workflow).__name__
        run.ending.warn(
            f"the run waits for its turn, and may wait for ever: num_concurrent_runs={limit}, and every active run "
            f"waits in a step for another run of the same workflow. Give {name}(...) a larger num_concurrent_runs, or "
            f"run another instance of {name} inside the step"
        )

    def ended(self, run: Run) -> None:
        """Forget a finished run, and let the next waiting runs begin."""
        self._options.runtime.discard(run)
        if self._options.num_concurrent_runs is None and not self._pending:
            self._active.discard(id(run))
            return
        with self._lock:
            if run in self._pending:
                del self._pending[run]
            else:
                self._active.discard(id(run))
        self._let_begin()
        with self._lock:
            if self._watches and not any(one.loop is run.loop for one in self._pending):
                watch = self._watches.pop(run.loop, None)
                if watch is not None:  # the task ends by itself, because programs may await all tasks
                    watch.over.set()

    def _has_room(self) -> bool:
        limit = self._options.num_concurrent_runs
        return limit is None or len(self._active) < limit

    def _let_begin(self) -> None:
        """Begin the waiting runs of this event loop, and wake the event loops of runs before them."""
        woken: set[asyncio.AbstractEventLoop] = set()
        while True:
            with self._lock:
                waiting = (one for one in self._pending if one.loop not in woken and self._goes_on(one.loop))
                following = next(waiting, None)
                if following is None or not self._has_room():
                    return
                if following.thread_id != threading.get_ident():
                    # A run begins on its own loop and keeps its place until then.
                    woken.add(following.loop)
                    if self._wake(following.loop):
                        return
                    continue
                self._active.add(id(following))
                event, step, causes = self._pending.pop(following)
            following.begin(event, step, causes)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> bool:
        try:
            loop.call_soon_threadsafe(self._let_begin)
        except RuntimeError:  # the loop has just been closed
            return False
        return True

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch for the end of a loop, which cancels all of its tasks at once."""
        known = self._watches.get(loop)
        if known is None or known.task.done():
            self._watches = {one: watch for one, watch in self._watches.items() if not one.is_closed()}
            over = asyncio.Event()
            task = loop.create_task(_until(over), name="batonflow-queue", context=ContextVars())
            task.add_done_callback(partial(self._loop_ended, loop))
            self._watches[loop] = _Watch(task, over)

    def _goes_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        watch = self._watches.get(loop)
        return watch is not None and not (loop.is_closed() or watch.task.done() or watch.task.cancelling())

    def _loop_ended(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
        """End the waiting runs of an ended loop; stored runs can be resumed."""
        with self._lock:
            watch = self._watches.get(loop)
            if watch is None or watch.task is not task:
                return  # no run waits there any more
            waiting = [one for one in self._pending if one.loop is loop]
        for run in waiting:
            if run.root.drive is None:
                run.ending.cancel()
            else:
                run.root.ending.interrupted("as its event loop ended before its turn came")
        with self._lock:
            self._watches.pop(loop, None)
        self._let_begin()


def _callers(caller: Run | None) -> Iterator[Run]:
    """Yield a run with a step that waits for another run, then its own callers."""
    while caller is not None and not caller.ending.over:
        yield caller
        if caller.family is not None and caller.family.parent is not None:
            caller = caller.family.parent.run
        else:
            item = caller.variables.get(current_item)
            caller = None if item is None else item.run


async def _until(over: asyncio.Event) -> None:
    await over.wait()

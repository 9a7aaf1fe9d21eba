"""``ctx.map``: a function over many items, with a record of each result, and the progress of a step."""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from batonflow.retrying import RetryPolicy, next_delay
from batonflow.threads import call_in_thread
from batonflow.values.exceptions import RunNote
from batonflow.values.types import check_whole, is_seconds
from batonflow.workflow_core.context.once import name_of_call, run_once
from batonflow.workflow_core.engine.state import Waiter, WorkItem
from batonflow.workflow_core.engine.ticks import WorkerLent, WorkerWanted
from batonflow.workflow_core.errors import StepCancelledError, StepTimeoutError
from batonflow.workflow_core.map_results import MapError, Progress, StepProgress
from batonflow.workflow_core.run import Run

__all__ = ["progress_of", "run_map"]

SECONDS_BETWEEN = 0.12
"""The least time between two ``StepProgress`` events of a step."""

PER_SECOND = 10
"""The most ``StepProgress`` events of a step in a second."""


class _StepCounts:
    """The counts of the maps of one step: the items done and all items, by delivery and map."""

    __slots__ = ("_attempts", "maps", "shown")

    def __init__(self) -> None:
        self.maps: dict[tuple[int, str], list[int]] = {}
        self._attempts: dict[tuple[int, str], tuple[Any, ...]] = {}
        # The times of the last events.
        self.shown: deque[float] = deque(maxlen=PER_SECOND)

    def begin(self, run: Run, item: WorkItem, name: str, total: int) -> list[int]:
        """Count a map, and forget the maps of earlier deliveries.

        Raises:
            ValueError: The attempt has another map of this name, whose results it would get.
        """
        attempt = (id(item), item.started_at, 0 if item.failures is None else item.failures.count)
        if self._attempts.get((item.id, name)) == attempt:
            raise ValueError(
                f"map(): step {item.spec.name} has a second map with the key {name!r}: give it another key"
            )
        kept = {place: found for place, found in self.maps.items() if place[0] in run.state.items}
        kept[item.id, name] = counts = [0, total]
        self.maps = kept
        self._attempts = {place: known for place, known in self._attempts.items() if place in kept}
        self._attempts[item.id, name] = attempt
        return counts

    def may_show(self, now: float, *, is_last: bool) -> bool:
        """Tell whether an event may be streamed now; the last one of a map comes earlier than others."""
        shown = self.shown
        if len(shown) == PER_SECOND and now - shown[0] < 1.0:
            return False
        if shown and now - shown[-1] < SECONDS_BETWEEN and not is_last:
            return False
        shown.append(now)
        return True

    def sums(self) -> tuple[int, int]:
        done = sum(counts[0] for counts in self.maps.values())
        return done, sum(counts[1] for counts in self.maps.values())


_COUNTS: WeakKeyDictionary[Run, dict[str, _StepCounts]] = WeakKeyDictionary()


def progress_of(run: Run) -> list[Progress]:
    """Return the progress of all steps of a run that have used ``ctx.map``."""
    return [Progress(step, *counts.sums()) for step, counts in _COUNTS.get(run.root, {}).items()]


async def run_map(
    run: Run,
    item: WorkItem,
    fn: Callable[[Any], Any],
    items: Any,
    *,
    workers: int,
    retry: RetryPolicy | None,
    timeout: float | None,
    on_error: str,
    key: str,
) -> list[Any]:
    """Call ``fn`` for each item; see ``Context.map``."""
    check_whole(workers, "map(): workers is a whole number, 1 or more", least=1)
    given: Any = retry
    if given is not None and (isinstance(given, type) or not isinstance(given, RetryPolicy)):
        raise TypeError(f"map(): retry takes a policy such as retry_policy(stop=stop_after_attempt(3)), got {given!r}")
    if timeout is not None and not is_seconds(timeout):
        raise TypeError(f"map(): timeout takes seconds, or None for no limit, got {timeout!r}")
    if on_error not in ("raise", "collect"):
        raise ValueError(f'map(): on_error is "raise" or "collect", got {on_error!r}')
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"map(): key takes a text, got {key!r}")
    if not callable(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"map(): fn takes a function of one item that returns its result, got {fn!r}")
    if isinstance(items, set | frozenset) or not isinstance(items, Iterable):
        raise TypeError(
            f"map(): items takes a list, or another iterable with the same order in each process, got {items!r:.80}"
        )
    given_items: list[Any] = list(cast("Iterable[Any]", items))
    return await _Map(run, item, fn, given_items, key, retry, timeout, collects=on_error == "collect").results(workers)


class _Map:
    """One call of ``ctx.map``."""

    def __init__(
        self,
        run: Run,
        item: WorkItem,
        fn: Callable[[Any], Any],
        items: list[Any],
        key: str,
        retry: RetryPolicy | None,
        timeout: float | None,
        *,
        collects: bool,
    ) -> None:
        self._run, self._item, self._fn, self._items = run, item, fn, items
        self._retry, self._timeout, self._collects = retry, timeout, collects
        self._name = name_of_call(item, "map", key)
        self._results: list[Any] = [None] * len(items)
        self._step = f"{run.path}.{item.spec.name}" if run.path else item.spec.name
        self._shared = _COUNTS.setdefault(run.root, {}).setdefault(self._step, _StepCounts())
        self._counts = self._shared.begin(run, item, self._name, len(items))

    async def results(self, workers: int) -> list[Any]:
        """Call the function for all items without a record. Return the results in the order of the items."""
        recorded = self._item.make_progress().once or {}
        left: list[int] = []
        for index in range(len(self._items)):
            known = recorded.get(self._key(index), _ABSENT)
            if known is _ABSENT or isinstance(known, asyncio.Future):
                left.append(index)
            else:
                self._results[index] = known
        self._counts[0] = len(self._items) - len(left)
        if left:
            await self._with_lent_worker(left, min(workers, len(left)))
        return self._results

    def _key(self, index: int) -> str:
        return f"{self._name}[{index}]"

    async def _with_lent_worker(self, left: list[int], workers: int) -> None:
        run, item = self._run, self._item
        waiter = Waiter(None, self._name, StepProgress, {}, item, None)
        lends = item.worker >= 0  # otherwise a map around this one has lent it
        if lends:
            run.start_all(WorkerLent(item))
        try:
            await self._call_all(iter(left), workers)
            if lends:
                waiter.futures.append(asyncio.get_running_loop().create_future())
                run.start_all(WorkerWanted(waiter))
                await waiter.futures[0]
        except BaseException:
            if lends and not run.ending.over and not run.is_from_before_release(item) and item.worker < 0:
                waiter.futures.clear()
                run.start_all(WorkerWanted(waiter))
            raise

    async def _call_all(self, left: Iterator[int], workers: int) -> None:
        """Call with several tasks; the first failure cancels the others."""
        tasks = [asyncio.ensure_future(self._work(left)) for _ in range(workers)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        failed = next((task for task in tasks if not task.cancelled() and task.exception() is not None), None)
        if failed is not None:
            failed.result()
        if any(task.cancelled() for task in tasks):
            raise StepCancelledError(f"A call of map() in step {self._item.spec.name} raised CancelledError by itself")

    async def _work(self, left: Iterator[int]) -> None:
        for index in left:
            call = partial(self._collected if self._collects else self._called, index)
            self._results[index] = await run_once(self._run, self._item, self._key(index), call, ())
            self._counts[0] += 1
            self._show()

    async def _collected(self, index: int) -> Any:
        try:
            return await self._called(index)
        except Exception as error:  # noqa: BLE001 - the caller asked for the failures of its function
            return MapError(index=index, error=error)

    async def _called(self, index: int) -> Any:
        """Call the function for an item, with its retries."""
        run, began, failures = self._run, self._run.now(), 0
        while True:
            try:
                return await self._attempt(index)
            except Exception as error:
                failures += 1
                delay = None
                if self._retry is not None:
                    seed = f"{run.state.run_id}:{self._step}:{self._key(index)}:{failures}"
                    delay = next_delay(self._retry, max(0.0, run.now() - began), failures, error, seed)
                if delay is None:
                    error.add_note(RunNote(f"item {index} of map()"))
                    raise
            await asyncio.sleep(max(0.0, delay))

    async def _attempt(self, index: int) -> Any:
        fn, value = self._fn, self._items[index]
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                if _is_async(fn):
                    return await fn(value)
                found = await call_in_thread(partial(fn, value), getattr(fn, "__qualname__", repr(fn)))
                return await found if inspect.isawaitable(found) else found
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"Item {index} of map() in step {self._step} took longer than its timeout of {self._timeout} seconds"
            raise StepTimeoutError(text) from error

    def _show(self) -> None:
        run, item = self._run, self._item
        if run.ending.over or not self._shared.may_show(run.now(), is_last=self._counts[0] == self._counts[1]):
            return
        done, total = self._shared.sums()
        event = StepProgress(step=self._step, done=done, total=total)
        if item.segment is not None:  # without a number, as the next attempt streams other events
            item.segment.streamed.append((0, event, run.root.stream.seq, run.now()))
        run.publish(event, item.spec.name, item.id)


_ABSENT: Any = object()


def _is_async(fn: Any) -> bool:
    """Tell whether calling a function gives a coroutine; also for partials, methods and objects with ``__call__``."""
    while isinstance(fn, partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004

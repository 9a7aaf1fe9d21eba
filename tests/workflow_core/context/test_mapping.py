"""ctx.map: a function over many items, with each result kept, and handler.progress()."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from batonflow.workflow_core import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    MapError,
    MemoryStore,
    StartEvent,
    StepProgress,
    StepTimeoutError,
    StopEvent,
    Workflow,
    step,
)
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.workflow_core.flows import resume, saved, streamed, until


class Mapping(Workflow):
    """Maps a function of the test over some items."""

    def __init__(self, fn: Callable[[Any], Any], items: Sequence[Any] = (1, 2, 3), **options: Any) -> None:
        super().__init__()
        self._fn, self._items, self._options = fn, items, options

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.map(self._fn, self._items, **self._options))


async def test_results_have_the_order_of_the_items() -> None:
    async def later_first(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        return number * 10

    assert await Mapping(later_first, iter([1, 2, 3])).run() == [10, 20, 30]


async def test_an_empty_map_has_no_results() -> None:
    assert await Mapping(str, []).run() == []


async def test_workers_is_the_number_of_calls_at_a_time() -> None:
    running: list[int] = []
    most = 0

    async def call(number: int) -> None:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.remove(number)

    await Mapping(call, range(20), workers=3).run()
    assert most == 3


async def test_synchronous_functions_run_in_threads() -> None:
    def where(_: int) -> str:
        time.sleep(0.01)
        return threading.current_thread().name

    found = await Mapping(where, range(4)).run()
    assert all(name != threading.current_thread().name for name in found)


async def test_partials_and_callable_objects_may_be_asynchronous() -> None:
    async def add(more: int, number: int) -> int:
        return number + more

    class Doubles:
        async def __call__(self, number: int) -> int:
            return number * 2

    assert await Mapping(partial(add, 5)).run() == [6, 7, 8]
    assert await Mapping(Doubles()).run() == [2, 4, 6]
    assert await Mapping(lambda number: add(1, number)).run() == [2, 3, 4]


async def test_the_first_failure_is_raised_and_cancels_the_other_calls() -> None:
    cancelled: list[int] = []

    async def call(number: int) -> None:
        if number == 2:
            raise ValueError("two is not wanted")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    with pytest.raises(ValueError, match="two is not wanted"):
        await Mapping(call).run()
    assert sorted(cancelled) == [1, 3]


async def test_collect_puts_a_map_error_in_the_place_of_a_failed_item() -> None:
    def half(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    first, second, third = await Mapping(half, on_error="collect").run()
    assert second == 1
    assert isinstance(first, MapError)
    assert (first.index, str(first)) == (0, "item 0: ValueError: 1 is odd")
    assert isinstance(third.error, ValueError)


async def test_an_item_is_retried_by_the_policy() -> None:
    calls: list[int] = []

    def fails_twice(number: int) -> int:
        calls.append(number)
        if calls.count(number) < 3:
            raise ConnectionError("try again")
        return number

    assert await Mapping(fails_twice, retry=retry_policy(stop=stop_after_attempt(3), wait=wait_none())).run()
    assert sorted(calls) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_each_attempt_of_an_item_has_the_timeout() -> None:
    async def slow(number: int) -> int:
        await asyncio.sleep(30 if number == 2 else 0)
        return number

    with pytest.raises(StepTimeoutError, match=r"Item 1 of map\(\) in step work took longer than its timeout of 0.01"):
        await Mapping(slow, timeout=0.01).run()


async def test_a_timeout_error_of_the_function_stays_its_own() -> None:
    async def raises(_: int) -> None:
        raise TimeoutError("of the service")

    with pytest.raises(TimeoutError, match="of the service"):
        await Mapping(raises, timeout=30).run()


async def test_a_repeated_step_calls_only_for_items_without_a_result() -> None:
    calls: list[int] = []

    class Flow(Workflow):
        @step(retry_policy=retry_policy(stop=stop_after_attempt(2), wait=wait_none()))
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            def call(number: int) -> int:
                calls.append(number)
                if number == 3 and calls.count(3) == 1:
                    raise ConnectionError("once")
                return number

            return StopEvent(result=await ctx.map(call, [1, 2, 3], workers=1))

    assert await Flow().run() == [1, 2, 3]
    assert calls == [1, 2, 3, 3]


async def test_two_maps_and_a_map_inside_of_a_map_have_results_of_their_own() -> None:
    class Flow(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def row(number: int) -> list[int]:
                return await ctx.map(lambda other: number * other, [1, 2], key="row")

            first = await ctx.map(lambda number: number + 1, [1, 2])
            return StopEvent(result=[first, await ctx.map(row, [3, 4])])

    assert await Flow().run() == [[2, 3], [[3, 6], [4, 8]]]


class Ping(Event):
    number: int


class Slots(Workflow):
    """Two deliveries for a step with one worker."""

    def __init__(self, call: Callable[[int], Awaitable[int]]) -> None:
        super().__init__()
        self._call = call
        self.after = 0
        self.most_after = 0

    @step
    async def begin(self, ev: StartEvent) -> list[Ping]:
        return [Ping(number=1), Ping(number=2)]

    @step(num_workers=1)
    async def one_at_a_time(self, ctx: Context, ev: Ping) -> HumanResponseEvent:
        await ctx.map(self._call, [ev.number])
        self.after += 1
        self.most_after = max(self.after, self.most_after)
        await asyncio.sleep(0.01)
        self.after -= 1
        return HumanResponseEvent(response=str(ev.number))

    @step
    async def end(self, evs: list[HumanResponseEvent]) -> StopEvent:
        return StopEvent(result=len(evs))


async def test_the_worker_of_the_step_is_free_during_the_map() -> None:
    both = asyncio.Barrier(2)

    async def call(number: int) -> int:
        await both.wait()  # needs both deliveries
        return number

    flow = Slots(call)
    assert await flow.run() == 2
    assert flow.most_after == 1  # and afterwards each delivery needs the worker again


async def test_a_run_in_a_map_counts_as_busy() -> None:
    gate = asyncio.Event()
    handler = Mapping(lambda _: gate.wait()).run()
    await until(lambda: handler.progress())
    await asyncio.sleep(0.01)
    assert not handler.is_waiting
    gate.set()
    assert await handler == [True] * 3


async def test_a_step_goes_on_after_it_gave_up_a_map() -> None:
    class Flow(Workflow):
        @step(num_workers=1)
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                async with asyncio.timeout(0.01):
                    await ctx.map(asyncio.sleep, [30])
            except TimeoutError:
                answer = await ctx.wait_for_event(HumanResponseEvent, InputRequiredEvent())
            return StopEvent(result=answer.response)

    handler = Flow().run()
    async for request in handler.inputs():
        request.respond("yes")
    assert await handler == "yes"


async def test_a_call_may_wait_for_an_event_of_its_own() -> None:
    class Flow(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def ask(name: str) -> str:
                answer = await ctx.wait_for_event(
                    HumanResponseEvent, InputRequiredEvent(prefix=name), requirements={"name": name}
                )
                return answer.response

            return StopEvent(result=await ctx.map(ask, ["a", "b"]))

    handler = Flow().run()
    async for request in handler.inputs():
        request.respond(f"for {request.event.prefix}")
    assert await handler == ["for a", "for b"]


async def test_a_snapshot_in_mid_map_keeps_the_results() -> None:
    gate = asyncio.Event()
    calls: list[int] = []

    async def call(number: int) -> int:
        calls.append(number)
        if number == 3:
            await gate.wait()
        return number

    handler = Mapping(call).run()
    await until(lambda: handler.progress() == [("work", 2, 3)])
    payload = saved(handler)
    await handler.cancel_run()
    gate.set()
    again = resume(Mapping(call), payload)
    assert await again == [1, 2, 3]
    assert calls == [1, 2, 3, 3]
    assert again.progress() == [("work", 3, 3)]


async def test_results_are_recorded_as_they_come() -> None:
    gate = asyncio.Event()
    calls: list[int] = []

    async def call(number: int) -> int:
        calls.append(number)
        if number == 3:
            if not gate.is_set():
                await gate.wait()
            raise LookupError("three")
        return number

    store = MemoryStore()
    first = Mapping(call, on_error="collect").with_store(store).run(run_id="a")
    await until(lambda: first.progress() == [("work", 2, 3)])
    await first.interrupt()
    gate.set()
    results = await Mapping(call, on_error="collect").with_store(store).resume("a")
    assert results[:2] == [1, 2]
    assert (results[2].index, str(results[2].error)) == (2, "three")
    assert calls == [1, 2, 3, 3]


async def test_progress_is_streamed_at_most_ten_times_a_second() -> None:
    handler = Mapping(lambda _: asyncio.sleep(0.005), range(100), workers=1).run()
    began = time.monotonic()
    shown = [event for event in await streamed(handler) if isinstance(event, StepProgress)]
    assert 2 <= len(shown) <= 10 * (1 + time.monotonic() - began)
    assert (shown[-1].step, shown[-1].done, shown[-1].total) == ("work", 100, 100)
    assert [event.done for event in shown] == sorted(event.done for event in shown)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"workers": 0}, ValueError, "workers is a whole number, 1 or more"),
        ({"workers": "2"}, TypeError, "workers is a whole number"),
        ({"retry": 3}, TypeError, "retry takes a policy"),
        ({"timeout": -1}, TypeError, "timeout takes seconds"),
        ({"on_error": "ignore"}, ValueError, 'on_error is "raise" or "collect"'),
        ({"key": 1}, TypeError, "key takes a text"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await Mapping(str, **options).run()


async def test_once_in_the_function_of_a_map_is_once_for_each_item() -> None:
    sent: list[int] = []

    class Mailing(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async def mail(number: int) -> int:
                return await ctx.once("mail", send, number)

            async def send(number: int) -> int:
                sent.append(number)
                return number * 10

            return StopEvent(result=await ctx.map(mail, [1, 2, 3]))

    assert await Mailing().run() == [10, 20, 30]
    assert sent == [1, 2, 3]


@pytest.mark.parametrize("items", [{1, 2}, frozenset([1]), 5])
async def test_items_have_an_order(items: Any) -> None:
    with pytest.raises(TypeError, match=r"map\(\): items takes a list"):
        await Mapping(str, items).run()


async def test_a_failure_names_its_item() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await Mapping(lambda number: 1 // number, [1, 0]).run()
    assert "item 1 of map()" in caught.value.__notes__


async def test_a_second_map_needs_a_key_of_its_own() -> None:
    class Twice(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            first = await ctx.map(str, [1], key="rows")
            with pytest.raises(ValueError, match="step work has a second map with the key 'rows': give it another key"):
                await ctx.map(str, [2], key="rows")
            return StopEvent(result=[first, await ctx.map(str, [2], key="other"), await ctx.map(str, [3])])

    assert await Twice().run() == [["1"], ["2"], ["3"]]

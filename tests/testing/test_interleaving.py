"""run_seeded: other orders from other seeds, the same one from the same seed, within what asyncio promises."""

import asyncio
import random
import threading

import pytest

from batonflow.testing import SeededRun, run_seeded
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, step

SEEDS = range(40)


class Letter(Event):
    name: str


class Race(Workflow):
    """Three steps at once; the result is the order in which they arrived."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Letter | None:
        for name in "abc":
            ctx.send_event(Letter(name=name))
        return None

    @step
    async def run_to_the_goal(self, ctx: Context, ev: Letter) -> StopEvent | None:
        await asyncio.sleep(1)
        arrived = await ctx.store.get("arrived", "") + ev.name
        await ctx.store.set("arrived", arrived)
        return StopEvent(result=arrived) if len(arrived) == 3 else None


async def race(_: random.Random) -> str:
    return await Race().run()


def test_seeds_explore_every_order_of_three_steps():
    assert {run_seeded(race, seed).result for seed in range(100)} == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_equal_seeds_give_equal_results_and_tick_logs():
    for seed in SEEDS:
        first, second = run_seeded(race, seed), run_seeded(race, seed)
        assert (first.result, first.ticks) == (second.result, second.ticks)


def test_the_tick_log_says_what_happened_and_differs_between_orders():
    found = run_seeded(race, 0)
    assert isinstance(found, SeededRun)
    assert found.seed == 0
    assert found.ticks[:2] == ["event StartEvent -> *", "event Letter -> *"]
    assert found.ticks[-1].startswith("returned <run_to_the_goal#")
    assert sum(line.startswith("returned <run_to_the_goal#") for line in found.ticks) == 3
    assert len({tuple(run_seeded(race, seed).ticks) for seed in SEEDS}) >= 5


def test_the_dice_of_a_seed_repeat():
    async def throw(dice: random.Random) -> list[int]:
        return [dice.randrange(6) for _ in range(20)]

    assert run_seeded(throw, 5).result == run_seeded(throw, 5).result != run_seeded(throw, 6).result


def test_tasks_that_outlive_the_coroutine_are_named():
    async def careless(_: random.Random) -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(100), name="forgotten")

    assert run_seeded(careless, 1).tasks_left == ["forgotten"]
    assert run_seeded(race, 1).tasks_left == []


def test_plain_callbacks_keep_their_order():
    async def calls(_: random.Random) -> list[int]:
        done: list[int] = []
        for number in range(10):
            asyncio.get_running_loop().call_soon(done.append, number)
        await asyncio.sleep(0)
        return done

    for seed in SEEDS:
        assert run_seeded(calls, seed).result == list(range(10))


def test_what_a_thread_sends_while_the_order_is_drawn_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    came: list[str] = []

    async def go(dice: random.Random) -> None:
        loop, drawn = asyncio.get_running_loop(), random.Random.shuffle

        def while_it_is_drawn(self: random.Random, group: list[object]) -> None:
            if not came:
                came.append("sent")
                thread = threading.Thread(target=loop.call_soon_threadsafe, args=(came.append, "came"))
                thread.start()
                thread.join()
            drawn(self, group)

        monkeypatch.setattr(random.Random, "shuffle", while_it_is_drawn)
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        await asyncio.sleep(0)

    run_seeded(go, 1)
    assert came == ["sent", "came"]


def test_no_task_passes_a_callback():
    async def mixed(_: random.Random) -> list[str]:
        loop = asyncio.get_running_loop()
        done: list[str] = []

        async def task(name: str) -> None:
            done.append(name)

        tasks = [loop.create_task(task(name)) for name in "ab"]
        loop.call_soon(done.append, "|")
        tasks += [loop.create_task(task(name)) for name in "cd"]
        await asyncio.gather(*tasks)
        return ["".join(sorted(half)) for half in "".join(done).split("|")]

    for seed in SEEDS:
        assert run_seeded(mixed, seed).result == ["ab", "cd"]


class Beat(Event):
    left: int


class Hops(Workflow):
    @step
    async def hop(self, ev: StartEvent | Beat) -> Beat | StopEvent:
        left = ev.left - 1 if isinstance(ev, Beat) else 10
        return Beat(left=left) if left else StopEvent()


async def two_chains(_: random.Random) -> None:
    await asyncio.gather(Hops().run(run_id="a").stop_event_result(), Hops().run(run_id="b").stop_event_result())


def test_chains_that_never_pause_are_interleaved_too():
    # Without forced yields between steps each chain would run to its end in one turn of the loop.
    assert len({tuple(run_seeded(two_chains, seed).ticks) for seed in SEEDS}) > len(SEEDS) / 2


def test_errors_come_out():
    async def fail(_: random.Random) -> None:
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        run_seeded(fail, 0)

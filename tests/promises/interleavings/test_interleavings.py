"""Whatever the order of the steps: each delivery is handled once, nothing is lost or left, the result is right.

``make soak`` explores many times as many orders.
"""

import pytest

from tests.promises.interleavings.exploring import explore, interrupts
from tests.promises.interleavings.workflows import PROGRAMS

SEEDS = range(40)
MORE_SEEDS = range(100)


@pytest.mark.soak
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_many_orders_every_delivery_is_handled_once(name, soaks):
    seeds = MORE_SEEDS if soaks else SEEDS
    orders: set[tuple[str, ...]] = set()
    restores = 0
    for seed in seeds:
        found = explore(PROGRAMS[name], seed)
        orders.add(tuple(found.ticks))
        restores += found.result
    # Otherwise this would test one order again and again.
    assert len(orders) >= 0.75 * len(seeds)
    assert restores >= 0.15 * len(seeds)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_seed_repeats_its_run_tick_by_tick(name):
    for seed in (0, 1, 2, 4, 9, 12, 14):
        assert explore(PROGRAMS[name], seed).ticks == explore(PROGRAMS[name], seed).ticks


def test_the_seeds_cover_whole_runs_and_runs_restored_once_and_twice():
    assert {interrupts(seed) for seed in SEEDS} == {0, 1, 2}

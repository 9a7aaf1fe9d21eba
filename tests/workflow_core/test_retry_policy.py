"""Retry policies: conditions, waits, stops, and how they compare with the installed tenacity."""

import inspect
import math
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from batonflow.workflow_core import retry_policy as ours
from batonflow.workflow_core.retry_policy import (
    ConstantDelayRetryPolicy,
    ExponentialBackoffRetryPolicy,
    RetryPolicy,
    next_delay,
    retry_all,
    retry_always,
    retry_any,
    retry_if_exception,
    retry_if_exception_cause_type,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_if_not_exception_message,
    retry_if_not_exception_type,
    retry_never,
    retry_policy,
    retry_unless_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    stop_any,
    stop_before_delay,
    stop_never,
    wait_chain,
    wait_combine,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_full_jitter,
    wait_incrementing,
    wait_none,
    wait_random,
    wait_random_exponential,
)
from tests.contract import contract

ERROR = ValueError("the disk is full")


def delays(policy: RetryPolicy, failures: int, *, seed: int | None = None) -> list[float | None]:
    """What the policy answers to the first, second, ... failure, all at once."""
    return [policy.next(0.0, attempt, ERROR, seed=seed) for attempt in range(1, failures + 1)]


# --- policies ---


@contract("8.0")
def test_without_arguments_three_attempts_are_made_five_seconds_apart() -> None:
    assert delays(retry_policy(), 4) == [5.0, 5.0, None, None]
    assert isinstance(retry_policy(), RetryPolicy)


@contract("8.0")
def test_the_condition_is_asked_before_the_wait_and_the_wait_before_the_stop() -> None:
    asked: list[Any] = []

    def condition(error: BaseException) -> bool:
        asked.append(("retry", error))
        return True

    def wait(attempts: int, *, seed: int | None = None) -> float:
        asked.append(("wait", attempts, seed))
        return 7.0

    def stop(attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        asked.append(("stop", attempts, elapsed_time, upcoming_sleep))
        return False

    assert retry_policy(condition, wait, stop).next(2.5, 3, ERROR, seed=11) == 7.0
    assert asked == [("retry", ERROR), ("wait", 2, 11), ("stop", 3, 2.5, 7.0)]


@contract("8.0")
def test_a_refused_error_neither_waits_nor_asks_the_stop() -> None:
    def never_asked(*_: object, **__: object) -> Any:
        raise AssertionError

    assert retry_policy(retry_if_exception_type(KeyError), never_asked, never_asked).next(0.0, 1, ERROR) is None


@contract("8.0")
def test_the_engine_gives_the_seed_only_to_policies_that_take_it() -> None:
    class Plain:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
            return elapsed_time + attempts

    class Seeded:
        def next(
            self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None
        ) -> float | None:
            return float(isinstance(seed, int))

    class Open:
        def next(self, elapsed_time: float, attempts: int, error: Exception, **rest: Any) -> float | None:
            return float(set(rest) == {"seed"})

    for _ in range(2):  # the second time the answer is remembered
        assert next_delay(Plain(), 2.0, 1, ERROR, "run:step:1") == 3.0  # type: ignore[arg-type]
        assert next_delay(Seeded(), 2.0, 1, ERROR, "run:step:1") == 1.0
        assert next_delay(Open(), 2.0, 1, ERROR, "run:step:1") == 1.0


@contract("8.0")
def test_the_engine_passes_the_answer_on_unchanged() -> None:
    class GivesUp:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
            return None

    assert next_delay(GivesUp(), 0.0, 1, ERROR, "s") is None  # type: ignore[arg-type]
    assert next_delay(retry_policy(wait=wait_none()), 0.0, 1, ERROR, "s") == 0.0


# --- conditions ---


@contract("8.1")
def test_conditions_on_the_type_of_an_error() -> None:
    assert retry_if_exception_type()(ERROR)
    assert retry_if_exception_type((KeyError, ValueError))(ERROR)
    assert not retry_if_exception_type(KeyError)(ERROR)
    assert not retry_if_exception_type()(KeyboardInterrupt())
    for but in (retry_if_not_exception_type, retry_unless_exception_type):
        assert but(KeyError)(ERROR)
        assert not but(ValueError)(ERROR)
        assert not but()(ERROR)


@contract("8.1")
def test_a_condition_of_ones_own() -> None:
    condition = retry_if_exception(lambda error: "disk" in str(error))
    assert condition(ERROR)
    assert not condition(ValueError("network"))


@contract("8.1")
def test_conditions_on_the_message() -> None:
    assert retry_if_exception_message("the disk is full")(ERROR)
    assert not retry_if_exception_message(message="disk")(ERROR)
    assert retry_if_exception_message(match="disk")(ERROR), "a pattern may be found anywhere in the message"
    assert retry_if_exception_message(match=re.compile("DISK", re.IGNORECASE))(ERROR)
    assert not retry_if_exception_message(match="^disk")(ERROR)
    assert not retry_if_not_exception_message(message="the disk is full")(ERROR)
    assert not retry_if_not_exception_message(match="disk")(ERROR)
    assert retry_if_not_exception_message(match="network")(ERROR)
    assert retry_if_exception_message(message="")(ValueError())


@contract("8.1")
@pytest.mark.parametrize("condition", [retry_if_exception_message, retry_if_not_exception_message])
def test_a_message_condition_takes_one_of_message_and_match(condition: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=f"{condition.__name__}.*either 'message' or 'match', not both"):
        condition("a", "b")
    with pytest.raises(TypeError, match=f"{condition.__name__}.*missing 1 required argument 'message' or 'match'"):
        condition()


@contract("8.1")
def test_a_cause_is_looked_for_along_the_chain_but_not_in_the_error_itself_or_its_context() -> None:
    top, middle, root = ValueError(), RuntimeError(), OSError()
    top.__cause__, middle.__cause__ = middle, root
    assert retry_if_exception_cause_type(OSError)(top)
    assert not retry_if_exception_cause_type(ValueError)(top)
    beside = ValueError()
    beside.__context__ = root
    assert not retry_if_exception_cause_type(OSError)(beside)
    top.__cause__ = top
    assert not retry_if_exception_cause_type(OSError)(top), "a circle ends"


@contract("8.1")
def test_conditions_combine() -> None:
    value, disk = retry_if_exception_type(ValueError), retry_if_exception_message(match="disk")
    assert (value & disk)(ERROR)
    assert not (value & disk)(ValueError("network"))
    assert (value | disk)(OSError("disk"))
    assert not (value | disk)(OSError("network"))
    assert retry_any(retry_never(), value)(ERROR)
    assert not retry_all(retry_always(), value)(KeyError())
    assert not retry_any()(ERROR)
    assert retry_all()(ERROR)


@contract("8.1")
def test_a_plain_function_combines_with_a_condition_on_either_side() -> None:
    def about_disks(error: BaseException) -> bool:
        return "disk" in str(error)

    value = retry_if_exception_type(ValueError)
    for both in (about_disks & value, value & about_disks):
        assert both(ERROR)
        assert not both(ValueError("network"))
    for either in (about_disks | value, value | about_disks):
        assert either(OSError("disk"))
        assert not either(OSError("network"))


# --- waits ---


@contract("8.2")
def test_fixed_waits() -> None:
    assert wait_fixed(3)(0) == wait_fixed(timedelta(seconds=3))(9) == 3.0
    assert wait_none()(4) == 0.0


@contract("8.2")
def test_growing_waits_count_retries_from_zero() -> None:
    assert [wait_exponential()(retry) for retry in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [wait_exponential(0.5, 3, max=10, min=1)(retry) for retry in range(5)] == [1, 1.5, 4.5, 10, 10]
    assert [wait_incrementing(1, 10, 25)(retry) for retry in range(5)] == [1, 11, 21, 25, 25]
    assert wait_incrementing()(1000) == 100_000
    assert wait_incrementing(start=5, increment=-10)(3) == 0.0
    minute = timedelta(minutes=1)
    assert wait_exponential(max=minute, min=minute)(0) == 60
    assert wait_incrementing(minute, minute, 3 * minute)(9) == 180


@contract("8.2")
def test_a_wait_after_thousands_of_retries_is_the_longest_one() -> None:
    assert wait_exponential()(5000) == 60
    assert wait_exponential_jitter()(5000, seed=1) == 60
    assert wait_exponential(max=math.inf)(5000) == math.inf


@contract("8.2")
def test_random_waits_lie_within_their_bounds() -> None:
    for seed in range(200):
        assert 2 <= wait_random(2, timedelta(seconds=3))(0, seed=seed) <= 3
        assert 1 <= wait_random_exponential(2, max=10, min=1)(2, seed=seed) <= 8
        assert 4 <= wait_exponential_jitter(max=100, jitter=timedelta(seconds=3))(2, seed=seed) <= 7
        assert wait_exponential_jitter(max=5, jitter=3)(9, seed=seed) == 5
    assert len({wait_random()(0) for _ in range(20)}) > 1
    assert len({wait_random()(0, seed=seed) for seed in range(20)}) > 1
    assert 0 <= wait_full_jitter(max=2)(5, seed=1) <= 2


@contract("8.2")
def test_the_policy_counts_the_first_retry_as_zero() -> None:
    assert delays(retry_policy(wait=wait_exponential(), stop=stop_never()), 4) == [1, 2, 4, 8]


@contract("8.2")
def test_a_chain_of_waits_stays_with_its_last() -> None:
    chain = wait_chain(wait_fixed(1), wait_exponential(), wait_fixed(9))
    assert [chain(retry) for retry in range(5)] == [1, 2, 9, 9, 9]
    with pytest.raises(ValueError, match="at least one"):
        wait_chain()


@contract("8.2")
def test_waits_add_up() -> None:
    def odd(attempts: int, *, seed: int | None = None) -> float:
        return attempts % 2

    assert (wait_fixed(1) + wait_exponential())(2) == 5
    assert (odd + wait_fixed(1))(3) == (wait_fixed(1) + odd)(3) == 2
    assert sum([wait_fixed(1), wait_fixed(2), wait_fixed(3)])(0) == 6  # type: ignore[operator]
    assert wait_combine(wait_fixed(1), wait_fixed(timedelta(seconds=2)))(0) == 3
    assert wait_combine()(0) == 0
    with pytest.raises(TypeError):
        1 + wait_fixed(1)


@contract("8.2", "8.5")
def test_the_seed_reaches_waits_inside_of_waits() -> None:
    wait = wait_chain(wait_random() + wait_fixed(1))
    assert wait(0, seed=5) == wait(0, seed=5) != wait(0, seed=6)


# --- stops ---


@contract("8.3")
def test_stops() -> None:
    assert [stop_after_attempt(3)(failures, 0.0) for failures in (1, 2, 3, 4)] == [False, False, True, True]
    for limit in (10, timedelta(seconds=10)):
        assert [stop_after_delay(limit)(1, elapsed) for elapsed in (0, 9.9, 10, 11)] == [False, False, True, True]
        before = stop_before_delay(limit)
        assert [before(1, elapsed, upcoming_sleep=5.0) for elapsed in (0, 4.9, 5, 6)] == [False, False, True, True]
    assert not stop_never()(10**6, 1e9)


@contract("8.3")
def test_stop_before_delay_reckons_with_the_wait_that_would_come() -> None:
    policy = retry_policy(wait=wait_fixed(5), stop=stop_before_delay(10))
    assert [policy.next(elapsed, 1, ERROR) for elapsed in (0.0, 4.9, 5.0)] == [5.0, 5.0, None]


@contract("8.3")
def test_stops_combine() -> None:
    def stormy(attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        return elapsed_time > 100

    three, minute = stop_after_attempt(3), stop_after_delay(60)
    assert (three | minute)(3, 0)
    assert (three | minute)(1, 60)
    assert not (three | minute)(2, 59)
    assert (three & minute)(3, 60)
    assert not (three & minute)(3, 59)
    for either in (stormy | three, three | stormy, stop_any(stormy, three)):
        assert either(1, 101)
        assert not either(1, 1)
    for both in (stormy & three, three & stormy, stop_all(stormy, three)):
        assert both(3, 101)
        assert not both(3, 1)
    assert (stop_before_delay(10) | three)(1, 5, upcoming_sleep=5)
    assert not stop_any()(1, 1)
    assert stop_all()(1, 1)


# --- tenacity ---

_SAME = [
    "retry_all",
    "retry_any",
    "retry_if_exception",
    "retry_if_exception_cause_type",
    "retry_if_exception_message",
    "retry_if_exception_type",
    "retry_if_not_exception_message",
    "retry_if_not_exception_type",
    "retry_unless_exception_type",
    "stop_after_attempt",
    "stop_after_delay",
    "stop_all",
    "stop_any",
    "stop_before_delay",
    "wait_chain",
    "wait_combine",
    "wait_exponential",
    "wait_exponential_jitter",
    "wait_fixed",
    "wait_full_jitter",
    "wait_incrementing",
    "wait_none",
    "wait_random",
    "wait_random_exponential",
]


@contract("8.3")
@pytest.mark.parametrize("name", _SAME)
def test_the_parameters_of_a_strategy_have_tenacitys_names(name: str) -> None:
    here = inspect.signature(getattr(ours, name)).parameters
    there = inspect.signature(getattr(tenacity, name)).parameters
    assert set(here) <= set(there)
    assert [parameter.kind for parameter in here.values()] == [there[each].kind for each in here]


def test_every_strategy_of_tenacity_for_errors_is_here() -> None:
    of_results = {"retry_if_result", "retry_if_not_result"}
    needs_more_than_numbers = {"wait_exception", "stop_when_event_set"}
    theirs = {name for name in dir(tenacity) if re.match(r"(retry|wait|stop)_", name)} - of_results
    assert theirs - needs_more_than_numbers - {"retry_base", "stop_base", "wait_base"} <= set(ours.__all__)


def _tenacity_state(failures: int, elapsed: float, upcoming_sleep: float) -> tenacity.RetryCallState:
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number, state.start_time, state.upcoming_sleep = failures, 0.0, upcoming_sleep
    state.set_exception((ValueError, ERROR, None))
    state.outcome_timestamp = elapsed
    return state


_NUMBERS = st.floats(min_value=0, max_value=1000, allow_nan=False)


@contract("8.2")
@given(retry=st.integers(0, 2000), first=_NUMBERS, second=_NUMBERS, low=_NUMBERS, high=_NUMBERS)
def test_waits_are_as_long_as_tenacitys(retry: int, first: float, second: float, low: float, high: float) -> None:
    state = _tenacity_state(retry + 1, 0.0, 0.0)
    pairs: list[tuple[Any, Any]] = [
        (wait_fixed(first), tenacity.wait_fixed(first)),
        (
            wait_exponential(multiplier=first, exp_base=second, max=high, min=low),
            tenacity.wait_exponential(multiplier=first, exp_base=second, max=high, min=low),
        ),
        (
            wait_incrementing(start=first, increment=second, max=high),
            tenacity.wait_incrementing(start=first, increment=second, max=high),
        ),
    ]
    for here, there in pairs:
        assert here(retry) == there(state)


@contract("8.2")
@given(retry=st.integers(0, 30), low=_NUMBERS, high=_NUMBERS, seed=st.integers(0, 1000))
def test_random_waits_are_drawn_as_tenacity_draws_them(retry: int, low: float, high: float, seed: int) -> None:
    state = _tenacity_state(retry + 1, 0.0, 0.0)
    pairs: list[tuple[Any, Any]] = [
        (wait_random(low, high), tenacity.wait_random(low, high)),
        (wait_random_exponential(max=high, min=low), tenacity.wait_random_exponential(max=high, min=low)),
        (wait_exponential_jitter(max=high, jitter=low), tenacity.wait_exponential_jitter(max=high, jitter=low)),
    ]
    before = random.getstate()
    try:
        for here, there in pairs:
            random.seed(seed)
            assert here(retry, seed=seed) == pytest.approx(there(state))
    finally:
        random.setstate(before)


@contract("8.3")
@given(failures=st.integers(1, 10), elapsed=_NUMBERS, sleep=_NUMBERS, attempts=st.integers(1, 10), limit=_NUMBERS)
def test_stops_give_up_when_tenacitys_do(
    failures: int, elapsed: float, sleep: float, attempts: int, limit: float
) -> None:
    state = _tenacity_state(failures, elapsed, sleep)
    pairs: list[tuple[Any, Any]] = [
        (stop_after_attempt(attempts), tenacity.stop_after_attempt(attempts)),
        (stop_after_delay(limit), tenacity.stop_after_delay(limit)),
        (stop_before_delay(limit), tenacity.stop_before_delay(limit)),
    ]
    pairs.append((pairs[0][0] | pairs[1][0], pairs[0][1] | pairs[1][1]))
    pairs.append((pairs[0][0] & pairs[2][0], pairs[0][1] & pairs[2][1]))
    for here, there in pairs:
        assert here(failures, elapsed, upcoming_sleep=sleep) == there(state)


@contract("8.3")
def test_tenacitys_own_strategies_are_taken() -> None:
    policy = retry_policy(
        tenacity.retry_if_exception_type(ValueError), tenacity.wait_exponential(), tenacity.stop_after_attempt(3)
    )
    assert delays(policy, 3) == [1, 2, None]
    assert policy.next(0.0, 1, KeyError()) is None
    mixed = retry_policy(
        retry_if_exception_type(ValueError) & tenacity.retry_if_exception_message(match="the"),
        wait_fixed(1) + tenacity.wait_fixed(2),
        stop_after_attempt(5) | tenacity.stop_after_delay(10),
    )
    assert mixed.next(9.0, 1, ERROR) == 3
    assert mixed.next(10.0, 1, ERROR) is None
    assert mixed.next(0.0, 1, ValueError("a disk")) is None


@contract("8.3")
def test_never_and_always_may_be_named_without_calling_them() -> None:
    assert delays(retry_policy(retry_always, wait_none(), stop_never), 4) == [0, 0, 0, 0]
    assert delays(retry_policy(retry_never, wait_none(), tenacity.stop_never), 1) == [None]
    assert (stop_after_attempt(2) | stop_never)(2, 0)
    assert not (retry_always() & tenacity.retry_never)(ERROR)


# --- deprecated factories ---


@contract("8.4")
def test_constant_delay_is_deprecated_and_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"ConstantDelayRetryPolicy is deprecated, use retry_policy\("):
        policy = ConstantDelayRetryPolicy()
    assert delays(policy, 3) == [5, 5, None]
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        assert delays(ConstantDelayRetryPolicy(maximum_attempts=2, delay=0.5), 2) == [0.5, None]


@contract("8.4")
def test_exponential_backoff_is_deprecated_and_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"ExponentialBackoffRetryPolicy is deprecated, use retry_policy\("):
        plain = ExponentialBackoffRetryPolicy(jitter=False)
    assert delays(plain, 5) == [1, 2, 4, 8, None]
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        jittered = ExponentialBackoffRetryPolicy(maximum_attempts=4, initial_delay=2, multiplier=3, max_delay=10)
    waits = [wait or 0.0 for wait in delays(jittered, 4, seed=3)]
    assert all(0 <= wait <= longest for wait, longest in zip(waits, (2, 6, 10, 0), strict=True))
    assert waits == [wait or 0.0 for wait in delays(jittered, 4, seed=3)]
    assert waits != [wait or 0.0 for wait in delays(jittered, 4, seed=4)]


# --- wrong arguments ---


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"wait": 5}, "retry_policy() expects a strategy as wait; got 5"),
        ({"stop": 3}, "retry_policy() expects a strategy as stop; got 3"),
        ({"retry": ValueError}, "Is retry_if_exception_type(ValueError) meant?"),
    ],
)
def test_what_is_not_a_strategy_is_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        retry_policy(**arguments)


# --- repetition and pickling ---


@contract("8.5")
def test_the_same_failure_waits_equally_long_in_another_process() -> None:
    program = (
        "from batonflow.workflow_core.retry_policy import next_delay, retry_policy, wait_random\n"
        "print(repr(next_delay(retry_policy(wait=wait_random(0, 100)), 0.0, 1, ValueError(), 'run:step:1')))"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    policy = retry_policy(wait=wait_random(0, 100))
    assert next_delay(policy, 0.0, 1, ERROR, "run:step:1") == float(other.stdout)
    assert next_delay(policy, 0.0, 1, ERROR, "run:step:2") != float(other.stdout)


def test_policies_survive_pickling() -> None:
    policy = retry_policy(
        (retry_if_exception_type(ValueError) | retry_if_not_exception_type(OSError))
        & retry_if_exception_message(match="disk")
        & retry_if_not_exception_message(message="x"),
        wait_chain(wait_fixed(1), wait_exponential() + wait_incrementing(), wait_random(4, 4)),
        (stop_after_attempt(5) | stop_after_delay(100)) & stop_all(stop_before_delay(0)) | stop_never(),
    )
    copy = pickle.loads(pickle.dumps(policy))
    assert delays(copy, 6) == delays(policy, 6) == [1, 102, 4, 4, None, None]
    assert copy.next(0.0, 1, ValueError("network")) is None

"""Retry policies: conditions, waits and stops that decide when a failed step runs again.

The strategies have tenacity's names and parameters, and tenacity's own objects are accepted in their place. There
are four differences: strategies are called with plain numbers instead of a call state; jitter can be seeded, so that
a replayed run waits equally long; exponential waits are at most 60 seconds by default; and
``match=`` searches the whole message.

Example::

    @step(retry_policy=retry_policy(wait=wait_exponential(max=10) + wait_random(), stop=stop_after_attempt(5)))
    async def fetch(self, ev: StartEvent) -> StopEvent: ...
"""

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias, cast, runtime_checkable

import tenacity
from tenacity.retry import retry_base
from tenacity.stop import stop_base
from tenacity.wait import wait_base
from typing_extensions import override

from batonflow.retrying import RetryInfo, RetryPolicy, next_delay
from batonflow.user_warnings import warn_user

__all__ = [
    "ConstantDelayRetryPolicy",
    "ExponentialBackoffRetryPolicy",
    "RetryCondition",
    "RetryInfo",
    "RetryPolicy",
    "StopCondition",
    "WaitStrategy",
    "next_delay",
    "retry_all",
    "retry_always",
    "retry_any",
    "retry_if_exception",
    "retry_if_exception_cause_type",
    "retry_if_exception_message",
    "retry_if_exception_type",
    "retry_if_not_exception_message",
    "retry_if_not_exception_type",
    "retry_never",
    "retry_policy",
    "retry_unless_exception_type",
    "stop_after_attempt",
    "stop_after_delay",
    "stop_all",
    "stop_any",
    "stop_before_delay",
    "stop_never",
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

Seconds: TypeAlias = int | float | timedelta
ExceptionTypes: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


@runtime_checkable
class RetryCondition(Protocol):
    """Decides whether an error is retried."""

    def __call__(self, error: BaseException) -> bool:
        """Return True if the step may run again after ``error``."""
        ...


@runtime_checkable
class WaitStrategy(Protocol):
    """Determines the wait before a retry."""

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the seconds to wait.

        Args:
            attempts: The number of retries so far: 0 before the first retry.
            seed: The seed of the jitter.
        """
        ...


@runtime_checkable
class StopCondition(Protocol):
    """Decides when to give up."""

    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return True to give up.

        Args:
            attempts: The number of failures so far, from 1.
            elapsed_time: Seconds since the first attempt began.
            upcoming_sleep: The seconds of the wait before the next attempt.
        """
        ...


# A tenacity strategy reads a call state, which refers to a retrying object.
_RETRYING = tenacity.Retrying()


def _call_state(
    attempts: int, *, elapsed: float = 0.0, upcoming_sleep: float = 0.0, error: BaseException | None = None
) -> tenacity.RetryCallState:
    state = tenacity.RetryCallState(_RETRYING, None, (), {})
    state.attempt_number = attempts
    if error is not None:
        state.set_exception((type(error), error, error.__traceback__))
    state.start_time, state.outcome_timestamp = 0.0, elapsed
    state.upcoming_sleep = upcoming_sleep
    return state


# --- conditions -------------------------------------------------------------------------------------------------


class _Condition:
    """A retry condition that can be combined with ``&`` and ``|``."""

    def __init__(self, strategy: retry_base) -> None:
        self._strategy = strategy

    def __call__(self, error: BaseException) -> bool:
        return bool(self._strategy(_call_state(1, error=error)))

    def __and__(self, other: "AnyCondition") -> "retry_all":
        return retry_all(self, other)

    def __rand__(self, other: "AnyCondition") -> "retry_all":
        return retry_all(other, self)

    def __or__(self, other: "AnyCondition") -> "retry_any":
        return retry_any(self, other)

    def __ror__(self, other: "AnyCondition") -> "retry_any":
        return retry_any(other, self)


AnyCondition: TypeAlias = RetryCondition | retry_base | type[_Condition]


def _condition(given: AnyCondition) -> RetryCondition:
    if isinstance(given, retry_base):
        return _Condition(given)
    if isinstance(given, type):
        # tenacity's `retry_never` is an object, here it is a class; both forms are accepted.
        return cast("Callable[[], RetryCondition]", given)()
    return given


class retry_if_exception(_Condition):
    """Retry if ``predicate(error)`` is true."""

    def __init__(self, predicate: Callable[[BaseException], bool]) -> None:
        super().__init__(tenacity.retry_if_exception(predicate))


class retry_if_exception_type(_Condition):
    """Retry errors of the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        super().__init__(tenacity.retry_if_exception_type(exception_types))


class retry_if_not_exception_type(_Condition):
    """Retry errors of all other types than the given ones."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        super().__init__(tenacity.retry_if_not_exception_type(exception_types))


class retry_unless_exception_type(_Condition):
    """Retry until an error of the given types is raised."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        super().__init__(tenacity.retry_unless_exception_type(exception_types))


class retry_if_exception_cause_type(_Condition):
    """Retry if an error in the ``__cause__`` chain, without the error itself, has one of the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        super().__init__(tenacity.retry_if_exception_cause_type(exception_types))


class retry_if_exception_message(_Condition):
    """Retry if the text of the error equals ``message``, or contains the pattern ``match``.

    Raises:
        TypeError: Both or neither of ``message`` and ``match`` are given.
    """

    def __init__(self, message: str | None = None, match: str | re.Pattern[str] | None = None) -> None:
        if message is not None and match is not None:
            raise TypeError(f"{type(self).__name__}() takes either 'message' or 'match', not both")
        if message is None and match is None:
            raise TypeError(f"{type(self).__name__}() missing 1 required argument 'message' or 'match'")
        self._message = message
        self._pattern = None if match is None else re.compile(match)
        super().__init__(tenacity.retry_if_exception(self._fits))

    def _fits(self, error: BaseException) -> bool:
        text = str(error)
        return text == self._message if self._pattern is None else self._pattern.search(text) is not None


class retry_if_not_exception_message(retry_if_exception_message):
    """Retry unless ``retry_if_exception_message`` does, with the same arguments and errors."""

    @override
    def _fits(self, error: BaseException) -> bool:
        return not super()._fits(error)


class retry_any(_Condition):
    """Retry if one of the conditions is true."""

    def __init__(self, *retries: AnyCondition) -> None:
        self._retries = tuple(_condition(each) for each in retries)

    @override
    def __call__(self, error: BaseException) -> bool:
        return any(each(error) for each in self._retries)


class retry_all(_Condition):
    """Retry if all of the conditions are true."""

    def __init__(self, *retries: AnyCondition) -> None:
        self._retries = tuple(_condition(each) for each in retries)

    @override
    def __call__(self, error: BaseException) -> bool:
        return all(each(error) for each in self._retries)


class retry_always(_Condition):
    """Retry every error."""

    def __init__(self) -> None:
        super().__init__(tenacity.retry_always)


class retry_never(_Condition):
    """Retry no error."""

    def __init__(self) -> None:
        super().__init__(tenacity.retry_never)


# --- waits ------------------------------------------------------------------------------------------------------


class _Wait:
    """A wait that supports ``+`` and ``sum()``."""

    def __init__(self, strategy: wait_base) -> None:
        self._strategy = strategy

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:  # noqa: ARG002 - for waits with jitter
        return float(self._strategy(_call_state(attempts + 1)))

    def __add__(self, other: "AnyWait") -> "wait_combine":
        return wait_combine(self, other)

    def __radd__(self, other: "AnyWait | int") -> "_Wait":
        if isinstance(other, int):
            # sum() starts with 0; another number is not a wait.
            return self if other == 0 else NotImplemented
        return wait_combine(other, self)


AnyWait: TypeAlias = WaitStrategy | wait_base


def _wait(given: AnyWait) -> WaitStrategy:
    return _Wait(given) if isinstance(given, wait_base) else given


def _between(low: float, high: float, seed: int | None) -> float:
    draw = random.random() if seed is None else random.Random(seed).random()  # noqa: S311 - jitter, not secrets
    return low + draw * (high - low)


def _seconds(value: Seconds) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


class wait_fixed(_Wait):
    """Wait ``wait`` seconds (or a timedelta) before every retry."""

    def __init__(self, wait: Seconds) -> None:
        super().__init__(tenacity.wait_fixed(wait))


class wait_none(wait_fixed):
    """Retry at once."""

    def __init__(self) -> None:
        super().__init__(0)


class wait_exponential(_Wait):
    """Wait ``multiplier * exp_base ** retries`` seconds, at least ``min`` and at most ``max``."""

    def __init__(self, multiplier: float = 1.0, exp_base: float = 2.0, max: Seconds = 60.0, min: Seconds = 0.0) -> None:
        super().__init__(tenacity.wait_exponential(multiplier=multiplier, max=max, exp_base=exp_base, min=min))


class wait_incrementing(_Wait):
    """Wait ``start`` seconds, plus ``increment`` for each further retry, at most ``max``."""

    def __init__(self, start: Seconds = 0.0, increment: Seconds = 100.0, max: Seconds = math.inf) -> None:
        super().__init__(tenacity.wait_incrementing(start=start, increment=increment, max=max))


class wait_random(_Wait):
    """Wait a random time between ``min`` and ``max`` seconds."""

    def __init__(self, min: Seconds = 0.0, max: Seconds = 1.0) -> None:
        self._min, self._max = _seconds(min), _seconds(max)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        return _between(self._min, self._max, seed)


class wait_random_exponential(wait_exponential):
    """Wait between ``min`` seconds and the time of ``wait_exponential`` (full jitter)."""

    def __init__(self, multiplier: float = 1.0, exp_base: float = 2.0, max: Seconds = 60.0, min: Seconds = 0.0) -> None:
        super().__init__(multiplier, exp_base, max, min)
        self._min = _seconds(min)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        return _between(self._min, super().__call__(attempts), seed)


wait_full_jitter = wait_random_exponential


class wait_exponential_jitter(wait_exponential):
    """Wait ``initial * exp_base ** retries`` plus up to ``jitter`` seconds, at most ``max`` in total."""

    def __init__(self, initial: float = 1.0, exp_base: float = 2.0, max: Seconds = 60.0, jitter: Seconds = 1.0) -> None:
        super().__init__(initial, exp_base, max)
        self._max, self._jitter = _seconds(max), _seconds(jitter)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        return min(super().__call__(attempts) + _between(0.0, self._jitter, seed), self._max)


class wait_chain(_Wait):
    """Use one wait after the other, one per retry; repeat the last one.

    Raises:
        ValueError: There is no wait.
    """

    def __init__(self, *strategies: AnyWait) -> None:
        if not strategies:
            raise ValueError("wait_chain requires at least one strategy")
        self._strategies = tuple(_wait(each) for each in strategies)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        return self._strategies[min(max(attempts, 0), len(self._strategies) - 1)](attempts, seed=seed)


class wait_combine(_Wait):
    """Wait the sum of the given waits."""

    def __init__(self, *strategies: AnyWait) -> None:
        self._strategies = tuple(_wait(each) for each in strategies)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        return float(sum(each(attempts, seed=seed) for each in self._strategies))


# --- stops ------------------------------------------------------------------------------------------------------


class _Stop:
    """A stop that can be combined with ``&`` and ``|``."""

    def __init__(self, strategy: stop_base) -> None:
        self._strategy = strategy

    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        return bool(self._strategy(_call_state(attempts, elapsed=elapsed_time, upcoming_sleep=upcoming_sleep)))

    def __and__(self, other: "AnyStop") -> "stop_all":
        return stop_all(self, other)

    def __rand__(self, other: "AnyStop") -> "stop_all":
        return stop_all(other, self)

    def __or__(self, other: "AnyStop") -> "stop_any":
        return stop_any(self, other)

    def __ror__(self, other: "AnyStop") -> "stop_any":
        return stop_any(other, self)


AnyStop: TypeAlias = StopCondition | stop_base | type[_Stop]


def _stop(given: AnyStop) -> StopCondition:
    if isinstance(given, stop_base):
        return _Stop(given)
    if isinstance(given, type):
        return cast("Callable[[], StopCondition]", given)()
    return given


class stop_after_attempt(_Stop):
    """Give up after ``max_attempt_number`` failures: 3 means the first attempt and two retries."""

    def __init__(self, max_attempt_number: int) -> None:
        super().__init__(tenacity.stop_after_attempt(max_attempt_number))
        self.max_attempt_number = max_attempt_number


class stop_after_delay(_Stop):
    """Give up at a failure ``max_delay`` seconds or more after the start of the first attempt."""

    def __init__(self, max_delay: Seconds) -> None:
        super().__init__(tenacity.stop_after_delay(max_delay))


class stop_before_delay(_Stop):
    """Give up if the next attempt would start ``max_delay`` seconds or more after the first attempt."""

    def __init__(self, max_delay: Seconds) -> None:
        super().__init__(tenacity.stop_before_delay(max_delay))


class stop_any(_Stop):
    """Give up if one of the stops is true."""

    def __init__(self, *stops: AnyStop) -> None:
        self._stops = tuple(_stop(each) for each in stops)

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        return any(each(attempts, elapsed_time, upcoming_sleep=upcoming_sleep) for each in self._stops)


class stop_all(_Stop):
    """Give up if all of the stops are true."""

    def __init__(self, *stops: AnyStop) -> None:
        self._stops = tuple(_stop(each) for each in stops)

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        return all(each(attempts, elapsed_time, upcoming_sleep=upcoming_sleep) for each in self._stops)


class stop_never(_Stop):
    """Never give up."""

    def __init__(self) -> None:
        super().__init__(tenacity.stop_never)


# --- policies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ComposedPolicy:
    """A condition, a wait and a stop, called in this order; the stop gets the next wait."""

    retry: RetryCondition | None
    wait: WaitStrategy
    stop: StopCondition

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        if self.retry is not None and not self.retry(error):
            return None
        delay = self.wait(max(attempts - 1, 0), seed=seed)
        return None if self.stop(attempts, elapsed_time, upcoming_sleep=delay) else delay


def retry_policy(
    retry: AnyCondition | None = None,
    wait: AnyWait = wait_fixed(5),  # noqa: B008 - strategies keep no state
    stop: AnyStop = stop_after_attempt(3),  # noqa: B008
) -> RetryPolicy:
    """Compose a policy for ``@step(retry_policy=...)``.

    Args:
        retry: The condition for a retry; None to retry all errors.
        wait: The wait before a retry; 5 seconds by default.
        stop: The condition to give up; after three attempts by default.

    Example::

        retry_policy(retry=retry_if_exception_type(OSError), wait=wait_exponential(max=10), stop=stop_after_delay(60))

    Raises:
        TypeError: An argument is not a strategy.
    """
    strategies: dict[str, object] = {"retry": retry, "wait": wait, "stop": stop}
    for name, given in strategies.items():
        if given is not None and not callable(given):
            raise TypeError(
                f"retry_policy() expects a strategy as {name}; got {given!r}. See batonflow.workflow_core.retry_policy"
            )
        if isinstance(given, type) and issubclass(given, BaseException):
            raise TypeError(
                f"retry_policy() expects a strategy as {name}; got {given.__name__}. Is "
                f"retry_if_exception_type({given.__name__}) meant?"
            )
    return _ComposedPolicy(None if retry is None else _condition(retry), _wait(wait), _stop(stop))


def _warn_of(name: str, wait: str) -> None:
    instead = f"retry_policy(wait={wait}, stop=stop_after_attempt(n))"
    warn_user(f"{name} is deprecated, use {instead}", DeprecationWarning)


def ConstantDelayRetryPolicy(maximum_attempts: int = 3, delay: float = 5) -> RetryPolicy:  # noqa: N802
    """Deprecated: ``retry_policy(wait=wait_fixed(delay), stop=stop_after_attempt(maximum_attempts))``.

    Args:
        maximum_attempts: The number of attempts in total.
        delay: The seconds before each retry.
    """
    _warn_of("ConstantDelayRetryPolicy", "wait_fixed(delay)")
    return retry_policy(wait=wait_fixed(delay), stop=stop_after_attempt(maximum_attempts))


def ExponentialBackoffRetryPolicy(  # noqa: N802
    maximum_attempts: int = 5,
    initial_delay: float = 1.0,
    multiplier: float = 2.0,
    max_delay: float = 60.0,
    jitter: bool = True,
) -> RetryPolicy:
    """Deprecated: ``retry_policy`` with ``wait_exponential`` or ``wait_random_exponential``.

    Args:
        maximum_attempts: The number of attempts in total.
        initial_delay: The seconds before the first retry.
        multiplier: The factor between one wait and the next.
        max_delay: The longest wait in seconds.
        jitter: Whether to wait a random part of the time.
    """
    _warn_of("ExponentialBackoffRetryPolicy", "wait_exponential(...)")
    wait = wait_random_exponential if jitter else wait_exponential
    return retry_policy(wait=wait(initial_delay, multiplier, max_delay), stop=stop_after_attempt(maximum_attempts))

"""Retries of failed steps: the policy that decides about them, and the failures so far."""

import inspect
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

__all__ = ["RetryInfo", "RetryPolicy", "next_delay"]


@dataclass(frozen=True, slots=True)
class RetryInfo:
    """The failed attempts before the current attempt of a step.

    Attributes:
        retry_number: The number of failures; 0 in the first attempt.
        elapsed_seconds: Seconds since the start of the first attempt.
        last_exception: The exception of the last attempt.
        last_failed_at: The time of the last failure, in UTC.
    """

    retry_number: int = 0
    elapsed_seconds: float = 0.0
    last_exception: BaseException | None = None
    last_failed_at: datetime | None = None


@runtime_checkable
class RetryPolicy(Protocol):
    """Decides after each failure of a step when it runs again."""

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            elapsed_time: Seconds since the start of the first attempt.
            attempts: The number of failures, including this one: 1 after the first.
            error: The exception of the step.
            seed: The seed of the jitter. Policies may omit this parameter.
        """
        ...


_TAKES_SEED: WeakKeyDictionary[type[RetryPolicy], bool] = WeakKeyDictionary()


def _takes_seed(policy_class: type[RetryPolicy]) -> bool:
    takes = _TAKES_SEED.get(policy_class)
    if takes is None:
        parameters = inspect.signature(policy_class.next).parameters
        takes = "seed" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        _TAKES_SEED[policy_class] = takes
    return takes


def next_delay(policy: RetryPolicy, elapsed: float, attempts: int, error: Exception, seed: str) -> float | None:
    """Return the delay of a policy after a failure.

    Args:
        policy: A retry policy, with or without the parameter ``seed`` of ``next``.
        elapsed: Seconds since the start of the first attempt.
        attempts: The number of failures, from 1.
        error: The exception of the step.
        seed: A name for this failure; equal names give equal jitter.

    Returns:
        Seconds to wait before the next attempt, or None to give up.
    """
    if not _takes_seed(type(policy)):
        return policy.next(elapsed, attempts, error)
    return policy.next(elapsed, attempts, error, seed=int.from_bytes(sha256(seed.encode()).digest()[:8]))

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
    """The failed attempts of the current step before this one.

    Attributes:
        retry_number: Failures so far, 0 on the first attempt.
        elapsed_seconds: Seconds since the first attempt began.
        last_exception: The exception of the last attempt.
        last_failed_at: When the last attempt failed, with a time zone (UTC).
    """

    retry_number: int = 0
    elapsed_seconds: float = 0.0
    last_exception: BaseException | None = None
    last_failed_at: datetime | None = None


@runtime_checkable
class RetryPolicy(Protocol):
    """Decides after each failure of a step whether and when it runs again."""

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            elapsed_time: Seconds since the step's first attempt began.
            attempts: Failures so far, this one included: 1 after the first.
            error: What the step raised.
            seed: Fixes the jitter. A policy without this parameter is called without it.
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
    """Ask ``policy`` for the delay after a failure; the entry of the engine.

    Args:
        policy: Any retry policy, also one whose ``next`` has no ``seed`` parameter.
        elapsed: Seconds since the first attempt began.
        attempts: Failures so far, from 1.
        error: What the step raised.
        seed: Names this failure among all; the same text gives the same jitter.

    Returns:
        Seconds to wait before the next attempt, or None to give up.
    """
    if not _takes_seed(type(policy)):
        return policy.next(elapsed, attempts, error)
    return policy.next(elapsed, attempts, error, seed=int.from_bytes(sha256(seed.encode()).digest()[:8]))

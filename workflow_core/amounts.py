"""Whether a value can say how long or how many. True and False are no numbers here."""

from numbers import Real
from typing import Any, TypeGuard

__all__ = ["is_seconds", "is_whole"]


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether a value is a number of seconds, 0 or more."""
    number: Any = value  # those of other libraries may be Real, too
    return isinstance(value, Real) and not isinstance(number, bool) and bool(number >= 0)


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether a value is a whole number, and not less than the least."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least

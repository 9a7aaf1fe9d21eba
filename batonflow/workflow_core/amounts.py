"""Tell whether a value can say how long or how many. True and False are not numbers here."""

from importlib import import_module
from typing import Any, TypeGuard

__all__ = ["check_whole", "is_seconds", "is_whole"]


def is_seconds(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number of seconds, 0 or more."""
    number: Any = value
    if isinstance(value, int | float):
        return not isinstance(value, bool) and value >= 0
    # Numbers of other libraries are numbers, too; this is rarely reached.
    return isinstance(number, import_module("numbers").Real) and bool(number >= 0)


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Tell whether a value is a whole number, and not less than the least."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(value: object, what: str, least: int = 0) -> None:
    """Refuse a value that is not a whole number of at least ``least``.

    Args:
        value: The value.
        what: Its name and what it should be, for the message.
        least: The least that it may be.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is too small.
    """
    if not is_whole(value, least):
        wrong = ValueError if isinstance(value, int) and not isinstance(value, bool) else TypeError
        raise wrong(f"{what}, not {value!r}")

"""Text of runs made safe for a terminal. Text of models and tools must not move the cursor or change colours."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from batonflow.instrumentation.logs import plain

__all__ = ["age", "call", "counted", "one_line", "plain", "shown", "summary"]

_LONGEST_VALUE = 60
_LONGEST_TEXT = 200
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in ``2 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def one_line(text: str) -> str:
    """Return ``plain`` text without line breaks."""
    return " ".join(plain(text).split())


def shown(value: Any, longest: int = _LONGEST_VALUE) -> str:
    """Return a value of a record as short text in one line."""
    if isinstance(value, Mapping) and "$large" in value:
        return f"<{cast('Mapping[str, Any]', value)['$large']} bytes>"
    text = one_line(repr(cast("Any", value)))
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def call(name: str, arguments: Mapping[str, Any], longest: int = _LONGEST_VALUE) -> str:
    """Return a call as ``name(argument=value, ...)``."""
    inside = ", ".join(f"{one_line(key)}={shown(value, longest)}" for key, value in arguments.items())
    return f"{one_line(name)}({inside})"


def summary(name: str, value: Any) -> str:
    """Return an event as its class and its fields that are not empty."""
    if not isinstance(value, Mapping):
        return f"{one_line(name)}({'' if value is None else shown(value)})"
    fields = cast("Mapping[str, Any]", value)
    filled = {key: one for key, one in fields.items() if one is not None and not _is_empty(one)}
    text = call(name, filled)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 4]}...)"


def _is_empty(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not value


def age(seconds: float) -> str:
    """Return a duration in a fitting unit."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)}m{int(seconds % _MINUTE):02}s"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)}h{int(seconds % _HOUR // _MINUTE):02}m"
    return f"{int(seconds // _DAY)}d{int(seconds % _DAY // _HOUR):02}h"

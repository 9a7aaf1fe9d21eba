"""What can be sent and written down: text of whole characters, numbers that JSON has."""

from collections.abc import Callable
from math import isfinite
from typing import Any, cast

__all__ = ["has_halves", "json_data", "sendable", "whole_texts"]


def has_halves(text: str) -> bool:
    """Whether there are halves of characters in ``text``, which UTF-8 has no form for."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def sendable(text: str) -> str:
    r"""``text`` in whole characters: two halves of one are joined, and U+FFFD stands for a half that is alone.

    Servers and files that count in UTF-16 leave halves, names of files that are not UTF-8 too. Neither a request nor a
    snapshot could hold them.

    Example:
        >>> sendable("wave \ud83c" + "\udf0a") == "wave \U0001f30a"
        True
    """
    if not has_halves(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(value: Any) -> Any:
    """Plain data with all texts in it sendable, also the names in dicts."""
    return _changed(value, _whole)


def json_data(value: Any) -> Any:
    """The same with None for numbers that JSON has not: those that are none, and those without end."""
    return _changed(value, _written)


def _written(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else _whole(value)


def _whole(value: Any) -> Any:
    return sendable(value) if isinstance(value, str) else value


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_changed(one, change) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_whole(name): _changed(one, change) for name, one in cast("dict[Any, Any]", value).items()}
    return change(value)

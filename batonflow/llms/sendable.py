"""Text and data that vendors and stores accept: valid Unicode, and finite numbers."""

from collections.abc import Callable
from math import isfinite
from typing import Any, cast

__all__ = ["has_halves", "json_data", "sendable", "whole_texts"]


def has_halves(text: str) -> bool:
    """Return whether ``text`` contains lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def sendable(text: str) -> str:
    r"""Return ``text`` as valid Unicode: surrogate pairs are joined, and lone surrogates become U+FFFD.

    Servers that count in UTF-16 send surrogates, and file names may contain them. Neither a request nor a snapshot can
    hold them.

    Example:
        >>> sendable("wave \ud83c" + "\udf0a") == "wave \U0001f30a"
        True
    """
    if not has_halves(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(value: Any) -> Any:
    """Return data with valid Unicode in all texts and keys."""
    return _changed(value, _whole)


def json_data(value: Any) -> Any:
    """Return data with valid Unicode, and None in place of NaN and infinity."""
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

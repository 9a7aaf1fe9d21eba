"""Redaction of secrets in logs, traces and records."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from numbers import Number
from typing import Any, cast

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

__all__ = ["CYCLE", "REDACTED", "TOO_DEEP", "known_secrets", "never_show", "redacted", "without_secrets"]

REDACTED = "[redacted]"
"""The replacement for a secret."""

CYCLE = "[cycle]"
"""The replacement for data that contain themselves."""

TOO_DEEP = "[deep]"
"""The replacement for data at more than two hundred levels of nesting."""

_NAMES = re.compile(
    r"(?:^|[_\-.\s])(?:(?:api|private|secret|access|signing|encryption)[_-]?keys?|secrets?|pass(?:word|phrase|code)s?"
    r"|passwds?|pwds?|(?:access|auth|refresh|bearer|id|session)?[_-]?tokens?|authorizations?|cookies?|credentials?)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Vendor keys, bearer tokens, JSON web tokens, passwords in URLs, and private keys.
_VALUES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}|\b(?:gh[pousr]|github_pat|xox[abprs])[_-][A-Za-z0-9_\-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_\-]{30,}|(?<=Bearer )[A-Za-z0-9._~+/\-]{12,}=*|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# A text with such a secret contains the characters on the left and one of the marks beside them. Looking for these
# takes a fraction of the time of the pattern.
_MARKS = (
    ("-", ("k-", "-----BEGIN ")), ("gh", tuple(f"gh{kind}{dash}" for kind in "pousr" for dash in "_-")),
    ("_", ("github_pat",)), ("xox", ("xox",)), ("A", ("AKIA", "AIza")), ("B", ("Bearer ",)), (".", ("eyJ",)),
    ("@", ("://",)),
)  # fmt: skip

_SHORTEST = len("://a:b@")
"""The length of the shortest text that can contain a secret."""


def redacted(value: Any) -> Any:
    """Return ``value`` as JSON data with its secrets replaced.

    Secrets are: pydantic's secret types; any value except a number under a name such as ``api_key``, ``passwords`` or
    ``access_token``; texts in the form of a key or token; and the texts given to ``never_show``. The fields of models
    and dataclasses are searched too. A secret that looks like any other text is not found.

    Args:
        value: Any object. An object without a JSON form becomes its ``repr``, or the name of its class if that fails.
            Cycles and very deep data is replaced by a mark.

    Example:
        >>> redacted({"user": "ann", "api_key": "sk-1234"})
        {'user': 'ann', 'api_key': '[redacted]'}
    """
    try:
        return _of_json(value, _DEEP)
    except RecursionError:
        return _redacted(value, set())


def without_secrets(data: dict[str, Any]) -> dict[str, Any]:
    """Return JSON data without the entries that contain a secret, at any depth.

    Args:
        data: Values by name.

    Example:
        >>> without_secrets({"user": "ann", "api_key": "sk-1234"})
        {'user': 'ann'}
    """
    return _whole(redacted(data), data)


def _whole(redacted_value: Any, original: Any) -> Any:
    """Return redacted data without the values that were replaced."""
    if isinstance(redacted_value, dict):
        entries, before = (
            cast("dict[Any, Any]", redacted_value),
            cast("dict[Any, Any]", original if isinstance(original, dict) else {}),
        )
        pairs = [(name, one, before.get(name)) for name, one in entries.items()]
        return {name: _whole(one, was) for name, one, was in pairs if not _is_replaced(one, was)}
    if isinstance(redacted_value, list):
        items = cast("list[Any]", redacted_value)
        were = list(cast("list[Any]", original)) if isinstance(original, list | tuple) else [None] * len(items)
        return [_whole(one, was) for one, was in zip(items, were, strict=True) if not _is_replaced(one, was)]
    return redacted_value


def _is_replaced(redacted_value: Any, original: Any) -> bool:
    return isinstance(redacted_value, str) and REDACTED in redacted_value and redacted_value != original


_DEEP = 24
"""Levels of nesting above which cycles are looked for."""


def _of_json(value: Any, levels: int) -> Any:
    """Redact JSON data without looking for cycles, because most values are JSON data already.

    Raises:
        RecursionError: The data is nested deeper, or may contain itself.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value if len(value) < _SHORTEST else _text(value)
    if levels == 0:
        raise RecursionError
    if kind is dict:
        names = tuple(value)
        # Dicts of one kind, such as messages, have the same names, so the result is cached.
        secret = (_secrets_among if len(names) <= _FEW else _secrets_among.__wrapped__)(names)
        if secret is None:
            return _redacted(value, set())
        found: dict[str, Any] = {}
        for name, one in value.items():
            kind = type(one)  # pyright: ignore[reportUnknownVariableType]
            if secret and name in secret and _is_secret(name, one):
                found[name] = REDACTED
            elif kind is str:
                found[name] = one if len(one) < _SHORTEST else _text(one)
            else:
                found[name] = one if kind in _WITHOUT_TEXT else _of_json(one, levels - 1)
        return found
    if kind is list:
        return [_of_json(one, levels - 1) for one in value]
    if kind in _WITHOUT_TEXT:
        return value
    return value.without_secrets() if hasattr(kind, "without_secrets") else _redacted(value, set())


_WITHOUT_TEXT = frozenset({int, bool, type(None)})
_FEW = 32


@lru_cache(maxsize=1024)
def _secrets_among(names: tuple[Any, ...]) -> frozenset[str] | None:
    """Return the names of a dict that name secrets; None when some name is not a text."""
    if any(type(name) is not str for name in names):
        return None
    return frozenset(filter(_names_a_secret, names))


def _redacted(value: Any, around: set[int]) -> Any:
    """Redact ``value``, which is inside the objects with the ids ``around``."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return _text(value)
    if value is None or kind is bool or kind is int:
        return value
    if isinstance(value, SecretStr | SecretBytes):
        return REDACTED
    if hasattr(kind, "without_secrets"):
        return value.without_secrets()
    here = id(cast("object", value))
    if here in around:
        return CYCLE
    if len(around) == _DEEPEST:
        return TOO_DEEP
    around.add(here)
    try:
        return _of_parts(value, around)
    except Exception:  # noqa: BLE001 - any error of its own methods; the message could contain a secret
        return f"<{kind.__name__}>"
    finally:
        around.discard(here)


_DEEPEST = 200
# The items that a dict contains. A subclass may override items() to compute others.
_items: Any = getattr(dict, "items")  # noqa: B009 - dict.items would have an unknown type


def _of_parts(value: Any, around: set[int]) -> Any:
    parts: Any = _items(value) if issubclass(type(value), dict) else _named_parts(value)
    if parts is not None:
        return {str(name): REDACTED if _is_secret(name, one) else _redacted(one, around) for name, one in parts}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_redacted(one, around) for one in cast("Iterable[Any]", value)]
    try:
        plain = to_jsonable_python(value, fallback=repr)
    except ValueError:  # bytes that are not UTF-8
        plain = repr(value)
    return _text(plain) if isinstance(plain, str) else plain


def never_show(secret: str) -> None:
    """Add a secret of the program to the texts that ``redacted`` replaces.

    Args:
        secret: Kept until the process ends. Texts with fewer than sixteen characters are ignored, because they may
            occur in any text by chance.
    """
    if len(secret) >= _SHORTEST_KNOWN:
        _known.add(secret)


_SHORTEST_KNOWN = 16
_known: set[str] = set()


def known_secrets() -> int:
    """Return the number of secrets that ``never_show`` was given."""
    return len(_known)


def _text(text: str) -> str:
    for secret in _known:
        if secret in text:
            text = text.replace(secret, REDACTED)
    for characters, marks in _MARKS:
        if characters in text:
            for mark in marks:
                if mark in text:
                    return _VALUES.sub(REDACTED, text)
    return text


def _named_parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the names and values of an object with named parts, None for any other object."""
    if isinstance(value, BaseModel):
        names = (*type(value).model_fields, *(value.model_extra or {}))
    elif is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
    else:
        return cast("Mapping[Any, Any]", value).items() if isinstance(value, Mapping) else None
    # Fields that were never set are left out.
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _is_secret(name: Any, value: Any) -> bool:
    # A count of tokens is not a secret.
    return isinstance(name, str) and _names_a_secret(name) and not isinstance(value, Number | None)


@lru_cache(maxsize=1024)
def _names_a_secret(name: str) -> bool:
    return _NAMES.search(_CAMEL.sub("_", name)) is not None

"""Keeping secrets out of what is shown and written down."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from numbers import Number
from typing import Any, cast

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

__all__ = ["CYCLE", "REDACTED", "TOO_DEEP", "never_show", "redacted", "without_secrets"]

REDACTED = "[redacted]"
"""Stands for what looks like a secret."""

CYCLE = "[cycle]"
"""Stands for data inside of itself."""

TOO_DEEP = "[deep]"
"""Stands for what lies in more than two hundred others."""

_NAMES = re.compile(
    r"(?:^|[_\-.\s])(?:(?:api|private|secret|access|signing|encryption)[_-]?keys?|secrets?|pass(?:word|phrase|code)s?"
    r"|passwds?|pwds?|(?:access|auth|refresh|bearer|id|session)?[_-]?tokens?|authorizations?|cookies?|credentials?)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Keys of vendors, bearer tokens, JSON web tokens, passwords in addresses, and blocks of private keys.
_VALUES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}|\b(?:gh[pousr]|github_pat|xox[abprs])[_-][A-Za-z0-9_\-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_\-]{30,}|(?<=Bearer )[A-Za-z0-9._~+/\-]{12,}=*|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# In every text that has such a value there are the characters on the left, and one of the marks beside them: to look
# for them takes a fraction of the time.
_MARKS = (
    ("-", ("k-", "-----BEGIN ")), ("gh", ("ghp", "gho", "ghu", "ghs", "ghr")), ("_", ("github_pat",)),
    ("xox", ("xox",)), ("A", ("AKIA", "AIza")), ("B", ("Bearer ",)), (".", ("eyJ",)), ("@", ("://",)),
)  # fmt: skip

_SHORTEST = len("://a:b@")
"""Characters of the shortest text that such a value may stand in."""


def redacted(value: Any) -> Any:
    """``value`` as data of JSON, with what looks like a secret replaced.

    That is: pydantic's secrets, whatever is no number under names such as ``api_key``, ``passwords`` or
    ``access_token``, texts in the form of a key or token, and what ``never_show`` was told; also in the fields of
    models and dataclasses. It is a net with holes: nothing else finds a secret that looks like any other text.

    Args:
        value: Anything; what has no form in JSON becomes its ``repr``, or the name of its class where that fails, and
            what contains itself or has hundreds of levels ends with a mark.

    Example:
        >>> redacted({"user": "ann", "api_key": "sk-1234"})
        {'user': 'ann', 'api_key': '[redacted]'}
    """
    try:
        return _of_json(value, _DEEP)
    except RecursionError:
        return _redacted(value, set())


def without_secrets(data: dict[str, Any]) -> dict[str, Any]:
    """Data of JSON without the entries that have a secret in them, at any depth: what may be read again as it is.

    Args:
        data: Values by name.

    Example:
        >>> without_secrets({"user": "ann", "api_key": "sk-1234"})
        {'user': 'ann'}
    """
    return _whole(redacted(data), data)


def _whole(shown: Any, given: Any) -> Any:
    """What ``redacted`` gave, without what it has replaced."""
    if isinstance(shown, dict):
        entries, before = (
            cast("dict[Any, Any]", shown),
            cast("dict[Any, Any]", given if isinstance(given, dict) else {}),
        )
        pairs = [(name, one, before.get(name)) for name, one in entries.items()]
        return {name: _whole(one, was) for name, one, was in pairs if not _is_replaced(one, was)}
    if isinstance(shown, list):
        items = cast("list[Any]", shown)
        were = list(cast("list[Any]", given)) if isinstance(given, list | tuple) else [None] * len(items)
        return [_whole(one, was) for one, was in zip(items, were, strict=True) if not _is_replaced(one, was)]
    return shown


def _is_replaced(shown: Any, given: Any) -> bool:
    return isinstance(shown, str) and REDACTED in shown and shown != given


_DEEP = 24
"""Levels of data beyond which it is looked for whether they contain themselves."""


def _of_json(value: Any, levels: int) -> Any:
    """The same for data of JSON, as nearly everything is already: there may be much of it.

    Raises:
        RecursionError: There are more levels than these, so perhaps no end of them.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value if len(value) < _SHORTEST else _text(value)
    if levels == 0:
        raise RecursionError
    if kind is dict:
        names = tuple(value)
        # Dicts in one place have the same names: messages, for one.
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
    return value if kind in _WITHOUT_TEXT else _redacted(value, set())


_WITHOUT_TEXT = frozenset({int, bool, type(None)})
_FEW = 32


@lru_cache(maxsize=1024)
def _secrets_among(names: tuple[Any, ...]) -> frozenset[str] | None:
    """Which names of a dict are those of secrets; None when there are others than texts among them."""
    if any(type(name) is not str for name in names):
        return None
    return frozenset(filter(_names_a_secret, names))


def _redacted(value: Any, around: set[int]) -> Any:
    """``value`` inside of what has the ids ``around``."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return _text(value)
    if value is None or kind is bool or kind is int:
        return value
    if isinstance(value, SecretStr | SecretBytes):
        return REDACTED
    here = id(cast("object", value))
    if here in around:
        return CYCLE
    if len(around) == _DEEPEST:
        return TOO_DEEP
    around.add(here)
    try:
        return _of_parts(value, around)
    except Exception:  # noqa: BLE001 - whatever its own methods raise; what it would say of itself may have secrets in it
        return f"<{kind.__name__}>"
    finally:
        around.discard(here)


_DEEPEST = 200
# Of every class of dicts what lies in it, and not what it makes beside when it is asked.
_items: Any = getattr(dict, "items")  # noqa: B009 - its type is that of a dict of nothing known


def _of_parts(value: Any, around: set[int]) -> Any:
    parts: Any = _items(value) if issubclass(type(value), dict) else _named_parts(value)
    if parts is not None:
        return {str(name): REDACTED if _is_secret(name, one) else _redacted(one, around) for name, one in parts}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_redacted(one, around) for one in cast("Iterable[Any]", value)]
    try:
        plain = to_jsonable_python(value, fallback=repr)
    except ValueError:  # bytes that are no text
        plain = repr(value)
    return _text(plain) if isinstance(plain, str) else plain


def never_show(secret: str) -> None:
    """Let ``redacted`` find a secret that the program uses, whatever it looks like.

    Args:
        secret: Kept until the process ends. What is shorter than sixteen characters may stand in any text by chance, as
            may the words that servers without keys take for one: it is left to the other rules.
    """
    if len(secret) >= _SHORTEST_KNOWN:
        _known.add(secret)


_SHORTEST_KNOWN = 16
_known: set[str] = set()


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
    """The parts of what has parts with names, None of anything else."""
    if isinstance(value, BaseModel):
        names = (*type(value).model_fields, *(value.model_extra or {}))
    elif is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
    else:
        return cast("Mapping[Any, Any]", value).items() if isinstance(value, Mapping) else None
    # What was never set is left out.
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _is_secret(name: Any, value: Any) -> bool:
    # A number of tokens is none.
    return isinstance(name, str) and _names_a_secret(name) and not isinstance(value, Number | None)


@lru_cache(maxsize=1024)
def _names_a_secret(name: str) -> bool:
    return _NAMES.search(_CAMEL.sub("_", name)) is not None

"""Arguments of tool calls as JSON data, for approvals, records and results."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, cast

from pydantic import RootModel, TypeAdapter
from pydantic_core import to_jsonable_python

__all__ = ["as_given", "as_sent", "digest_of", "holds_secret", "is_same_data"]

_PLAIN = frozenset({str, int, float, type(None)})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MASK = "*" * 10  # pydantic writes this in place of a secret


def as_sent(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in the form in which a model sends them: JSON data for stores and snapshots.

    A value without such a form becomes a text, which can only be shown. The result is equal in all processes.
    """
    try:
        data: Any = to_jsonable_python(arguments, fallback=_in_words)
    except Exception:  # noqa: BLE001 - a value may hold itself, or bytes that are no text, or be unable to say what it is
        data = {name: _one_as_sent(value) for name, value in arguments.items()}
    return _in_order(arguments, data)


def _one_as_sent(value: Any) -> Any:
    try:
        return to_jsonable_python(value, fallback=_in_words)
    except Exception:  # noqa: BLE001 - see above
        with suppress(Exception):
            return _in_words(value)
    return f"<{type(value).__name__}>"


def _in_words(value: Any) -> str:
    # Addresses of objects differ between processes.
    return _ADDRESS.sub("", repr(value))


def _in_order(value: Any, data: Any) -> Any:
    """Return ``data`` of ``value`` with sorted sets, because the order of sets differs between processes."""
    if isinstance(value, RootModel):
        value = cast("RootModel[Any]", value).root
    if isinstance(data, list):
        written = cast("list[Any]", data)
        if not isinstance(value, list | tuple | deque | AbstractSet) or len(cast("list[Any]", value)) != len(written):
            return written
        found = [_in_order(one, item) for one, item in zip(cast("list[Any]", value), written, strict=True)]
        return sorted(found, key=_text) if isinstance(value, AbstractSet) else found
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        if isinstance(value, Mapping):
            values = list(cast("Mapping[Any, Any]", value).values())
            if len(values) != len(fields):
                return fields
            return {name: _in_order(one, item) for one, (name, item) in zip(values, fields.items(), strict=True)}
        inner: dict[str, Any] = getattr(cast("object", value), "__dict__", {})
        return {name: _in_order(inner.get(name), item) for name, item in fields.items()}
    return data


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


def digest_of(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest that binds an answer to a tool and its arguments."""
    # The arguments may contain lone surrogates.
    return hashlib.sha256(_text([tool_name, arguments]).encode(errors="surrogatepass")).hexdigest()


def is_same_data(one: Any, other: Any) -> bool:
    """Return whether two values are equal JSON data: 5 and 5.0 are, 1 and True are not."""
    kinds: set[Any] = {type(one), type(other)}
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(is_same_data(value, right[name]) for name, value in left.items())
    if isinstance(one, list) and isinstance(other, list):
        pair = cast("list[Any]", one), cast("list[Any]", other)
        return len(pair[0]) == len(pair[1]) and all(map(is_same_data, *pair))
    if bool in kinds:
        return one is other
    # Two NaN count as equal.
    return _PLAIN.issuperset(kinds) and bool(one == other or (one != one and other != other))  # noqa: PLR0124


def holds_secret(given: Any, shown: Any) -> bool:
    """Return whether ``given`` contains the mask that was ``shown`` for a secret."""
    if isinstance(given, Mapping) and isinstance(shown, Mapping):
        left, right = cast("Mapping[Any, Any]", given), cast("Mapping[Any, Any]", shown)
        return any(holds_secret(value, right[name]) for name, value in left.items() if name in right)
    if isinstance(given, list) and isinstance(shown, list):
        return any(map(holds_secret, cast("list[Any]", given), cast("list[Any]", shown)))
    return given == shown == _MASK


def as_given(value: Any) -> Any:
    """Return a person's value for an argument as JSON data from which the value can be restored.

    Raises:
        ValueError: The value has no such data, or the data is incomplete, as for secrets.
    """
    if type(value) is bool or type(value) in _PLAIN:
        return value
    if isinstance(value, dict) and all(isinstance(name, str) for name in cast("dict[Any, Any]", value)):
        return {name: as_given(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [as_given(one) for one in cast("list[Any]", value)]
    one = cast("object", value)
    kind: Any = type(one)
    try:
        data: Any = to_jsonable_python(one)
        if bool(data == one) or bool(TypeAdapter(kind).validate_python(data) == one):
            return data
    except Exception as err:
        raise ValueError(str(err).partition("\n")[0]) from err
    raise ValueError(f"its JSON, {data!r}, does not make the same {kind.__name__} again")

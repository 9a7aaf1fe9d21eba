"""Containers as data: classes of ``collections``, and subclasses of Python's containers.

The items are written, with the attributes of the instance. Reading creates the instance with ``__new__`` of the builtin
base and calls no code of the class. A class that needs more than that, such as one with ``__slots__``, is refused.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from time import struct_time
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from batonflow.values.names import NotWritable, qualified_name

__all__ = [
    "BUILT_IN", "READERS", "attributes_of", "base_of", "container_as_data", "container_of", "in_order", "items_in",
    "write_at",
]  # fmt: skip

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]
Resolve = Callable[[str], type]

_BASES: tuple[Any, ...] = (OrderedDict, defaultdict, deque, dict, list, tuple, set, frozenset)
_DICTS: tuple[Any, ...] = (OrderedDict, defaultdict, dict)
_IMMUTABLE: tuple[Any, ...] = (tuple, frozenset)
_TUPLE, _DEFAULTDICT, _DEQUE = cast("list[Any]", [tuple, defaultdict, deque])
_kind: Callable[[Any], Any] = type
_OWN_DICT = "itself"
"""Marks a dict that is its own ``__dict__``: its attributes are its items."""

BUILT_IN: dict[str, Any] = {
    **{f"builtins.{cls.__name__}": cls for cls in (str, int, float, bool, bytes, list, dict, tuple, set, frozenset)},
    "datetime.datetime": datetime,
    "datetime.date": date,
    "datetime.time": time,
    "datetime.timedelta": timedelta,
    "decimal.Decimal": Decimal,
    "uuid.UUID": UUID,
    "pathlib.Path": Path,
}
"""The types of the standard library that may be arguments of a generic model."""

_FACTORIES: dict[str, Any] = {
    **BUILT_IN,
    **{f"collections.{cls.__name__}": cls for cls in cast("list[Any]", [Counter, OrderedDict, defaultdict, deque])},
}


def write_at(key: Any, value: Any, write: Write) -> Any:
    """Write a part of a value; errors name the key of the part."""
    try:
        return write(value)
    except NotWritable as error:
        raise error.inside(key) from error


def items_in(value: Any) -> list[Any]:
    """Return the items as the builtin base holds them; pairs for a dict."""
    base: Any = next(base for base in _BASES if isinstance(value, base))
    return list(base.items(value)) if base in _DICTS else list(base.__iter__(value))


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that a container has in addition to its items."""
    held = getattr(value, "__dict__", None)
    if held is value or not isinstance(held, dict) or _shows_items(_kind(value)):
        return {}
    return cast("dict[str, Any]", held)


@cache
def base_of(kind: Any) -> Any:
    """Return the builtin base whose ``__new__`` creates complete instances of a class, or None."""
    base: Any = next((base for base in _BASES if issubclass(kind, base)), None)
    if base is None or any(_has_slots(one) for one in kind.__mro__[: kind.__mro__.index(base)]):
        return None
    try:
        base.__new__(kind)
    except TypeError:  # instances are created by code in C
        return None
    return base


def _has_slots(cls: type) -> bool:
    return bool(vars(cls).get("__slots__", ()))


def _shows_items(kind: Any) -> bool:
    """Tell whether a property ``__dict__`` of the class returns its items."""
    return any(isinstance(vars(cast("type", one)).get("__dict__"), property) for one in kind.__mro__)


def container_as_data(value: Any, write: Write) -> tuple[str, Any] | None:
    """Return the class name and the data of a container. None for other values and plain builtin containers.

    Raises:
        NotWritable: An instance cannot be created again from its items and attributes.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is struct_time:
        return "time.struct_time", [list(value), value.tm_zone, value.tm_gmtoff]
    if not isinstance(value, _BASES):
        return None
    base, name = base_of(kind), qualified_name(kind)
    if base is None:
        raise NotWritable(
            f"{name} cannot be written as JSON, as its items alone do not make a new one: put a dict, a list or a "
            "tuple of them there, or make it a pydantic model"
        )
    items = _written(value, base, write)
    if kind in (OrderedDict, Counter):
        return name, items
    if kind is deque:
        return name, [items, value.maxlen]
    if kind is defaultdict:
        return name, [items, _factory_name(value)]
    held = attributes_of(value)
    if base is _TUPLE and hasattr(kind, "_fields") and not held:
        return name, items
    beside = value.maxlen if base is deque else _factory_name(value) if base is defaultdict else None
    told: Any = {attribute: write_at(attribute, one, write) for attribute, one in held.items()}
    return name, {
        "items": items,
        "beside": beside,
        "attributes": _OWN_DICT if getattr(value, "__dict__", None) is value else told,
    }


def _written(value: Any, base: Any, write: Write) -> list[Any]:
    items = items_in(value)
    if base in _DICTS:
        return [[write(key), write_at(key, held, write)] for key, held in items]
    if issubclass(base, set | frozenset):
        return in_order(items, write)
    return [write_at(place, one, write) for place, one in enumerate(items)]


def in_order(values: Any, write: Write) -> list[Any]:
    """Return the items of a set as data in a fixed order. Equal sets give equal data."""
    kinds = {_kind(one) for one in values}
    if kinds <= {str} or kinds <= {int}:
        return [write(one) for one in sorted(values)]
    return sorted([write(one) for one in values], key=repr)  # for sets in a set, ``<`` means subset and gives no order


def _factory_name(value: "defaultdict[Any, Any]") -> str | None:
    factory: Any = value.default_factory
    if factory is None:
        return None
    name = qualified_name(factory) if isinstance(factory, type) else ""
    if name not in _FACTORIES and not _may_be_factory(factory, name):
        raise NotWritable(
            f"the default_factory of this {type(value).__name__} cannot be written as JSON: take a class such as list, "
            "int, a dataclass or a model of a module, or put a dict there"
        )
    return name


def _may_be_factory(factory: Any, name: str) -> bool:
    if not name or "<locals>" in name:
        return False
    return issubclass(factory, BaseModel) or is_dataclass(factory) or base_of(factory) is not None


def _factory(name: Any, resolve: Resolve) -> Any:
    return None if name is None else _FACTORIES.get(name) or resolve(name)


def container_of(cls: Any, data: Any, read: Read, resolve: Resolve) -> Any:
    """Create the container that data describe."""
    if isinstance(data, list):  # a named tuple
        return _TUPLE.__new__(cls, [read(one) for one in cast("list[Any]", data)])
    base, attributes = base_of(cls), data["attributes"]
    made = _made(cls, base, data["items"], data["beside"], read, resolve)
    if attributes == _OWN_DICT:
        object.__setattr__(made, "__dict__", made)
        return made
    for name, held in attributes.items():
        if name.startswith("__"):
            raise ValueError(f"{name!r} is not an attribute that data may set")
        object.__setattr__(made, name, read(held))
    return made


def _made(cls: Any, base: Any, items: list[Any], beside: Any, read: Read, resolve: Resolve) -> Any:
    made: Any
    if base in _DICTS:
        made = base.__new__(cls)
        if base is _DEFAULTDICT:
            base.__init__(made, _factory(beside, resolve))
        for key, held in items:
            base.__setitem__(made, read(key), read(held))
        return made
    values: list[Any] = [read(one) for one in items]
    if base in _IMMUTABLE:
        return base.__new__(cls, values)
    made = base.__new__(cls)
    base.__init__(made, values, *([beside] if base is _DEQUE else []))
    return made


def _of_collections(cls: Any, data: Any, read: Read, resolve: Resolve) -> Any:
    items, beside = data
    return _made(cls, cls, items, beside, read, resolve)


def _struct_time(data: Any, _: Read, __: Resolve) -> struct_time:
    values, zone, offset = data
    return struct_time(values, {"tm_zone": zone, "tm_gmtoff": offset})


READERS: dict[str, Callable[[Any, Read, Resolve], Any]] = {
    "collections.OrderedDict": lambda data, read, resolve: _made(OrderedDict, OrderedDict, data, None, read, resolve),
    "collections.Counter": lambda data, read, resolve: _made(Counter, dict, data, None, read, resolve),
    "collections.defaultdict": partial(_of_collections, _DEFAULTDICT),
    "collections.deque": partial(_of_collections, _DEQUE),
    "time.struct_time": _struct_time,
}

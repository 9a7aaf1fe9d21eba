"""Values of types that JSON lacks, as data marked with their type: datetimes, sets, bytes, enums, dataclasses.

Types of the standard library are known here. Enums, dataclasses and named tuples are looked up by name when read.
"""

import base64
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from functools import cache
from math import isnan
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast, get_type_hints
from uuid import UUID

from pydantic import BaseModel

from batonflow.lazy import at_first_use
from batonflow.values.containers import (
    BUILT_IN,
    READERS,
    attributes_of,
    base_of,
    container_as_data,
    container_of,
    in_order,
    items_in,
    write_at,
)
from batonflow.values.names import IS_VALUE, items_of, qualified_name

__all__ = ["alike", "built_in", "dict_as_data", "has_mark", "value_as_data", "value_of", "zone_of"]

zone_info = at_first_use("zoneinfo", "ZoneInfo")

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

_DICT = "dict"


def built_in(name: str) -> type | None:
    """Return the class of Python that a payload may name, or None."""
    return BUILT_IN.get(name)


def value_as_data(value: Any, write: Write) -> dict[str, Any] | None:
    """Return a value as data with the mark of its type; None for other types.

    Args:
        value: The value.
        write: Writes the values that it holds.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    known = _WRITERS.get(kind)
    if known is not None:
        name, as_data = known
        return _marked(name, as_data(value, write))
    if isinstance(value, Enum):
        # A combination of flags is not a member and has no name.
        member = value.name if value.name in kind.__members__ else value.value
        return _marked(qualified_name(kind), member)
    if kind in _PATHS:
        return _marked(_PATHS[kind], str(value))
    container = container_as_data(value, write)
    if container is not None:
        return _marked(*container)
    if _has_fields(kind) and not _leaves_out(kind):
        state = _state_of(value)
        return _marked(qualified_name(kind), {name: write_at(name, held, write) for name, held in state.items()})
    return None


def dict_as_data(value: Any, write: Write) -> dict[str, Any]:
    """Return a dict with keys other than texts as pairs."""
    return _marked(_DICT, [[write(key), write_at(key, held, write)] for key, held in items_of(value)])


def has_mark(cls: Any) -> bool:
    """Tell whether marked data may name a class."""
    return issubclass(cls, Enum) or is_dataclass(cls) or (cls not in _WRITERS and base_of(cls) is not None)


def value_of(name: str, data: Any, read: Read, resolve: Callable[[str], type]) -> Any:
    """Return the value for data that :func:`value_as_data` wrote.

    Args:
        name: The name of its type.
        data: The data.
        read: Reads the values inside the data.
        resolve: Returns the class for a name.

    Raises:
        ValueError: The data is not of that type, or the type cannot be found.
    """
    known, container = _READERS.get(name), READERS.get(name)
    try:
        if known is not None:
            return known(data, read)
        if container is not None:
            return container(data, read, resolve)
        cls: Any = resolve(name)
        if issubclass(cls, Enum):
            return cls[data] if isinstance(data, str) and data in cls.__members__ else cls(data)
        if base_of(cls) is not None:
            return container_of(cls, data, read, resolve)
        if is_dataclass(cls):
            return _built(cls, {attribute: read(held) for attribute, held in data.items()})
    except (TypeError, KeyError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"The data do not fit {name}: {error}") from error
    raise ValueError(f"The payload names {name}, which is neither an enum, a dataclass nor a container")


def _marked(name: str, data: Any) -> dict[str, Any]:
    return {IS_VALUE: True, "value": data, "qualified_name": name}


def _items(values: Any, write: Write) -> list[Any]:
    return [write_at(place, one, write) for place, one in enumerate(values)]


def _clock(value: datetime | time, _: Write) -> Any:
    """Return a time as data: local time, name of the zone if it has one, and ``fold``."""
    zone = zone_of(value.tzinfo)
    if zone is not None:
        # The name of a zone determines more than the offset of this time.
        return [value.replace(tzinfo=None).isoformat(), zone, value.fold]
    return [value.isoformat(), None, value.fold] if value.fold else value.isoformat()


def zone_of(zone: tzinfo | None) -> Any:
    """Return the key of a zone, or offset and name; None if the offset alone is enough."""
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return None if name == timezone(offset).tzname(None) else [_delta(offset), name]
    return getattr(zone, "key", None)


def _delta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _read_clock(cls: Any, data: Any) -> Any:
    if isinstance(data, str):
        return cls.fromisoformat(data)
    text, zone, *fold = cast("list[Any]", data)
    value = cls.fromisoformat(text)
    if not fold:  # records of earlier versions have the offset in the text
        return value.astimezone(zone_info(zone))
    if isinstance(zone, list):
        offset, name = cast("list[Any]", zone)
        value = value.replace(tzinfo=timezone(timedelta(*offset), name))
    elif zone is not None:
        value = value.replace(tzinfo=zone_info(zone))
    return value.replace(fold=fold[0])


_PATHS: dict[Any, str] = {
    type(Path()): "pathlib.Path",
    PurePosixPath: "pathlib.PurePosixPath",
    PureWindowsPath: "pathlib.PureWindowsPath",
}

_WRITERS: dict[type, tuple[str, Callable[[Any, Write], Any]]] = {
    datetime: ("datetime.datetime", _clock),
    date: ("datetime.date", lambda value, _: value.isoformat()),
    time: ("datetime.time", _clock),
    timedelta: ("datetime.timedelta", lambda value, _: _delta(value)),
    Decimal: ("decimal.Decimal", lambda value, _: str(value)),
    UUID: ("uuid.UUID", lambda value, _: str(value)),
    bytes: ("bytes", lambda value, _: base64.b64encode(value).decode()),
    bytearray: ("bytearray", lambda value, _: base64.b64encode(value).decode()),
    tuple: ("tuple", _items),
    set: ("set", in_order),
    frozenset: ("frozenset", in_order),
    complex: ("complex", lambda value, write: [write(value.real), write(value.imag)]),
}

_READERS: dict[str, Callable[[Any, Read], Any]] = {
    "datetime.datetime": lambda data, _: _read_clock(datetime, data),
    "datetime.date": lambda data, _: date.fromisoformat(data),
    "datetime.time": lambda data, _: _read_clock(time, data),
    "datetime.timedelta": lambda data, _: timedelta(*data),
    "decimal.Decimal": lambda data, _: Decimal(data),
    "uuid.UUID": lambda data, _: UUID(data),
    "bytes": lambda data, _: base64.b64decode(data, validate=True),
    "bytearray": lambda data, _: bytearray(base64.b64decode(data, validate=True)),
    "tuple": lambda data, read: tuple([read(one) for one in data]),
    "set": lambda data, read: {read(one) for one in data},
    "frozenset": lambda data, read: frozenset([read(one) for one in data]),
    "complex": lambda data, _: complex(*data),
    "pathlib.Path": lambda data, _: Path(data),
    "pathlib.PurePosixPath": lambda data, _: PurePosixPath(data),
    "pathlib.PureWindowsPath": lambda data, _: PureWindowsPath(data),
    _DICT: lambda data, read: {read(key): read(held) for key, held in data},
}


# --- dataclasses ------------------------------------------------------------------------------------------------------


def _has_fields(cls: Any) -> bool:
    return is_dataclass(cls)


@cache
def _leaves_out(cls: Any) -> bool:
    """Tell whether a field is excluded from writing, so that the dataclass could not be restored."""
    with suppress(Exception):  # annotations may name missing classes
        hints = get_type_hints(cls, include_extras=True)
        said = [one for hint in hints.values() for one in getattr(hint, "__metadata__", ())]
        return any(
            getattr(one, "exclude", None) is True for one in (*said, *getattr(cls, "__pydantic_fields__", {}).values())
        )
    return False


def _state_of(value: Any) -> dict[str, Any]:
    """Return all attributes of an instance: its fields and other attributes that were set."""
    found = {field.name: getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)}
    held: dict[str, Any] = getattr(value, "__dict__", {})
    return found | {name: one for name, one in held.items() if not name.startswith("__")}


def _built(cls: Any, state: dict[str, Any]) -> Any:
    """Create an instance with these attributes, without calling ``__init__`` or ``__post_init__``."""
    made = cls.__new__(cls)
    for field in fields(cls):
        if field.name in state:
            continue
        if field.default is not MISSING:
            state[field.name] = field.default
        elif field.default_factory is not MISSING:
            state[field.name] = field.default_factory()
        elif field.init:
            raise ValueError(f"{cls.__name__} has the field {field.name} now, for which the data hold no value")
    for name, held in state.items():
        if name.startswith("__"):
            raise ValueError(f"{name!r} is not an attribute that data may set")
        object.__setattr__(made, name, held)
    return made


# --- comparing --------------------------------------------------------------------------------------------------------


def alike(one: Any, other: Any) -> bool:
    """Tell whether two values are equal and all of their parts have the same types.

    ``1``, ``1.0``, ``True`` and ``Decimal(1)`` are equal, but not alike.
    """
    try:
        return _alike(one, other)
    except Exception:  # noqa: BLE001 - == of values may raise any exception
        return False


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    kind: Any = type(one)  # pyright: ignore[reportUnknownVariableType]
    if kind is not type(other):
        return False
    if kind is float:
        return one == other or (isnan(one) and isnan(other))
    if isinstance(one, _CONTAINERS) and not _same_beside(one, other):
        return False
    if isinstance(one, dict):
        # A lookup by hash may find an equal key of another type.
        keys: dict[Any, Any] = {key: key for key in other}
        return len(one) == len(other) and all(  # pyright: ignore[reportUnknownArgumentType]
            key in keys and _alike(key, keys[key]) and _alike(held, other[key]) for key, held in items_of(one)
        )
    if isinstance(one, list | tuple | deque):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(_alike, items, other))
    if isinstance(one, set | frozenset):
        named: dict[Any, Any] = {item: item for item in other}
        return len(one) == len(named) and all(  # pyright: ignore[reportUnknownArgumentType]
            item in named and _alike(item, named[item]) for item in cast("set[Any]", one)
        )
    if isinstance(one, BaseModel):
        return _same_model(one, other)
    if is_dataclass(kind):
        return _alike(_state_of(one), _state_of(other))
    if isinstance(one, datetime | time):
        return one == other and one.fold == other.fold and zone_of(one.tzinfo) == zone_of(other.tzinfo)
    return bool(one == other)


_PYTHONS = (dict, list, tuple, set, frozenset)
_CONTAINERS = (*_PYTHONS, deque)


def _same_beside(one: Any, other: Any) -> bool:
    """Tell whether two containers of one class are alike apart from their items."""
    if type(one) in _PYTHONS:
        return True
    if isinstance(one, deque) and one.maxlen != other.maxlen:
        return False
    if isinstance(one, defaultdict) and one.default_factory is not other.default_factory:
        return False
    if isinstance(one, OrderedDict) and [key for key, _ in items_in(one)] != [key for key, _ in items_in(other)]:
        return False
    return _alike(attributes_of(one), attributes_of(other))


def _same_model(one: BaseModel, other: BaseModel) -> bool:
    for name, field in type(one).model_fields.items():
        if not field.exclude and not _alike(getattr(one, name), getattr(other, name)):
            return False
    extra, others = one.__pydantic_extra__ or {}, other.__pydantic_extra__ or {}
    return _alike(extra, others) and _alike(_private_of(one), _private_of(other))


def _private_of(model: BaseModel) -> dict[str, Any]:
    """Return the values of private attributes that define a comparison."""
    held: Any = model.__pydantic_private__
    if not isinstance(held, dict):
        return {}
    values = cast("dict[str, Any]", held)
    return {name: one for name, one in values.items() if type(one).__eq__ is not object.__eq__}

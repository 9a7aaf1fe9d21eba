"""The key-value state as data: values in a snapshot, and dotted paths through a state."""

import copy
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from batonflow import values
from batonflow.user_warnings import warn_user
from batonflow.values.serializers import BaseSerializer, JsonSerializer

__all__ = [
    "DELETED",
    "MAX_DEPTH",
    "MISSING",
    "UnserializableKeyWarning",
    "as_declared",
    "check_path",
    "declared_as_json",
    "dump_state",
    "dynamic_data",
    "is_dynamic",
    "key_in",
    "no_path",
    "read_part",
    "segments_of",
    "write_into",
    "write_part",
]


KEYS_THAT_MAY_BE_LEFT_OUT = ("memory",)


class UnserializableKeyWarning(UserWarning):
    """A key of the state is missing in a snapshot, because its value cannot be written."""


def is_dynamic(value: object) -> bool:
    """Tell whether a value is a model with dynamic data, such as an event or a ``DictState``."""
    return getattr(type(value), "__batonflow_dynamic__", False)


def dynamic_data(model: Any) -> dict[str, Any]:
    """Return the dict of a model's dynamic data itself, not a copy."""
    return model.to_dict()


def dump_state(state: BaseModel, serializer: BaseSerializer) -> dict[str, Any]:
    """Return the ``state`` part of a snapshot.

    Raises:
        ValueError: A value cannot be written; the message names its key and the remedy.
    """
    cls = type(state)
    if is_dynamic(state) and not cls.model_fields:
        data: Any = {"_data": _dump_keys(dynamic_data(state), serializer)}
    else:
        try:
            data = values.written(serializer, state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The state {cls.__name__} cannot be written: {error}") from error
    return {"store_type": "in_memory", "state_type": cls.__name__, "state_module": cls.__module__, "state_data": data}


def _dump_keys(state: dict[str, Any], serializer: BaseSerializer) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in state.items():
        try:
            found[key] = values.written(serializer, value)
        except (TypeError, ValueError) as error:
            if key not in KEYS_THAT_MAY_BE_LEFT_OUT:
                raise ValueError(
                    f"State key {key!r} holds a {type(value).__name__} that cannot be written: {error}. Store plain "
                    "data or a "
                    "pydantic model, or use PickleSerializer"
                ) from error
            warn_user(f"State key {key!r} was left out of the snapshot: {error}", UnserializableKeyWarning)
    return found


def declared_as_json(state: BaseModel, name: str, value: Any) -> Any:
    """Write a value of a declared field as pydantic does; ``as_declared`` reads it.

    Raises:
        ValueError: The field does not exist, cannot be read again by its type, or cannot be written.
    """
    field = type(state).model_fields.get(name)
    if field is None or "Any" in str(field.annotation):
        raise ValueError(f"{type(state).__name__} does not declare a type for {name!r}")
    return state.model_copy(update={name: value}).model_dump(mode="json", include={name})[name]


def as_declared(state: BaseModel, name: str, serializer: BaseSerializer) -> None:
    """Read a value of a declared field that ``declared_as_json`` wrote.

    A value that the serializer can write is recorded as it was set, even if the field declares another type.
    """
    if name not in type(state).model_fields:
        return
    try:
        whole: Any = type(state).__pydantic_validator__.validate_assignment(
            state.model_copy(), name, getattr(state, name)
        )
    except ValidationError:
        return  # steps may set values of any type
    found = getattr(whole, name)
    if isinstance(serializer, JsonSerializer):
        serializer = serializer.for_records()
    if found is not getattr(state, name) and not values.is_writable(serializer, found):
        vars(state)[name] = found


MISSING: Any = object()
"""Stands for the value at a path that leads nowhere."""

DELETED: Any = object()
"""Stands for the value of a key that is no more."""

MAX_DEPTH = 1000


def write_into(state: BaseModel, path: str, value: Any) -> None:
    """Put a value at a dotted path of a state; ``DELETED`` removes the key.

    Raises:
        ValueError: The path is too deep, or leads through a value without parts.
    """
    head, *inner = segments_of(path)
    if value is not DELETED:
        write_part(state, head, _rebuilt(read_part(state, head), inner, value, path) if inner else value)
    elif is_dynamic(state):
        dynamic_data(state).pop(head, None)


def check_path(path: object) -> None:
    """Refuse a path that cannot name a value of the state.

    Raises:
        TypeError: The path is not a string.
        ValueError: The path is empty.
    """
    if not isinstance(path, str):
        raise no_path(path)
    if not path:
        raise ValueError("Path cannot be empty: name the key to write")


def no_path(path: object) -> TypeError:
    """Return the error for a path that is not a string."""
    return TypeError(f"A path in the state is a text such as 'user.name', got {path!r}")


def key_in(container: Mapping[Any, Any], key: str) -> Any:
    """Return the key of a dict for a part of a path. It is the number, if only the number is in the dict."""
    if key not in container and key.removeprefix("-").isdecimal() and str(int(key)) == key and int(key) in container:
        return int(key)
    return key


def segments_of(path: str) -> list[str]:
    """Split a path; raise ValueError if it is too deep."""
    if "." not in path:
        return [path]
    segments = path.split(".")
    if len(segments) > MAX_DEPTH:
        raise ValueError(f"Path has {len(segments)} segments, the most is {MAX_DEPTH}")
    return segments


def read_part(container: Any, key: str) -> Any:
    """Return the part of a value with a name; ``MISSING`` if it is missing."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        return found.get(key_in(found, key), MISSING)
    if isinstance(container, BaseModel):
        if key in type(container).model_fields:
            return getattr(container, key)
        if is_dynamic(container):
            return dynamic_data(container).get(key, MISSING)
        return getattr(container, key, MISSING)
    if isinstance(container, list | tuple):
        try:
            return cast("list[Any]", container)[int(key)]
        except (ValueError, IndexError):
            return MISSING
    return getattr(container, key, MISSING)


def write_part(container: Any, key: str, value: Any) -> None:
    """Set the part of a value with a name."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        found[key_in(found, key)] = value
    elif isinstance(container, list):
        cast("list[Any]", container)[int(key)] = value
    elif is_dynamic(container) and key not in type(cast("BaseModel", container)).model_fields:
        dynamic_data(container)[key] = value
    else:
        setattr(container, key, value)


def _rebuilt(container: Any, segments: list[str], value: Any, path: str) -> Any:
    """Return a copy of a container with a new value at a path; all other values are shared."""
    top = current = _fresh(container)
    segment = segments[0]
    try:
        for following in segments[1:]:
            inner = _fresh(read_part(current, segment))
            write_part(current, segment, inner)
            current, segment = inner, following
        write_part(current, segment, value)
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise ValueError(
            f"Path {path!r} cannot be written: {type(current).__name__} does not hold {segment!r}"
        ) from error
    return top


def _fresh(container: Any) -> Any:
    if container is MISSING or container is None:
        return {}
    try:
        return copy.copy(container)
    except Exception:  # noqa: BLE001 - user objects may refuse to be copied in any way
        return container  # for example a connection, which cannot be copied

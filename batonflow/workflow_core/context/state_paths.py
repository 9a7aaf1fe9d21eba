"""Dotted paths through a state: reading a value, and writing it into copies of the containers on its way."""

import copy
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from batonflow.workflow_core.events import DictLikeModel

__all__ = [
    "DELETED",
    "MAX_DEPTH",
    "MISSING",
    "check_path",
    "key_in",
    "no_path",
    "read_part",
    "segments_of",
    "write_into",
    "write_part",
]

MISSING: Any = object()
"""Stands for the value at a path that leads nowhere."""

DELETED: Any = object()
"""Stands for the value of a key that is no more."""

MAX_DEPTH = 1000


def write_into(state: BaseModel, path: str, value: Any) -> None:
    """Put a value at a dotted path of a state, or with ``DELETED`` take a key out.

    Raises:
        ValueError: The path is too deep, or leads through something that cannot hold the value.
    """
    head, *inner = segments_of(path)
    if value is not DELETED:
        write_part(state, head, _rebuilt(read_part(state, head), inner, value, path) if inner else value)
    elif isinstance(state, DictLikeModel):
        state.to_dict().pop(head, None)


def check_path(path: object) -> None:
    """Refuse a path that cannot name a value of the state.

    Raises:
        TypeError: The path is not a text.
        ValueError: It is empty.
    """
    if not isinstance(path, str):
        raise no_path(path)
    if not path:
        raise ValueError("Path cannot be empty: name the key to write")


def no_path(path: object) -> TypeError:
    """Return the error for a path that is not a text."""
    return TypeError(f"A path in the state is a text such as 'user.name', got {path!r}")


def key_in(container: Mapping[Any, Any], key: str) -> Any:
    """Return the key of a dict that a part of a path means: a number, when the dict has it and not the text."""
    if key not in container and key.removeprefix("-").isdecimal() and str(int(key)) == key and int(key) in container:
        return int(key)
    return key


def segments_of(path: str) -> list[str]:
    """Split a path; ValueError when it is too deep."""
    if "." not in path:
        return [path]
    segments = path.split(".")
    if len(segments) > MAX_DEPTH:
        raise ValueError(f"Path has {len(segments)} segments, the most is {MAX_DEPTH}")
    return segments


def read_part(container: Any, key: str) -> Any:
    """One step down a path, or the mark for nothing there."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        return found.get(key_in(found, key), MISSING)
    if isinstance(container, BaseModel):
        if key in type(container).model_fields:
            return getattr(container, key)
        if isinstance(container, DictLikeModel):
            return container.to_dict().get(key, MISSING)
        return getattr(container, key, MISSING)
    if isinstance(container, list | tuple):
        try:
            return cast("list[Any]", container)[int(key)]
        except (ValueError, IndexError):
            return MISSING
    return getattr(container, key, MISSING)


def write_part(container: Any, key: str, value: Any) -> None:
    """Put a value one step down a path."""
    if isinstance(container, dict):
        found = cast("dict[Any, Any]", container)
        found[key_in(found, key)] = value
    elif isinstance(container, list):
        cast("list[Any]", container)[int(key)] = value
    elif isinstance(container, DictLikeModel) and key not in type(container).model_fields:
        container.to_dict()[key] = value
    else:
        setattr(container, key, value)


def _rebuilt(container: Any, segments: list[str], value: Any, path: str) -> Any:
    """Return a copy of a container with the value at the end of the segments; values beside the way are shared."""
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
        return container  # a connection, for instance, of which there is one

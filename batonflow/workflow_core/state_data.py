"""The key-value state as data: values in a snapshot, values in short text, and dotted paths through a state."""

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json, to_jsonable_python

from batonflow.user_warnings import warn_user
from batonflow.values.serializers import BaseSerializer, JsonSerializer, items_of
from batonflow.workflow_core.errors import ContextSerdeError
from batonflow.workflow_core.events import DictLikeModel

__all__ = [
    "DELETED",
    "MAX_DEPTH",
    "MISSING",
    "DictState",
    "UnserializableKeyWarning",
    "as_declared",
    "check_path",
    "declared_as_json",
    "dump_state",
    "in_words",
    "json_or_words",
    "key_in",
    "load_state",
    "no_path",
    "read_part",
    "segments_of",
    "write_into",
    "write_part",
    "written",
]


_TOLD = "__batonflow_told__"
"""The attribute in which a model names its reporting fields, such as the arguments and the result of a tool."""


# Levels of data beyond which parts are not looked at.
_DEEPEST = 24


def written(serializer: BaseSerializer, value: Any) -> str:
    """The text of a value.

    Models may have fields that only tell what has happened: where they hold something that cannot be written, they have
    data or words in its place. That is looked for when the value as a whole has failed.

    Args:
        serializer: Writes it.
        value: An event, or a value of the state.

    Raises:
        ValueError: It cannot be written.
        TypeError: The same, of serializers that raise it.

    Example:
        >>> JsonSerializer().deserialize(written(JsonSerializer(), ToolOutput("draw", raw_output=object()))).raw_output
        '<object object at 0x7f0c1b2c4a10>'
    """
    try:
        return serializer.serialize(value)
    except (TypeError, ValueError):
        told = value
        with suppress(RecursionError):  # it contains itself, as the error says
            told = _told(value, partial(_can_write, serializer))
        if told is value:
            raise
        return serializer.serialize(told)


def _told(value: Any, can_write: Callable[[Any], bool]) -> Any:
    """``value`` with words where they will do and nothing else can be written; itself where there is no such place."""
    if isinstance(value, dict):
        before = cast("dict[Any, Any]", value)
        items = items_of(before)
        found = {name: _told(one, can_write) for name, one in items}
        return found if any(found[name] is not one for name, one in items) else before
    if isinstance(value, list | tuple):
        parts = cast("list[Any]", value)
        after = [_told(one, can_write) for one in parts]
        return after if any(one is not was for one, was in zip(after, parts, strict=True)) else parts
    return _model_told(value, can_write) if isinstance(value, BaseModel) else value


def _model_told(model: BaseModel, can_write: Callable[[Any], bool]) -> BaseModel:
    telling: frozenset[str] = getattr(type(model), _TOLD, frozenset())
    private: Any = model.__pydantic_private__
    values: dict[str, Any] = {**vars(model), **(model.__pydantic_extra__ or {})}
    if isinstance(private, dict):
        values.update(cast("dict[str, Any]", private))
    changed: dict[str, Any] = {}
    for name, one in values.items():
        found = in_words(one, can_write) if name in telling else _told(one, can_write)
        if found is not one:
            changed[name] = found
    if not changed:
        return model
    hidden = {name: changed.pop(name) for name in model.__private_attributes__ if name in changed}
    copy = model.model_copy(update=changed)
    for name, found in hidden.items():
        setattr(copy, name, found)
    return copy


def in_words(value: Any, can_write: Callable[[Any], bool]) -> Any:
    r"""A value itself, as data of JSON, or as its ``repr``; of dicts and lists only the parts that need it.

    Args:
        value: What cannot be written, perhaps.
        can_write: Whether a part of it can.

    Example:
        >>> in_words({"to": "Brest", "data": b"\xff"}, lambda value: isinstance(value, str))
        {'to': 'Brest', 'data': "b'\\xff'"}
    """
    return _in_words(value, can_write, ())


def json_or_words(value: Any) -> Any:
    r"""Return the value where pydantic can write it as JSON; else data of JSON, with words for other values.

    Example:
        >>> json_or_words({"data": b"\xff", "found": 3})
        {'data': "b'\\xff'", 'found': 3}
    """
    return value if _is_json(value) else in_words(value, _is_json)


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except (ValueError, RecursionError):
        return False
    return True


def _in_words(value: Any, can_write: Callable[[Any], bool], around: tuple[int, ...]) -> Any:
    if can_write(value):
        return value
    within = (*around, id(value))
    if id(value) in around or len(within) > _DEEPEST:
        return _as_data(value)
    if isinstance(value, dict):
        items = items_of(value)
        found: Any = {name: _in_words(one, can_write, within) for name, one in items}
    elif isinstance(value, list | tuple):
        found = [_in_words(one, can_write, within) for one in cast("list[Any]", value)]
    else:
        return _as_data(value)
    return found if can_write(found) else _as_data(found)


def _as_data(value: Any) -> Any:
    for form in (partial(to_jsonable_python, fallback=repr), repr):
        with suppress(Exception):  # it may contain itself, or have a failing repr
            return form(value)
    return f"<{type(value).__name__}>"


def _can_write(serializer: BaseSerializer, value: Any) -> bool:
    try:
        serializer.serialize(value)
    except (TypeError, ValueError):
        return False
    return True


KEYS_THAT_MAY_BE_LEFT_OUT = ("memory",)


class UnserializableKeyWarning(UserWarning):
    """A key of the state was left out of a snapshot because its value cannot be written."""


class DictState(DictLikeModel):
    """State without declared fields: ``state["k"]`` and ``state.k`` are the same."""


def dump_state(state: BaseModel, serializer: BaseSerializer) -> dict[str, Any]:
    """The ``state`` part of a snapshot.

    Raises:
        ValueError: A value cannot be written; the message names its key and the remedy.
    """
    cls = type(state)
    if isinstance(state, DictState) and not cls.model_fields:
        data: Any = {"_data": _dump_keys(state.to_dict(), serializer)}
    else:
        try:
            data = written(serializer, state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The state {cls.__name__} cannot be written: {error}") from error
    return {"store_type": "in_memory", "state_type": cls.__name__, "state_module": cls.__module__, "state_data": data}


def _dump_keys(values: dict[str, Any], serializer: BaseSerializer) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        try:
            found[key] = written(serializer, value)
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
        ValueError: There is no such field, its type does not tell how to read it again, or it cannot be written.
    """
    field = type(state).model_fields.get(name)
    if field is None or "Any" in str(field.annotation):
        raise ValueError(f"{type(state).__name__} does not declare what {name!r} is")
    return state.model_copy(update={name: value}).model_dump(mode="json", include={name})[name]


def as_declared(state: BaseModel, name: str, serializer: BaseSerializer) -> None:
    """Read a value of a declared field that ``declared_as_json`` wrote.

    A value that the serializer can write stands in a record as it was set, also where the field declares another type.
    """
    if name not in type(state).model_fields:
        return
    try:
        whole: Any = type(state).__pydantic_validator__.validate_assignment(
            state.model_copy(), name, getattr(state, name)
        )
    except ValidationError:
        return  # a step may put any value there
    found = getattr(whole, name)
    if isinstance(serializer, JsonSerializer):
        serializer = serializer.for_records()
    if found is not getattr(state, name) and not _can_write(serializer, found):
        vars(state)[name] = found


def load_state(payload: dict[str, Any], serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    """The state from its part of a snapshot; the shape of the data decides how it is read, never a module name.

    Raises:
        ContextSerdeError: The data is not of either shape, or does not fit ``state_type``.
    """
    data = payload.get("state_data")
    try:
        if isinstance(data, str):
            return _load_model(data, serializer, state_type)
        values = cast("dict[str, Any]", data or {}).get("_data", data or {})
        read = {key: serializer.deserialize(value) for key, value in values.items()}
        return state_type.model_validate(read)
    except (TypeError, ValueError, AttributeError) as error:
        raise ContextSerdeError(f"The state of the snapshot cannot be read: {error}") from error


def _load_model(data: str, serializer: BaseSerializer, state_type: type[BaseModel]) -> BaseModel:
    found = serializer.deserialize(data)
    if isinstance(found, dict):
        values = cast("dict[str, Any]", found)
        if set(values) == {"_data"}:
            values = {key: serializer.deserialize(value) for key, value in values["_data"].items()}
        return state_type.model_validate(values)
    if isinstance(found, BaseModel):
        return found
    raise ContextSerdeError(f"The state of the snapshot is a {type(found).__name__}, not a model")


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

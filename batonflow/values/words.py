"""Values in words: data or a short text in the place of values that cannot be written."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from batonflow.values.serializers import BaseSerializer, items_of

__all__ = ["in_words", "is_writable", "json_or_words", "written"]

_TOLD = "__batonflow_told__"
"""The attribute with the names of a model's reporting fields, such as a tool's arguments and result."""


# The depth of data up to which parts are inspected.
_DEEPEST = 24


def written(serializer: BaseSerializer, value: Any) -> str:
    """Return the text of a value.

    Some models have fields for information only. If such a field holds a value that cannot be written, its data or a
    text are written instead. This happens only if the value as a whole cannot be written.

    Args:
        serializer: The serializer.
        value: An event, or a value of the state.

    Raises:
        ValueError: The value cannot be written.
        TypeError: The value cannot be written, for serializers that raise it.

    Example:
        >>> JsonSerializer().deserialize(written(JsonSerializer(), ToolOutput("draw", raw_output=object()))).raw_output
        '<object object at 0x7f0c1b2c4a10>'
    """
    try:
        return serializer.serialize(value)
    except (TypeError, ValueError):
        told = value
        with suppress(RecursionError):  # the value contains itself, see the error
            told = _told(value, partial(is_writable, serializer))
        if told is value:
            raise
        return serializer.serialize(told)


def _told(value: Any, can_write: Callable[[Any], bool]) -> Any:
    """Return ``value`` with texts in fields for information; ``value`` itself without such fields."""
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
    r"""Return a value unchanged, as JSON data, or as its ``repr``. In dicts and lists only the parts that need it.

    Args:
        value: The value.
        can_write: Tells whether a part can be written.

    Example:
        >>> in_words({"to": "Brest", "data": b"\xff"}, lambda value: isinstance(value, str))
        {'to': 'Brest', 'data': "b'\\xff'"}
    """
    return _in_words(value, can_write, ())


def json_or_words(value: Any) -> Any:
    r"""Return a value if pydantic can write it as JSON; otherwise JSON data with texts for other values.

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
        with suppress(Exception):  # the value may contain itself, or have a failing repr
            return form(value)
    return f"<{type(value).__name__}>"


def is_writable(serializer: BaseSerializer, value: Any) -> bool:
    """Tell whether a serializer can write a value."""
    try:
        serializer.serialize(value)
    except (TypeError, ValueError):
        return False
    return True

"""TypedDicts as tool parameters: before Python 3.12 pydantic accepts only the ones of typing_extensions."""

import sys
import typing
from types import UnionType
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import typing_extensions

__all__ = ["readable"]


def readable(annotation: Any) -> Any:
    """Replace every ``typing.TypedDict`` in an annotation by a type that pydantic accepts.

    Example:
        >>> TypeAdapter(readable(list[Point])).json_schema()
    """
    return annotation if sys.version_info >= (3, 12) else _translated(annotation, ())


def _translated(annotation: Any, inside: tuple[Any, ...]) -> Any:
    if annotation in inside:
        # A recursive type; pydantic reports it.
        return annotation
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, (*inside, annotation))
    arguments = get_args(annotation)
    changed = tuple(_translated(one, inside) for one in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    origin: Any = get_origin(annotation)
    return (Union if origin is UnionType else origin)[changed]


def _typed_dict(original: Any, inside: tuple[Any, ...]) -> Any:
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(original, include_extras=True).items():
        # For annotations written as text, __required_keys__ and __optional_keys__ are wrong.
        mark, inner = get_origin(hint), hint
        if mark in {Required, NotRequired}:
            inner = get_args(hint)[0]
        else:
            mark = Required if name in original.__required_keys__ else NotRequired
        fields[name] = mark[_translated(inner, inside)]
    make: Any = typing_extensions.TypedDict
    made = make(original.__name__, fields)
    made.__doc__ = original.__doc__
    return made

"""Names and marks of classes in payloads, and the rule for classes that a payload may name."""

import collections.abc
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic_core import from_json

from batonflow.lazy import at_first_use

__all__ = [
    "IN_PARTS",
    "IS_COMPONENT",
    "IS_DATA",
    "IS_PYDANTIC",
    "IS_VALUE",
    "MARKED",
    "PRIVATE",
    "REFERENCE",
    "REFERENCE_MARK",
    "SCALARS",
    "InParts",
    "NotWritable",
    "is_marked",
    "is_plain",
    "items_of",
    "loaded_class",
    "named_class",
    "names_of",
    "payload_name",
    "qualified_name",
]


to_json_text = at_first_use("json", "dumps")


def qualified_name(cls: type) -> str:
    """Return ``module.QualName`` of a class, as in payloads and records; ``loaded_class`` finds the class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def payload_name(cls: Any) -> str:
    """Return the name of a class in payloads; for a parametrised generic model it includes the arguments.

    Raises:
        ValueError: An argument has no name.

    Example:
        >>> payload_name(Page[int])
        'shop.Page[builtins.int]'
    """
    if "[" not in cls.__qualname__:
        return qualified_name(cls)
    generic = getattr(cls, "__pydantic_generic_metadata__", {})
    if not generic.get("args"):
        return qualified_name(cls)
    return f"{payload_name(generic['origin'])}[{', '.join(map(_argument_name, generic['args']))}]"


def names_of(cls: type) -> tuple[str, ...]:
    """Return the names that payloads may use for a class."""
    name = qualified_name(cls)
    if "[" in name:
        with suppress(ValueError):
            return name, payload_name(cls)
    return (name,)


def _argument_name(argument: Any) -> str:
    if argument is None or argument is type(None):
        return "None"
    if argument is Any:
        return "typing.Any"
    origin, inner = get_origin(argument), get_args(argument)
    if origin in (Union, UnionType):
        name = "types.UnionType" if origin is UnionType else "typing.Union"
        return f"{name}[{', '.join(map(_argument_name, inner))}]"
    if origin is Literal and all(isinstance(one, str | int | None) and not isinstance(one, Enum) for one in inner):
        return f"typing.Literal[{', '.join(map(to_json_text, inner))}]"
    if isinstance(origin, type) and inner:
        names = ["..." if one is Ellipsis else _argument_name(one) for one in inner]
        return f"{qualified_name(cast('type', origin))}[{', '.join(names)}]"
    if isinstance(argument, type) and origin is None:
        return payload_name(argument)
    raise ValueError(f"{argument} is an argument of a generic model that has no name: use classes as its arguments")


def named_class(name: str, find: Callable[[str], Any]) -> Any:
    """Return the class for a :func:`payload_name`.

    Args:
        name: The name.
        find: Returns the class for a name without arguments.

    Raises:
        ValueError: The name cannot be parsed.
    """
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^\[\], ]+|[\[\]]', name)
    try:
        found, rest = _named(parts, find)
    except TypeError as error:
        raise ValueError(f"The payload names {name}, which takes no such arguments: {error}") from None
    if rest:
        raise ValueError(f"{name!r} is not the name of a class")
    return found


def _named(parts: list[str], find: Callable[[str], Any]) -> tuple[Any, list[str]]:
    if not parts or parts[0] in "[]":
        raise ValueError("The payload names a class with arguments that cannot be read")
    name, rest = parts[0], parts[1:]
    if _LITERAL.match(name):
        return from_json(name), rest
    if not rest or rest[0] != "[":
        return _SPECIAL[name] if name in _SPECIAL else _abstract(name) or find(name), rest
    arguments: list[Any] = []
    rest = rest[1:]
    while rest and rest[0] != "]":
        argument, rest = _named(rest, find)
        arguments.append(argument)
    if name == "types.UnionType":
        return reduce(lambda one, other: one | other, arguments), rest[1:]
    generic = _GENERIC.get(name) or _abstract(name) or find(name)
    return generic[tuple(arguments)], rest[1:]


def _abstract(name: str) -> Any:
    """Return the class of ``collections.abc`` with this name, or None; generic models have such type arguments."""
    module, _, rest = name.rpartition(".")
    return getattr(collections.abc, rest, None) if module == "collections.abc" and not rest.startswith("_") else None


_LITERAL = re.compile(r'"|-?\d|(true|false|null)$')
_GENERIC: dict[str, Any] = {"typing.Union": Union, "typing.Literal": Literal}
_SPECIAL: dict[str, Any] = {"None": None, "typing.Any": Any, "...": Ellipsis}


def loaded_class(qualified_name: str) -> Any:
    """Return the object with the name ``module.QualName`` from the loaded modules, or None.

    Modules of batonflow are imported if they are not loaded yet; other modules are not.
    """
    module_name, _, rest = qualified_name.rpartition(".")
    if module_name.startswith("batonflow.") and "__" not in module_name and module_name not in sys.modules:
        with suppress(ImportError):
            import_module(module_name)
    trail = [rest]
    while module_name:
        module = sys.modules.get(module_name)
        if module is not None:
            found: Any = module
            for part in trail:
                found = getattr(found, part, None)
            return found
        module_name, _, part = module_name.rpartition(".")
        trail.insert(0, part)
    return None


IS_PYDANTIC = "__is_pydantic"
"""Marks a model."""

IS_COMPONENT = "__is_component"
"""Marks an object with ``class_name`` and ``to_dict``."""

IS_DATA = "__is_data"
"""Marks a plain dict that has the names of marks."""

IS_VALUE = "__is_value"
"""Marks a value of a type that JSON lacks, such as a datetime, a set or a dataclass."""

MARKED = "marked"
"""Names the fields with marks in a model, beside its own mark. True means that all may have marks."""

PRIVATE = "__private"
"""Names the private attributes among the fields of a model."""

SCALARS = frozenset({str, int, float, bool, type(None)})

REFERENCE = "$"
"""The only dict name in a record for a part of a conversation. See ``durable.parts``."""

REFERENCE_MARK = '{"$":'
"""The beginning of such a dict as text."""

IN_PARTS = "batonflow: in parts"
"""Annotates a field with a list whose items are parts of a conversation, which records write once."""


@dataclass(frozen=True, slots=True)
class InParts:
    """A field with lists whose items are parts of a conversation.

    Attributes:
        items: The class of the items.
        write: Returns the data of the field of a model, with a function for lists; None if it cannot be written so.
        owns: Whether the lists belong to the state of a run, as those of a memory do.
    """

    items: type
    write: Callable[[Any, Callable[..., Any]], Any]
    owns: bool = False


_MARKS = frozenset({IS_PYDANTIC, IS_COMPONENT, IS_DATA, IS_VALUE})

items_of: Any = getattr(dict, "items")  # noqa: B009 - its type is that of a dict of nothing known
"""Return the items of a dict of any class, without values that a class computes on access."""


class NotWritable(ValueError):
    """The error for a value that cannot be written and read again.

    Args:
        problem: The value and the remedy.
        path: The keys, indexes and field names that lead to the value.
    """

    def __init__(self, problem: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def inside(self, key: Any) -> "NotWritable":
        """Return the same error with ``key`` before its path."""
        return NotWritable(self.problem, (key, *self.path))

    def __str__(self) -> str:
        where = ".".join(str(key) for key in self.path)
        return f"{where}: {self.problem}" if where else self.problem


def is_marked(data: dict[str, Any]) -> bool:
    """Tell whether a dict has the marks with which the serializer writes an object."""
    return "qualified_name" in data and "value" in data and not _MARKS.isdisjoint(data)


def is_plain(value: Any) -> bool:
    """Tell whether a value consists of JSON's own types, without subclasses and without marks."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in SCALARS:
        return True
    if kind is dict:
        if "qualified_name" in value and is_marked(value):
            return False
        for key, inner in value.items():
            if type(key) is not str or not (type(inner) in SCALARS or is_plain(inner)):
                return False
        return True
    if kind is list:
        return all(type(inner) in SCALARS or is_plain(inner) for inner in value)
    return False

"""Names of classes in payloads, and the one rule by which a payload may name a class."""

import collections.abc
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import reduce
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic_core import from_json

from batonflow.lazy import at_first_use

__all__ = ["loaded_class", "named_class", "names_of", "payload_name", "qualified_name"]

to_json_text = at_first_use("json", "dumps")


def qualified_name(cls: type) -> str:
    """``module.QualName`` of a class, as payloads and records have it; ``loaded_class`` finds it again."""
    return f"{cls.__module__}.{cls.__qualname__}"


def payload_name(cls: Any) -> str:
    """The name of a class in a payload; that of a parametrised generic model names the arguments too.

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
    """The names by which payloads may know a class."""
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
    """The class of a :func:`payload_name`.

    Args:
        name: The name.
        find: Finds a class that is not parametrised by its name.

    Raises:
        ValueError: The name does not read as one.
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
        raise ValueError("The payload names a class whose arguments cannot be read")
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
    """Return a class of ``collections.abc``: an argument of a generic model of which no value is made."""
    module, _, rest = name.rpartition(".")
    return getattr(collections.abc, rest, None) if module == "collections.abc" and not rest.startswith("_") else None


_LITERAL = re.compile(r'"|-?\d|(true|false|null)$')
_GENERIC: dict[str, Any] = {"typing.Union": Union, "typing.Literal": Literal}
_SPECIAL: dict[str, Any] = {"None": None, "typing.Any": Any, "...": Ellipsis}


def loaded_class(qualified_name: str) -> Any:
    """The object that ``module.QualName`` names among the modules already loaded, or None.

    Nothing is imported but modules of batonflow, some of which are loaded when they are named.
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

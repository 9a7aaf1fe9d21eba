"""Type variables of the public API, and the one rule by which a payload may name a class."""

import collections.abc
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import reduce
from importlib import import_module
from types import FunctionType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic_core import from_json, to_jsonable_python

from batonflow.lazy import at_first_use
from batonflow.values.marks import is_plain
from batonflow.workflow_core.errors import BatonflowError

__all__ = [
    "RetryInfo",
    "RunResultT",
    "StopEventT",
    "UnreconstructedException",
    "dump_exception",
    "is_context_class",
    "load_exception",
    "loaded_class",
    "named_class",
    "names_of",
    "payload_name",
    "qualified_name",
    "traceback_of",
]

_FRAMES, _CHARACTERS = 12, 8_000

to_json_text = at_first_use("json", "dumps")
type_adapter = at_first_use("pydantic", "TypeAdapter")

StopEventT = TypeVar("StopEventT")
"""The class of a workflow's StopEvent."""

RunResultT = TypeVar("RunResultT")
"""What awaiting a run gives."""


@dataclass(frozen=True, slots=True)
class RetryInfo:
    """The failed attempts of the current step before this one.

    Attributes:
        retry_number: Failures so far, 0 on the first attempt.
        elapsed_seconds: Seconds since the first attempt began.
        last_exception: The exception of the last attempt.
        last_failed_at: When the last attempt failed, with a time zone (UTC).
    """

    retry_number: int = 0
    elapsed_seconds: float = 0.0
    last_exception: BaseException | None = None
    last_failed_at: datetime | None = None


def is_context_class(cls: object) -> bool:
    """Whether a class is the Context, or one made of it.

    By name and home: who reads signatures lies below what the Context is made of, or does without the engine.
    """
    home = __name__.rpartition(".")[0]
    return isinstance(cls, type) and any(
        one.__name__ == "Context" and one.__module__.startswith(home) for one in cls.__mro__
    )


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


class UnreconstructedException(Exception):
    """Stands for an exception whose type could not be rebuilt from a payload.

    Args:
        message: The text of the original; also the ``str()`` of this one.
        original_type: The qualified name of the original's class.
    """

    def __init__(self, message: str = "", *, original_type: str = "") -> None:
        super().__init__(message)
        self.original_type = original_type


def dump_exception(error: BaseException, *, attributes: bool = True) -> dict[str, Any]:
    """An exception as data: the qualified name of its class, and its text; of batonflow's own what they carry, too.

    The arguments are there too, where the text alone does not make them, and the attributes; of a class with an
    ``__init__`` of its own only where they are plain data of which the same error can be made without that.

    Args:
        error: The exception.
        attributes: Whether those of the program's own classes are written, too.
    """
    if isinstance(error, UnreconstructedException):
        return {"exception_type": error.original_type, "exception_message": str(error)}
    cls = type(error)
    # Whatever stands in it, it can be written.
    message = str(error).encode(errors="backslashreplace").decode()
    told: dict[str, Any] = {"exception_type": qualified_name(cls), "exception_message": message}
    if kept := _kept_of(cls):
        values = {name: getattr(error, name, None) for name in kept}
        told["exception_values"] = to_jsonable_python(values, inf_nan_mode="strings", serialize_unknown=True)
    elif attributes and (parts := _parts_of(error)) is not None:
        told |= parts
    elif not isinstance(cls.__init__, FunctionType):
        # An OSError has its file names beside its arguments.
        arguments: Any = error.__reduce__()[1] if isinstance(error, OSError) else error.args
        if list(arguments) != [message] and is_plain(list(arguments)):
            told["exception_args"] = list(arguments)
    return told


def _parts_of(error: BaseException) -> dict[str, Any] | None:
    """The arguments and attributes of an error that its arguments alone do not make; None when they do not, either."""
    attributes = {name: value for name, value in vars(error).items() if _is_name(name)}
    if not attributes and not isinstance(type(error).__init__, FunctionType):
        return None
    parts: dict[str, Any] = {"exception_args": list(error.args), "exception_attributes": attributes}
    if not is_plain(parts):
        return None
    with suppress(Exception):  # code of the class's own may raise anything
        again = _made_of(type(error), parts)
        if str(again) == str(error) and again.args == error.args:
            return parts
    return None


def _made_of(cls: type[BaseException], parts: Mapping[str, Any]) -> Any:
    """An error without a call of its ``__init__``, which may take something else than it hands on."""
    arguments = parts["exception_args"]
    error = cls.__new__(cls, *arguments)
    error.args = tuple(arguments)
    vars(error).update({name: value for name, value in parts["exception_attributes"].items() if _is_name(name)})
    return error


def _is_name(name: str) -> bool:
    return not name.startswith("__") or name == "__notes__"


def _kept_of(cls: type[BaseException]) -> Mapping[str, Any]:
    """The attributes that are written down with errors of a class, and their types; none but of batonflow's own."""
    if issubclass(cls, BatonflowError) and cls.__module__.startswith("batonflow."):
        return cls.__batonflow_kept__
    return {}


def traceback_of(error: BaseException) -> str:
    """Where an error was raised, for people; its end, when it is long."""
    text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _CHARACTERS else f"...\n{text[-_CHARACTERS:]}"


def load_exception(value: Any) -> Any:
    """The exception that such data describes, else the value itself.

    A class that is not an exception, is not loaded or makes nothing of its text gives an UnreconstructedException.
    """
    if not isinstance(value, dict):
        return value
    payload = cast("dict[str, Any]", value)
    if "exception_type" not in payload:
        return payload
    name, message = str(payload["exception_type"]), str(payload.get("exception_message", ""))
    cls = loaded_class(name)
    # Only a class that is an exception, already loaded and happy with its text is built: a payload calls nothing else.
    if isinstance(cls, type) and issubclass(cls, Exception):
        try:
            error = _built(cls, message, payload)
            str(error)
        except Exception:  # noqa: BLE001 - a class that takes something else for its argument may raise anything
            return UnreconstructedException(message, original_type=name)
        return error
    return UnreconstructedException(message, original_type=name)


def _built(cls: type[Exception], message: str, payload: Mapping[str, Any]) -> Exception:
    kept, values = _kept_of(cls), payload.get("exception_values")
    if not kept and "exception_attributes" in payload:
        return _made_of(cls, payload)
    if not kept and "exception_args" in payload:
        return cls(*payload["exception_args"])
    if not kept or values is None:
        return cls(message)
    # Without its __init__, which makes the text anew from what there was then.
    error = cls.__new__(cls, message)
    for name, kind in kept.items():
        setattr(error, name, type_adapter(kind).validate_python(values.get(name)))
    return error

"""Type variables of the public API, names of classes in payloads, and amounts."""

from importlib import import_module
from typing import Any, TypeGuard, TypeVar, get_args, get_origin

from typing_extensions import TypeAliasType

from batonflow.retrying import RetryInfo
from batonflow.values.exceptions import UnreconstructedException, dump_exception, load_exception, traceback_of
from batonflow.values.names import loaded_class, named_class, names_of, payload_name, qualified_name

__all__ = [
    "RetryInfo",
    "RunResultT",
    "StopEventT",
    "UnreconstructedException",
    "check_whole",
    "dump_exception",
    "is_context_class",
    "is_seconds",
    "is_whole",
    "load_exception",
    "loaded_class",
    "named_class",
    "names_of",
    "payload_name",
    "qualified_name",
    "traceback_of",
    "without_alias",
]


StopEventT = TypeVar("StopEventT")
"""The class of a workflow's StopEvent."""

RunResultT = TypeVar("RunResultT")
"""The result of awaiting a run."""


def is_context_class(cls: object) -> bool:
    """Tell whether a class is the Context or a subclass of it.

    It compares name and module, because signatures are read below the floor of the Context.
    """
    home = f"{__name__.partition('.')[0]}.workflow_core"
    return isinstance(cls, type) and any(
        one.__name__ == "Context" and one.__module__.startswith(home) for one in cls.__mro__
    )


def is_seconds(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number of seconds, 0 or more."""
    number: Any = value
    if isinstance(value, int | float):
        return not isinstance(value, bool) and value >= 0
    # Numbers of other libraries; rarely reached.
    return isinstance(number, import_module("numbers").Real) and bool(number >= 0)


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Tell whether a value is a whole number of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(value: object, what: str, least: int = 0) -> None:
    """Refuse a value that is not a whole number of at least ``least``.

    Args:
        value: The value.
        what: The name and the expected value, for the message.
        least: The minimum.

    Raises:
        TypeError: The value is not a whole number.
        ValueError: The value is too small.
    """
    if not is_whole(value, least):
        wrong = ValueError if isinstance(value, int) and not isinstance(value, bool) else TypeError
        raise wrong(f"{what}, not {value!r}")


def without_alias(annotation: Any) -> Any:
    """Return an annotation with the value of a type alias in its place, such as ``RunContext[Deps]``."""
    alias = get_origin(annotation) or annotation
    if not isinstance(alias, TypeAliasType) and type(alias).__name__ != "TypeAliasType":
        return annotation
    given = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
    value = alias.__value__
    wanted = getattr(value, "__parameters__", ())
    if wanted:
        value = value[tuple(given.get(one, getattr(one, "__default__", Any)) for one in wanted)]
    return without_alias(value)

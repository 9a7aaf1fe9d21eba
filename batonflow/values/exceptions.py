"""Exceptions as data: the class, the text, and the values that make the same error again."""

import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, cast

from pydantic_core import to_jsonable_python

from batonflow.lazy import at_first_use
from batonflow.values.names import is_plain, loaded_class, qualified_name

__all__ = ["RunNote", "UnreconstructedException", "dump_exception", "load_exception", "traceback_of"]

_FRAMES, _CHARACTERS = 12, 8_000

type_adapter = at_first_use("pydantic", "TypeAdapter")


class UnreconstructedException(Exception):
    """Replaces an exception that could not be restored from a payload.

    Args:
        message: The text of the original; also the ``str()`` of this one.
        original_type: The qualified name of the original's class.
    """

    def __init__(self, message: str = "", *, original_type: str = "") -> None:
        super().__init__(message)
        self.original_type = original_type


class RunNote(str):
    """A note on an exception that says where it was raised. It is not part of the exception's data."""

    __slots__ = ()


def dump_exception(error: BaseException, *, attributes: bool = True) -> dict[str, Any]:
    """Write an exception as data: its class name, its text, and the values of batonflow's own errors.

    Arguments and attributes are added when the text alone cannot restore the exception. A class that overrides
    ``__init__`` gets them only if they are plain data that restore an equal exception without calling ``__init__``.

    Args:
        error: The exception.
        attributes: Whether to write the attributes of classes outside batonflow.
    """
    if isinstance(error, UnreconstructedException):
        return {"exception_type": error.original_type, "exception_message": str(error)}
    cls = type(error)
    # Lone surrogates are escaped, so that the text can always be encoded.
    message = str(error).encode(errors="backslashreplace").decode()
    told: dict[str, Any] = {"exception_type": qualified_name(cls), "exception_message": message}
    if kept := _kept_of(cls):
        values = {name: getattr(error, name, None) for name in kept}
        told["exception_values"] = to_jsonable_python(values, inf_nan_mode="strings", serialize_unknown=True)
    elif attributes and (parts := _parts_of(error)) is not None:
        told |= parts
    elif not isinstance(cls.__init__, FunctionType):
        # An OSError keeps its file names outside of ``args``.
        arguments: Any = error.__reduce__()[1] if isinstance(error, OSError) else error.args
        if list(arguments) != [message] and is_plain(list(arguments)):
            told["exception_args"] = list(arguments)
    return told


def _parts_of(error: BaseException) -> dict[str, Any] | None:
    """Return the arguments and attributes that restore an exception; None if they are not needed or not enough."""
    attributes = {name: value for name, value in vars(error).items() if _is_name(name)}
    notes = [note for note in attributes.pop("__notes__", ()) if not isinstance(note, RunNote)]
    if notes:
        attributes["__notes__"] = notes
    if not attributes and not isinstance(type(error).__init__, FunctionType):
        return None
    parts: dict[str, Any] = {"exception_args": list(error.args), "exception_attributes": attributes}
    if not is_plain(parts):
        return None
    with suppress(Exception):  # code of the class may raise any exception
        again = _made_of(type(error), parts)
        if str(again) == str(error) and again.args == error.args:
            return parts
    return None


def _made_of(cls: type[BaseException], parts: Mapping[str, Any]) -> Any:
    """Create an exception without calling ``__init__``, whose parameters may differ from ``args``."""
    arguments = parts["exception_args"]
    error = cls.__new__(cls, *arguments)
    error.args = tuple(arguments)
    vars(error).update({name: value for name, value in parts["exception_attributes"].items() if _is_name(name)})
    return error


def _is_name(name: str) -> bool:
    return not name.startswith("__") or name == "__notes__"


def _kept_of(cls: type[BaseException]) -> Mapping[str, Any]:
    """Return the attributes, with their types, that are written for batonflow's own errors; empty for other classes."""
    kept: Mapping[str, Any] | None = getattr(cls, "__batonflow_kept__", None)
    return kept if kept is not None and cls.__module__.startswith("batonflow.") else {}


def traceback_of(error: BaseException) -> str:
    """Return the traceback as text; only its last part when it is long."""
    text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _CHARACTERS else f"...\n{text[-_CHARACTERS:]}"


def load_exception(value: Any) -> Any:
    """Return the exception that ``dump_exception`` wrote; other values are returned unchanged.

    The result is an UnreconstructedException if the class is not loaded, is not an exception, or refuses the data.
    """
    if not isinstance(value, dict):
        return value
    payload = cast("dict[str, Any]", value)
    if "exception_type" not in payload:
        return payload
    name, message = str(payload["exception_type"]), str(payload.get("exception_message", ""))
    cls = loaded_class(name)
    # A payload may create exceptions of loaded classes, and call nothing else.
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
    # ``__init__`` would compose the text again.
    error = cls.__new__(cls, message)
    for name, kind in kept.items():
        setattr(error, name, type_adapter(kind).validate_python(values.get(name)))
    return error

"""Type variables of the public API, and the one rule by which a payload may name a class."""

import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, TypeVar, cast

from pydantic_core import to_jsonable_python

from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.lazy import at_first_use

__all__ = [
    "RetryInfo",
    "RunResultT",
    "StopEventT",
    "UnreconstructedException",
    "dump_exception",
    "is_context_class",
    "load_exception",
    "loaded_class",
    "qualified_name",
    "traceback_of",
]

_FRAMES, _CHARACTERS = 12, 8_000

type_adapter = at_first_use("pydantic", "TypeAdapter")

StopEventT = TypeVar("StopEventT")
"""The class of a workflow's StopEvent."""

RunResultT = TypeVar("RunResultT")
"""What awaiting a run gives."""


@dataclass(frozen=True, slots=True)
class RetryInfo:
    """How often the current step failed before this attempt.

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


def dump_exception(error: BaseException) -> dict[str, Any]:
    """An exception as data: the qualified name of its class, and its text; of batonflow's own what they carry, too."""
    if isinstance(error, UnreconstructedException):
        return {"exception_type": error.original_type, "exception_message": str(error)}
    cls = type(error)
    # Whatever stands in it, it can be written.
    message = str(error).encode(errors="backslashreplace").decode()
    told: dict[str, Any] = {"exception_type": qualified_name(cls), "exception_message": message}
    if kept := _kept_of(cls):
        values = {name: getattr(error, name, None) for name in kept}
        told["exception_values"] = to_jsonable_python(values, inf_nan_mode="strings", serialize_unknown=True)
    return told


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
    if not kept or values is None:
        return cls(message)
    # Without its __init__, which makes the text anew from what there was then.
    error = cls.__new__(cls, message)
    for name, kind in kept.items():
        setattr(error, name, type_adapter(kind).validate_python(values.get(name)))
    return error

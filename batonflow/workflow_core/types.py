"""Type variables of the public API, the failures of a step so far, and the names of classes in payloads."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from batonflow.values.exceptions import UnreconstructedException, dump_exception, load_exception, traceback_of
from batonflow.values.names import loaded_class, named_class, names_of, payload_name, qualified_name

__all__ = [
    "RetryInfo", "RunResultT", "StopEventT", "UnreconstructedException", "dump_exception", "is_context_class",
    "load_exception", "loaded_class", "named_class", "names_of", "payload_name", "qualified_name", "traceback_of",
]  # fmt: skip

StopEventT = TypeVar("StopEventT")
"""The class of a workflow's StopEvent."""

RunResultT = TypeVar("RunResultT")
"""The result of awaiting a run."""


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
    """Tell whether a class is the Context, or one made of it.

    By name and home: who reads signatures lies below what the Context is made of, or does without the engine.
    """
    home = __name__.rpartition(".")[0]
    return isinstance(cls, type) and any(
        one.__name__ == "Context" and one.__module__.startswith(home) for one in cls.__mro__
    )

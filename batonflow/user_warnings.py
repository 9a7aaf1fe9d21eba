"""Warnings that point at the user's code instead of frames of this package."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["warn_of_checkpoints", "warn_user"]

_PASSED_OVER = frozenset(
    {"batonflow", "asyncio", "concurrent", "contextlib", "contextvars", "functools", "pydantic", "threading", "wrapt"}
)


def warn_user(text: str, category: type[Warning] = UserWarning, *, about: Callable[..., Any] | None = None) -> None:
    """Issue a warning for the innermost line of user code on the stack.

    Args:
        text: The warning.
        category: The class of the warning.
        about: A user's function that the warning is about, if it may not be on the stack.
    """
    function: Any = None if about is None else inspect.unwrap(about)
    if inspect.isfunction(function):
        code, known = function.__code__, function.__globals__.setdefault("__warningregistry__", {})
        warnings.warn_explicit(text, category, code.co_filename, code.co_firstlineno, function.__module__, known)
        return
    level = 1
    found: Any = inspect.currentframe()
    while found is not None and _is_passed_over(found):
        found = found.f_back
        if found is not None and not _is_import(found):  # the standard library does not count these either
            level += 1
    warnings.warn(text, category, stacklevel=2 if found is None else level)


def _is_passed_over(frame: Any) -> bool:
    return _is_import(frame) or str(frame.f_globals.get("__name__", "")).partition(".")[0] in _PASSED_OVER


def _is_import(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return "importlib" in name and "_bootstrap" in name


_warned: set[type] = set()


def warn_of_checkpoints(cls: type, given: Mapping[str, Any]) -> None:
    """Warn once for each class of workflow of ``run(checkpoint_callback=...)``, which has no effect.

    Args:
        cls: The class of the workflow.
        given: The values for the start event that are not fields of it.
    """
    if "checkpoint_callback" in given and cls not in _warned:
        _warned.add(cls)
        warn_user(
            f"run(checkpoint_callback=...) has no effect: {cls.__name__}(store=...) keeps each step of a run, and "
            "resume() goes on with it"
        )

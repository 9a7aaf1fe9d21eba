"""Marks for input from a client of a server. It must not choose the files and addresses that are read."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar

__all__ = ["input_is_served", "is_reading_input", "mark_input", "reading_input", "served_input"]

_served: ContextVar[bool] = ContextVar("batonflow_served_input", default=False)
_reading: ContextVar[bool] = ContextVar("batonflow_reading_input", default=False)


def input_is_served() -> bool:
    """Tell whether a server started the running code's run."""
    return _served.get()


def is_reading_input() -> bool:
    """Tell whether a client's message is being read."""
    return _reading.get()


def mark_input(variables: Context, *, served: bool) -> None:
    """Set in the context variables of a run whether a server started it."""
    if variables.get(_served, False) is not served:
        variables.run(_served.set, served)


@contextmanager
def served_input() -> Generator[None]:
    """Mark all runs and tasks that start inside the block as started by a server."""
    token = _served.set(True)
    try:
        yield
    finally:
        _served.reset(token)


@contextmanager
def reading_input() -> Generator[None]:
    """Mark the values that are created inside the block as a client's input."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)

"""Marks work that a server begins: its input comes from a client, which must not choose what this process reads."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar

__all__ = ["input_is_served", "is_reading_input", "mark_input", "reading_input", "served_input"]

_served: ContextVar[bool] = ContextVar("batonflow_served_input", default=False)
_reading: ContextVar[bool] = ContextVar("batonflow_reading_input", default=False)


def input_is_served() -> bool:
    """Tell whether the run at hand was begun by a server."""
    return _served.get()


def is_reading_input() -> bool:
    """Tell whether a client's message is being read right now."""
    return _reading.get()


def mark_input(variables: Context, *, served: bool) -> None:
    """Let the tasks of a run, which begin with these variables, know whether a server began it."""
    if variables.get(_served, False) is not served:
        variables.run(_served.set, served)


@contextmanager
def served_input() -> Generator[None]:
    """Mark every run and task that is begun inside the block as begun by a server."""
    token = _served.set(True)
    try:
        yield
    finally:
        _served.reset(token)


@contextmanager
def reading_input() -> Generator[None]:
    """Mark the values that are made inside the block as a client's."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)

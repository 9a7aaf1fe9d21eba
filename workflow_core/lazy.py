"""Functions whose module is loaded when they are first called: what most processes never use must not weigh on them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["at_first_use"]


def at_first_use(module: str, name: str) -> Callable[..., Any]:
    """A stand-in for a function or class of a module that is not loaded yet.

    Args:
        module: The module, by its full name.
        name: What to call in it.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call

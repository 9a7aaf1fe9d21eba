"""The command ``batonflow``: run, watch, answer, draw, check and serve workflows and agents from a shell.

``batonflow --help`` loads only the standard library. The module of a command is loaded when the command is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.cli.program import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    if name == "main":
        return import_module("batonflow.cli.program").main
    if name == "failures" or name.startswith("cmd_"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

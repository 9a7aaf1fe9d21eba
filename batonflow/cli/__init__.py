"""The command ``batonflow``: run, watch, answer, draw, check and serve workflows and agents from a shell.

``batonflow --help`` loads only the standard library. The module of a command is loaded when the command is called.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonflow.cli.program import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    if name == "main":
        from batonflow.cli.program import main  # noqa: PLC0415 - ``import batonflow.cli`` stays light

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The program: parse the command line and call the command. Errors become one line and an exit code."""

import gc
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword

from batonflow.cli.arguments import parsed
from batonflow.cli.errors import BROKEN_PIPE, INTERRUPTED, USAGE

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The words after ``batonflow``; by default the arguments of this process.

    Returns:
        0 done, 1 failed, 2 the command line is wrong, 3 a run waits for a person, 130 interrupted by Ctrl-C, 141 the
        reader of the output has gone.

    Example:
        >>> main(["runs", "--store", "runs.db"])
    """
    try:
        given = parsed(arguments)
    except SystemExit as end:  # argparse has printed the reason
        return end.code if isinstance(end.code, int) else USAGE
    try:
        command = _command(given.command)
        code = command(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more when the process ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary of the program: users see a line, not a traceback
        from batonflow.cli.failures import report  # noqa: PLC0415 - for failures alone

        return report(error, given)
    return code


def _command(name: str) -> Callable[[Namespace], int]:
    """Load the function of a command."""
    # Imports make many objects and hardly any garbage, so collections would be a tenth of the start for nothing.
    collects = gc.isenabled()
    gc.disable()
    try:
        # ``try`` is a keyword, so its function is called ``try_``.
        command: Callable[[Namespace], int] = getattr(
            import_module(f"batonflow.cli.cmd_{name}"), name + "_" * iskeyword(name)
        )
    finally:
        if collects:
            gc.enable()
    return command

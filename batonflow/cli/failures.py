"""Errors of commands as lines on stderr."""

import sys
import traceback
from argparse import Namespace

from batonflow.cli.errors import FAILED, CommandError
from batonflow.cli.text import one_line
from batonflow.instrumentation.logs import fit_to_show

__all__ = ["report"]


def report(error: Exception, given: Namespace) -> int:
    """Print an error in one line, after its traceback with ``--debug``, and return the exit code."""
    if given.debug:
        print(fit_to_show(traceback.format_exc()), file=sys.stderr, end="")
    print(f"batonflow {given.command}: {one_line(fit_to_show(_text_of(error)))}", file=sys.stderr)
    return error.code if isinstance(error, CommandError) else FAILED


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    # Texts of batonflow's errors are complete; other errors need their class names. An ImportError without the name of
    # a module is raised by batonflow, for an extra that is not installed.
    is_own = type(error).__module__.startswith("batonflow.") or (type(error) is ImportError and error.name is None)
    is_complete = is_own and str(error)
    return str(error) if is_complete else f"{type(error).__name__}: {error}"

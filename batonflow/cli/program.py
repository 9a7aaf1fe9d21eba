"""From the command line to a command, and from what happens there to one line and an exit code."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from batonflow.cli.arguments import parsed
from batonflow.cli.errors import BROKEN_PIPE, FAILED, INTERRUPTED, USAGE, CommandError

__all__ = ["main"]

# Which module a command lives in. They are loaded when they are called for: help and mistakes need none of them.
_HOMES = {
    "run": "running",
    "resume": "running",
    "fork": "running",
    "chat": "chatting",
    "draw": "drawing",
    "check": "checking",
    "serve": "serving",
    "runs": "looking",
    "show": "looking",
    "replay": "looking",
    "diff": "looking",
    "completions": "completing",
    "approve": "answering",
    "cancel": "answering",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: What stands behind ``batonflow``; that of this process when left out.

    Returns:
        0 done, 1 failed, 2 the command line is wrong, 3 a run waits for a person, 130 interrupted by Ctrl-C, 141 the
        reader of the output has gone.

    Example:
        >>> main(["runs", "--store", "runs.db"])
    """
    try:
        given = parsed(arguments)
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else USAGE
    try:
        code = _command(given.command)(given)
        sys.stdout.flush()
    except CommandError as error:
        return _told(str(error), error.code, given)
    except BrokenPipeError:
        # Nothing can be written any more, neither by whatever else is flushed when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary of the program: users see a line, not a traceback
        return _told(_in_words(error), FAILED, given)
    return code


def _command(name: str) -> Callable[[Namespace], int]:
    return cast("Callable[[Namespace], int]", getattr(import_module(f"batonflow.cli.{_HOMES[name]}"), name))


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    # Errors of batonflow say all that is to be said; others need their name.
    own = type(error).__module__.startswith("batonflow.")
    return str(error) if own and str(error) else f"{type(error).__name__}: {error}"


def _told(text: str, code: int, given: Namespace) -> int:
    # Loaded only now, as the commands are.
    fit_to_show = import_module("batonflow.instrumentation.logs").fit_to_show
    one_line = import_module("batonflow.cli.text").one_line
    if given.debug:
        print(fit_to_show(import_module("traceback").format_exc()), file=sys.stderr, end="")
    print(f"batonflow {given.command}: {one_line(fit_to_show(text))}", file=sys.stderr)
    return code

"""The error of commands, and the exit codes of the program."""

__all__ = ["BROKEN_PIPE", "DONE", "FAILED", "INTERRUPTED", "USAGE", "WAITING", "CommandError"]

DONE = 0
FAILED = 1
USAGE = 2
"""The command line is wrong: an option, a name, or a missing file."""

WAITING = 3
"""The run waits for a person and continues after the answer."""

INTERRUPTED = 130
BROKEN_PIPE = 141


class CommandError(Exception):
    """A command cannot continue; the user sees only the text.

    Args:
        text: The problem, its place, and a remedy; one line.
        code: The exit code of the program.
    """

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code

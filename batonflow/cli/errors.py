"""What a command says when it cannot go on, and the codes that the program ends with."""

__all__ = ["BROKEN_PIPE", "DONE", "FAILED", "INTERRUPTED", "USAGE", "WAITING", "CommandError"]

DONE = 0
FAILED = 1
USAGE = 2
"""Something on the command line is wrong: an option, a name, a file that is not there."""

WAITING = 3
"""The run waits for a person, and goes on when somebody has answered."""

INTERRUPTED = 130
BROKEN_PIPE = 141


class CommandError(Exception):
    """A command cannot go on; the text is all that the user is shown.

    Args:
        text: What is wrong, where, and what to do; one line.
        code: What the program ends with.
    """

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code

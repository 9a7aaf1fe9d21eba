"""The output of a run as a value, and the errors of a run without an output."""

from typing import Any, Protocol

from batonflow.workflow_core.errors import BatonflowError

__all__ = ["TEXT", "Answered", "OutputMissingError", "OutputUnfitError", "TextOutput"]


class OutputUnfitError(BatonflowError, ValueError):
    """An answer does not fit the declared type.

    Args:
        text: The answer.
        errors: The problems, in the words that the model has got.
        output_type: The declared type.

    Attributes:
        text: The answer.
        errors: The problems.
        output_type: The declared type.
    """

    def __init__(self, text: str, errors: str, output_type: Any = None) -> None:
        super().__init__(text, errors, output_type)
        self.text, self.errors, self.output_type = text, errors, output_type

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return f"The answer does not fit {type_in_words(self.output_type)}:\n{self.errors}\nIt was: {shown}"


class OutputMissingError(BatonflowError, RuntimeError):
    """A run has ended without an output of the declared type.

    Args:
        reason: The reason: that of a guard, or the limit that was reached.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_SHOWN = 2000


def type_in_words(output_type: Any) -> str:
    """Return the name of a type for messages."""
    return output_type.__name__ if isinstance(output_type, type) else str(output_type)


class Answered(Protocol):
    """The answer of an agent, as declarations of outputs read it."""

    structured_response: dict[str, Any] | None

    @property
    def blocked(self) -> str | None:
        """The reason of a missing output."""
        ...


class TextOutput:
    """The output of agents without a declared type: the text of the answer."""

    def value_of(self, answer: Answered) -> Any:
        """Return the output of an answer.

        Raises:
            OutputMissingError: The run ended without an output.
            OutputUnfitError: The answer does not fit the declared type.
        """
        if answer.blocked is not None:
            raise OutputMissingError(answer.blocked)
        return self.read(answer)

    def read(self, answer: Answered) -> Any:
        """Return the output of an answer that no guard has blocked."""
        return str(answer)


TEXT = TextOutput()

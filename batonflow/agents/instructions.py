"""Instructions: texts, and functions that return texts, for the system message of an agent."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from batonflow.workflow_core import Context

__all__ = ["EachStep", "Instruction", "Instructions", "checked_instructions", "each_step"]


@dataclass(frozen=True)
class EachStep:
    """An instruction that is asked for before each request to the model.

    Args:
        function: The instruction.
    """

    function: Callable[..., Any]


Instruction = str | EachStep | Callable[[Context[Any]], str | Awaitable[str | None] | None] | Callable[[], str | None]
"""A text for the system message, or a function that returns it."""

Instructions = Instruction | Sequence[Instruction]


def each_step(
    function: Callable[[Context[Any]], str | Awaitable[str | None] | None] | Callable[[], str | None],
) -> EachStep:
    """Let an instruction be asked for before each request to the model, and not once in a turn.

    Args:
        function: The instruction.

    Example:
        >>> agent = FunctionAgent(llm=llm, instructions=[each_step(lambda: f"It is {datetime.now():%H:%M}.")])
    """
    return EachStep(function)


def checked_instructions(given: Any) -> tuple[Any, ...]:
    """Return instructions as a list.

    Raises:
        ValueError: One of them is neither a text nor a function.
    """
    if isinstance(given, str | EachStep) or callable(given):
        return (given,)
    if not isinstance(given, Sequence):
        raise ValueError(f"instructions are texts and functions, not {given!r}")
    listed: list[Any] = [*given]
    for place, one in enumerate(listed):
        if not isinstance(one, str | EachStep) and not callable(one):
            raise ValueError(f"instructions[{place}] is a text or a function of (ctx), not {one!r}")
    return tuple(listed)

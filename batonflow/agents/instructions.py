"""Instructions: texts, and functions that return texts, for the system message of an agent."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeAliasType, TypeVar

from batonflow.workflow_core import Context
from batonflow.workflow_core.typed import AgentDepsT

__all__ = [
    "ChoiceOfTools",
    "EachStep",
    "Instruction",
    "Instructions",
    "ToolChoice",
    "checked_instructions",
    "each_step",
]


@dataclass(frozen=True)
class EachStep(Generic[AgentDepsT]):
    """An instruction that is asked for before each request to the model.

    Args:
        function: The instruction.
    """

    function: Callable[[Context[Any, AgentDepsT]], Any] | Callable[[], Any]


DepsT = TypeVar("DepsT", default=object)

_Asked = Callable[[Context[Any, DepsT]], str | Awaitable[str | None] | None] | Callable[[], str | None]

Instruction = TypeAliasType("Instruction", str | EachStep[DepsT] | _Asked[DepsT], type_params=(DepsT,))
"""A text for the system message, or a function that returns it; ``Instruction[Deps]`` sees these dependencies."""

Instructions = TypeAliasType(
    "Instructions",
    str | EachStep[DepsT] | _Asked[DepsT] | Sequence[str | EachStep[DepsT] | _Asked[DepsT]],
    type_params=(DepsT,),
)

ToolChoice = Literal["auto", "required", "none"] | str  # noqa: PYI051 - read by people
"""The tool that the model is to call: any, at least one, none, or the one of this name."""

ChoiceOfTools = TypeAliasType(
    "ChoiceOfTools",
    ToolChoice | Callable[[Context[Any, DepsT]], ToolChoice | Awaitable[ToolChoice | None] | None],
    type_params=(DepsT,),
)


def each_step(
    function: Callable[[Context[Any, DepsT]], str | Awaitable[str | None] | None] | Callable[[], str | None],
) -> EachStep[DepsT]:
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
        return (cast("Any", given),)
    if not isinstance(given, Sequence):
        raise ValueError(f"instructions are texts and functions, not {given!r}")
    listed: list[Any] = [*given]
    for place, one in enumerate(listed):
        if not isinstance(one, str | EachStep) and not callable(one):
            raise ValueError(f"instructions[{place}] is a text or a function of (ctx), not {one!r}")
    return tuple(listed)

"""Instructions for the system message of an agent: strings, and functions that return strings."""

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
    """An instruction that is evaluated before each request to the model.

    Args:
        function: Returns the text of the instruction; None leaves it out.
    """

    function: Callable[[Context[Any, AgentDepsT]], Any] | Callable[[], Any]


DepsT = TypeVar("DepsT", default=object)

_Asked = Callable[[Context[Any, DepsT]], str | Awaitable[str | None] | None] | Callable[[], str | None]

Instruction = TypeAliasType("Instruction", str | EachStep[DepsT] | _Asked[DepsT], type_params=(DepsT,))
"""A text for the system message, or a function that returns one. In ``Instruction[Deps]``, it can use the deps."""

Instructions = TypeAliasType(
    "Instructions",
    str | EachStep[DepsT] | _Asked[DepsT] | Sequence[str | EachStep[DepsT] | _Asked[DepsT]],
    type_params=(DepsT,),
)

ToolChoice = Literal["auto", "required", "none"] | str  # noqa: PYI051 - read by people
"""The tools to call: the model's choice, at least one tool, no tools, or the named one."""

ChoiceOfTools = TypeAliasType(
    "ChoiceOfTools",
    ToolChoice | Callable[[Context[Any, DepsT]], ToolChoice | Awaitable[ToolChoice | None] | None],
    type_params=(DepsT,),
)


def each_step(
    function: Callable[[Context[Any, DepsT]], str | Awaitable[str | None] | None] | Callable[[], str | None],
) -> EachStep[DepsT]:
    """Evaluate an instruction before each request to the model, instead of once per turn.

    Args:
        function: Returns the text of the instruction; None leaves it out.

    Example:
        >>> agent = FunctionAgent(llm=llm, instructions=[each_step(lambda: f"It is {datetime.now():%H:%M}.")])
    """
    return EachStep(function)


def checked_instructions(given: Any) -> tuple[Any, ...]:
    """Return instructions as a tuple.

    Raises:
        ValueError: An instruction is neither a string nor a function.
    """
    if isinstance(given, str | EachStep) or callable(given):
        return (cast("Any", given),)
    if not isinstance(given, Sequence):
        raise ValueError(f"instructions must be strings and functions, not {given!r}")
    listed: list[Any] = [*given]
    for place, one in enumerate(listed):
        if not isinstance(one, str | EachStep) and not callable(one):
            raise ValueError(f"instructions[{place}] must be a string or a function of (ctx), not {one!r}")
    return tuple(listed)

"""Cardinality of steps that take a list: ``Annotated[list[Done], Collect(Take(2))]``."""

from dataclasses import dataclass

from batonflow.workflow_core.types import is_whole

__all__ = ["All", "Cardinality", "Collect", "Take"]


class Cardinality:
    """Base of the rules that tell when a collection is complete."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class All(Cardinality):
    """Every event of the stream, once all work in the stream has ended."""


@dataclass(frozen=True, slots=True)
class Take(Cardinality):
    """The first ``n`` events; fewer when the stream ends before. Later ones are swallowed.

    Raises:
        ValueError: ``n`` is less than 1.
    """

    n: int

    def __post_init__(self) -> None:
        if not is_whole(self.n, least=1):
            raise ValueError(f"Take() needs a whole number of at least 1, got {self.n!r}")


@dataclass(frozen=True, slots=True)
class Collect:
    """Marks a list parameter of a step with the rule of its completeness.

    Example:
        >>> from typing import Annotated
        >>> FirstTwo = Annotated[list[int], Collect(Take(2))]
    """

    cardinality: Cardinality = All()

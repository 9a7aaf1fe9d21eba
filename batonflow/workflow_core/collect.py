"""Cardinality of steps that take a list: ``Annotated[list[Done], Collect(Take(2))]``."""

from dataclasses import dataclass

from batonflow.values.types import is_whole

__all__ = ["All", "Cardinality", "Collect", "Take"]


class Cardinality:
    """Base class of the rules for when a collection is complete."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class All(Cardinality):
    """All events of the stream, after all work in the stream has ended."""


@dataclass(frozen=True, slots=True)
class Take(Cardinality):
    """The first ``n`` events, or fewer if the stream ends earlier; later events are dropped.

    Raises:
        ValueError: ``n`` is less than 1.
    """

    n: int

    def __post_init__(self) -> None:
        if not is_whole(self.n, least=1):
            raise ValueError(f"Take() needs a whole number of at least 1, got {self.n!r}")


@dataclass(frozen=True, slots=True)
class Collect:
    """Marks a list parameter of a step with the rule for its completeness.

    Example:
        >>> from typing import Annotated
        >>> FirstTwo = Annotated[list[int], Collect(Take(2))]
    """

    cardinality: Cardinality = All()

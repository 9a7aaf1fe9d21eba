"""Events of query engines: the question, the nodes, and the pieces of the answer."""

from collections.abc import Sequence
from typing import Self

from batonflow.nodes import NodeWithScore, QueryBundle
from batonflow.workflow_core import Event, StartEvent

__all__ = ["AnswerDelta", "Postprocessed", "QueryAsked", "Retrieved"]


class QueryAsked(StartEvent):
    """A question to a query engine."""

    query: QueryBundle


class Retrieved(Event):
    """The nodes that a retriever has found."""

    query: QueryBundle
    nodes: list[NodeWithScore]


class Postprocessed(Event):
    """The nodes after all postprocessors, from which the answer is made."""

    query: QueryBundle
    nodes: list[NodeWithScore]


class AnswerDelta(Event):
    """A piece of a streamed answer."""

    delta: str

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Return an event with the content of several pieces of an answer, for records."""
        return cls(delta="".join(piece.delta for piece in pieces))

    def sizes(self) -> tuple[int]:
        """Return the number of new characters."""
        return (len(self.delta),)

    def without(self, text: int) -> Self:
        """Return the event without the first characters, which a reader already has."""
        return self.model_copy(update={"delta": self.delta[text:]})

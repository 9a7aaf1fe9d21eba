"""Events about ranking of nodes by a model."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["ReRankEndEvent", "ReRankStartEvent"]


class ReRankStartEvent(BaseEvent):
    """A model is about to rank nodes.

    Args:
        query: The question, as text or a query bundle.
        nodes: The nodes before.
        top_n: The number of nodes to keep.
        model_name: The name of the model.
    """

    query: Any
    nodes: list[Any]
    top_n: int
    model_name: str


class ReRankEndEvent(BaseEvent):
    """A model has ranked nodes."""

    nodes: list[Any]

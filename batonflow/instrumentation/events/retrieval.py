"""Events about retrieval."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["RetrievalEndEvent", "RetrievalStartEvent"]


class RetrievalStartEvent(BaseEvent):
    """A retriever receives a query, as text or a query bundle."""

    str_or_query_bundle: Any


class RetrievalEndEvent(BaseEvent):
    """A retriever has returned ``nodes``."""

    str_or_query_bundle: Any
    nodes: list[Any]

"""Events about query engines."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["QueryEndEvent", "QueryStartEvent"]


class QueryStartEvent(BaseEvent):
    """A query engine receives a query, as text or a query bundle."""

    query: Any


class QueryEndEvent(BaseEvent):
    """A query engine returns its response; a streamed one is still to be read."""

    query: Any
    response: Any

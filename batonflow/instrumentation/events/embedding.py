"""Events about embeddings."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["EmbeddingEndEvent", "EmbeddingStartEvent"]


class EmbeddingStartEvent(BaseEvent):
    """An embedding model receives a batch of texts.

    Args:
        model_dict: The model, without its keys.
    """

    model_dict: dict[str, Any]


class EmbeddingEndEvent(BaseEvent):
    """An embedding model has returned the vectors of texts."""

    chunks: list[str]
    embeddings: list[list[float]]

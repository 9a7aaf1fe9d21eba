"""Events about the synthesis of answers from nodes."""

from typing import Any

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["GetResponseEndEvent", "GetResponseStartEvent", "SynthesizeEndEvent", "SynthesizeStartEvent"]


class SynthesizeStartEvent(BaseEvent):
    """A synthesizer receives a query, as text or a query bundle, and nodes."""

    query: Any


class SynthesizeEndEvent(BaseEvent):
    """A synthesizer returns its response; a streamed one is still to be read."""

    query: Any
    response: Any


class GetResponseStartEvent(BaseEvent):
    """A synthesizer begins to answer ``query_str`` from the texts of nodes."""

    query_str: str
    text_chunks: list[str]


class GetResponseEndEvent(BaseEvent):
    """A synthesizer has its answer, or the beginning of a stream."""

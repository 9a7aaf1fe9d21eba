"""Events about spans themselves."""

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["SpanCancelledEvent", "SpanDropEvent"]


class SpanDropEvent(BaseEvent):
    """A span ends because of an error.

    Args:
        err_str: The text of the error.
    """

    err_str: str


class SpanCancelledEvent(BaseEvent):
    """A span ends because the work in it was cancelled; it is closed as usual, not dropped.

    Args:
        reason: Who cancelled, in words.
    """

    reason: str

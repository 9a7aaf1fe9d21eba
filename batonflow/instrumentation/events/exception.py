"""The event about what went wrong."""

from batonflow.instrumentation.events.base import BaseEvent

__all__ = ["ExceptionEvent"]


class ExceptionEvent(BaseEvent):
    """A call of a model ends without its answer: it failed, or whoever read the answer left (GeneratorExit).

    Args:
        exception: Why.
    """

    exception: BaseException

"""The base class of everything a dispatcher reports."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from batonflow.clock import current_source
from batonflow.instrumentation.context import active_span_id

__all__ = ["BaseEvent", "ExceptionEvent", "SpanCancelledEvent", "SpanDropEvent"]


def _now() -> datetime:
    # Local and without a zone: handlers written for LlamaIndex compare it with datetime.now().
    return datetime.fromtimestamp(current_source().now())  # noqa: DTZ006


def _new_id() -> str:
    return current_source().token(20)


class BaseEvent(BaseModel):
    """Something that happened, told to the event handlers of a dispatcher.

    Args:
        timestamp: When it was made; local time.
        id_: Its own id.
        span_id: The span in which it happened; by default the active one.
        tags: Names and values; the dispatcher adds those of :func:`instrument_tags`.

    Example:
        >>> class CacheMiss(BaseEvent):
        ...     key: str
        >>> get_dispatcher(__name__).event(CacheMiss(key="tides"))
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    timestamp: datetime = Field(default_factory=_now)
    id_: str = Field(default_factory=_new_id)
    span_id: str | None = Field(default_factory=active_span_id.get)
    tags: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        """The name under which handlers and exporters know this kind of event; the class's own unless overridden."""
        return cls.__name__

    def model_dump(self, **kwargs: Any) -> dict[str, Any]:
        """The fields as a dict, with ``class_name`` added; takes pydantic's options."""
        data = super().model_dump(**kwargs)
        data["class_name"] = self.class_name()
        return data


class ExceptionEvent(BaseEvent):
    """A call of a model ends without its answer: it failed, or whoever read the answer left (GeneratorExit).

    Args:
        exception: Why.
    """

    exception: BaseException


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

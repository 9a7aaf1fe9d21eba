"""The base class of events, and the events of spans and exceptions."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from batonflow.instrumentation.context import active_span_id, local_now, new_id

__all__ = ["BaseEvent", "ExceptionEvent", "SpanCancelledEvent", "SpanDropEvent"]


class BaseEvent(BaseModel):
    """An event that a dispatcher reports to its event handlers.

    Args:
        timestamp: The local time of its creation.
        id_: Its id.
        span_id: The enclosing span; by default the active one.
        tags: Names and values; the dispatcher adds the tags of :func:`instrument_tags`.

    Example:
        >>> class CacheMiss(BaseEvent):
        ...     key: str
        >>> get_dispatcher(__name__).event(CacheMiss(key="tides"))
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    timestamp: datetime = Field(default_factory=local_now)
    id_: str = Field(default_factory=new_id)
    span_id: str | None = Field(default_factory=active_span_id.get)
    tags: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of this class of events for handlers and exporters."""
        return cls.__name__

    def model_dump(self, **kwargs: Any) -> dict[str, Any]:
        """Return the fields as a dict with ``class_name`` added; takes the options of pydantic."""
        data = super().model_dump(**kwargs)
        data["class_name"] = self.class_name()
        return data


class ExceptionEvent(BaseEvent):
    """A call to a model ended without a response: it failed, or its consumer stopped early (GeneratorExit).

    Args:
        exception: The cause.
    """

    exception: BaseException


class SpanDropEvent(BaseEvent):
    """A span ended with an error.

    Args:
        err_str: The text of the error.
    """

    err_str: str


class SpanCancelledEvent(BaseEvent):
    """A span ended because its work was cancelled; it is closed, not dropped.

    Args:
        reason: The cause of the cancellation, as text.
    """

    reason: str

"""Spans: stretches of work with a parent."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from batonflow.clock import current_source
from batonflow.instrumentation.context import active_span_id

__all__ = ["BaseSpan", "SimpleSpan", "active_span_id"]


def _now() -> datetime:
    return datetime.fromtimestamp(current_source().now())  # noqa: DTZ006 - local time, as of events


def _new_id() -> str:
    return current_source().token(20)


class BaseSpan(BaseModel):
    """A stretch of work.

    Args:
        id_: ``"<name>-<token>"`` for the spans dispatchers open.
        parent_id: The enclosing span, None for a root.
        tags: Names and values that were in force when it was opened.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id_: str = Field(default_factory=_new_id)
    parent_id: str | None = None
    tags: dict[str, Any] = Field(default_factory=dict)


class SimpleSpan(BaseSpan):
    """A span that knows how long it took.

    Args:
        start_time: When it was opened; local time.
        end_time: When it was closed or dropped, None while open.
        duration: Seconds between the two.
        metadata: ``{"error": text}`` for a dropped span.
    """

    start_time: datetime = Field(default_factory=_now)
    end_time: datetime | None = None
    duration: float = 0.0
    metadata: dict[str, Any] | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Note the end, and the error if there was one."""
        self.end_time = _now()
        self.duration = (self.end_time - self.start_time).total_seconds()
        if error is not None:
            self.metadata = {"error": str(error)}

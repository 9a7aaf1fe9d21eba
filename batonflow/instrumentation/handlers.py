"""Spans, and the handlers that dispatchers report events and spans to."""

import inspect
import threading
from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from batonflow.instrumentation.context import active_span_id, local_now, new_id
from batonflow.instrumentation.events.base import BaseEvent

__all__ = [
    "BaseEventHandler",
    "BaseSpan",
    "BaseSpanHandler",
    "NullEventHandler",
    "NullSpanHandler",
    "SimpleSpan",
    "SimpleSpanHandler",
    "active_span_id",
]


class BaseSpan(BaseModel):
    """A unit of work with a parent.

    Args:
            id_: ``"<name>-<token>"`` for the spans that dispatchers open.
            parent_id: The enclosing span, None for a root.
            tags: Names and values that were active when it was opened.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id_: str = Field(default_factory=new_id)
    parent_id: str | None = None
    tags: dict[str, Any] = Field(default_factory=dict)


class SimpleSpan(BaseSpan):
    """A span with its start, end and duration.

    Args:
            start_time: The local time of the opening.
            end_time: The local time of the end, None while the span is open.
            duration: Seconds between the two.
            metadata: ``{"error": text}`` for a dropped span.
    """

    start_time: datetime = Field(default_factory=local_now)
    end_time: datetime | None = None
    duration: float = 0.0
    metadata: dict[str, Any] | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Set the end time, and the error if there was one."""
        self.end_time = local_now()
        self.duration = (self.end_time - self.start_time).total_seconds()
        if error is not None:
            self.metadata = {"error": str(error)}


class BaseEventHandler(BaseModel, ABC):
    """Receive the events of the dispatchers it is added to, and of their children.

    An exception of a handler is logged once and never reaches the traced code.

    Attributes:
        hears_pieces: Whether it receives the chunks of streamed responses. Without such a handler no chunk events are
            made.

    Example:
        >>> class Printer(BaseEventHandler):
        ...     def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        ...         print(event.class_name())
        >>> get_dispatcher().add_event_handler(Printer())
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    hears_pieces: ClassVar[bool] = True

    @classmethod
    def class_name(cls) -> str:
        """Return the name of this class of handlers."""
        return cls.__name__

    @abstractmethod
    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """Process ``event``, in the thread and context of the code that reports it."""

    async def ahandle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """Process ``event`` of :meth:`Dispatcher.aevent`; calls :meth:`handle` unless overridden."""
        return self.handle(event, **kwargs)


class NullEventHandler(BaseEventHandler):
    """A handler without effect, which dispatchers do not count."""

    def handle(self, event: BaseEvent, **kwargs: Any) -> Any:
        """Do nothing."""


# ruff: noqa: ARG002 - subclasses use different arguments


T = TypeVar("T", bound=BaseSpan)


class BaseSpanHandler(BaseModel, ABC, Generic[T]):
    """Keep the spans of the dispatchers it is added to, and of their children.

    A subclass makes a span in :meth:`new_span` and processes its end in the two ``prepare_to_*`` methods. An exception
    of a handler is logged once and never reaches the traced code.

    Args:
        open_spans: The open spans by id.
        completed_spans: For subclasses that keep completed spans.
        dropped_spans: For subclasses that keep failed spans.

    Attributes:
        hears_arguments: Whether it uses ``bound_args``. Without such a handler the library reports its own spans
            without arguments.

    Example:
        >>> class Names(BaseSpanHandler[BaseSpan]):
        ...     def new_span(self, id_, bound_args, instance=None, parent_span_id=None, tags=None, **kwargs):
        ...         return BaseSpan(id_=id_, parent_id=parent_span_id)
        ...     def prepare_to_exit_span(self, id_, bound_args, instance=None, result=None, **kwargs):
        ...         return self.open_spans.get(id_)
        ...     def prepare_to_drop_span(self, id_, bound_args, instance=None, err=None, **kwargs):
        ...         return self.open_spans.get(id_)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    hears_arguments: ClassVar[bool] = True

    open_spans: dict[str, T] = Field(default_factory=dict)
    completed_spans: list[T] = Field(default_factory=list[T])
    dropped_spans: list[T] = Field(default_factory=list[T])
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of this class of handlers."""
        return cls.__name__

    @property
    def lock(self) -> threading.Lock:
        """The lock of the three collections; not reentrant."""
        return self._lock

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a span with :meth:`new_span` and add it to the open spans."""
        if id_ in self.open_spans:
            return
        span = self.new_span(
            id_=id_, bound_args=bound_args, instance=instance, parent_span_id=parent_id, tags=tags, **kwargs
        )
        if span is not None:
            with self.lock:
                self.open_spans[id_] = span

    def span_exit(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> None:
        """Close a span: remove it from the open spans if :meth:`prepare_to_exit_span` returns it."""
        span = self.prepare_to_exit_span(id_=id_, bound_args=bound_args, instance=instance, result=result, **kwargs)
        if span is not None:
            with self.lock:
                self.open_spans.pop(id_, None)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Drop a span: remove it from the open spans if :meth:`prepare_to_drop_span` returns it."""
        span = self.prepare_to_drop_span(id_=id_, bound_args=bound_args, instance=instance, err=err, **kwargs)
        if span is not None:
            with self.lock:
                self.open_spans.pop(id_, None)

    @abstractmethod
    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> T | None:
        """Make a span; return None to ignore it.

        Args:
            id_: The id of the span.
            bound_args: The arguments of the traced call, without ``self``.
            instance: The object of the traced method, None for a function.
            parent_span_id: The enclosing span.
            tags: The active tags.
            **kwargs: Further arguments of the caller.
        """

    @abstractmethod
    def prepare_to_exit_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> T | None:
        """Process the end of a span with ``result``. Return the span to remove it, or None to keep it open."""

    @abstractmethod
    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> T | None:
        """Process the failure of a span with ``err``. Return the span to remove it, or None to keep it open."""

    def capture_propagation_context(self) -> dict[str, Any]:
        """Return JSON data for the same handler in another process, which continues the trace."""
        return {}

    def restore_propagation_context(self, context: dict[str, Any]) -> None:
        """Continue a trace with the data of :meth:`capture_propagation_context`, before the first span."""

    def close(self) -> None:
        """Flush and release resources; called by :meth:`Dispatcher.shutdown`."""


class NullSpanHandler(BaseSpanHandler[BaseSpan]):
    """A handler without effect, which dispatchers do not count."""

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Return None, as no spans are kept."""

    def prepare_to_exit_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> None:
        """Do nothing."""

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Do nothing."""


class SimpleSpanHandler(BaseSpanHandler[SimpleSpan]):
    """Keep every span with its duration, and print the spans as trees.

    Example:
        >>> spans = SimpleSpanHandler()
        >>> get_dispatcher().add_span_handler(spans)
        >>> ...  # run something
        >>> spans.print_trace_trees()
    """

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> SimpleSpan:
        """Make a SimpleSpan."""
        return SimpleSpan(id_=id_, parent_id=parent_span_id, tags=dict(tags or {}))

    def prepare_to_exit_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **kwargs: Any
    ) -> SimpleSpan | None:
        """Move the span to ``completed_spans``."""
        span = self.open_spans.get(id_)
        if span is not None:
            span.finish()
            with self.lock:
                self.completed_spans.append(span)
        return span

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> SimpleSpan | None:
        """Move the span to ``dropped_spans``, with the error in its metadata."""
        span = self.open_spans.get(id_)
        if span is not None:
            span.finish(err if err is not None else RuntimeError("no error given"))
            with self.lock:
                self.dropped_spans.append(span)
        return span

    def format_trace_trees(self) -> str:
        """Return the completed and dropped spans as indented trees, oldest first."""
        with self.lock:
            ended = sorted([*self.completed_spans, *self.dropped_spans], key=lambda span: span.start_time)
        known = {span.id_ for span in ended}
        below: dict[str | None, list[SimpleSpan]] = {}
        for span in ended:
            below.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)

        lines: list[str] = []
        # A stack instead of recursion, because the spans of a long run nest deeply.
        pending = [(span, "", True, True) for span in reversed(below.get(None, []))]
        while pending:
            span, indent, is_last, is_root = pending.pop()
            branch = "" if is_root else ("└── " if is_last else "├── ")
            lines.append(f"{indent}{branch}{span.id_} ({span.duration})")
            inner = indent if is_root else indent + ("    " if is_last else "│   ")
            children = below.get(span.id_, [])
            pending.extend((child, inner, child is children[-1], False) for child in reversed(children))
        return "\n".join(lines)

    def print_trace_trees(self) -> None:
        """Print :meth:`format_trace_trees`."""
        print(self.format_trace_trees())
